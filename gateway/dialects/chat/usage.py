"""Token counts in all their spellings, made into OpenAI's chat form.

In that form `prompt_tokens` includes what came from a cache and `completion_tokens` includes
reasoning. Several providers count differently, and some say so only through their totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.chat import Json

_PROMPT = ("prompt_tokens", "input_tokens", "promptTokenCount")
_COMPLETION = ("completion_tokens", "output_tokens", "candidatesTokenCount")
_FOLDED = frozenset(
    (
        *_PROMPT,
        *_COMPLETION,
        "total_tokens",
        "totalTokenCount",
        "prompt_tokens_details",
        "completion_tokens_details",
        "input_tokens_details",
        "output_tokens_details",
        "prompt_cache_hit_tokens",
        "prompt_cache_miss_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "cachedContentTokenCount",
        "thoughtsTokenCount",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    )
)

_PLAIN = frozenset(("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"))


def normal_usage(usage: Mapping[str, Any], *, excludes_reasoning: bool = False, timings: Any = None) -> Json:
    """The usage as OpenAI's chat completions write it; {} where it holds no count.

    Spellings of a count that the standard fields hold afterwards are left out, other fields
    stay. `excludes_reasoning`: the provider's completion count leaves reasoning out (xAI, where
    the totals show it too). `timings`: llama.cpp's, for its count of cached tokens.
    """
    if is_plain(usage) and not excludes_reasoning and not timings:
        return dict(usage)
    prompt, completion = _first(usage, _PROMPT), _first(usage, _COMPLETION)
    total = _first(usage, ("total_tokens", "totalTokenCount"))
    if prompt is None and completion is None:
        return {}
    if prompt is None:
        prompt = max(0, (total or 0) - (completion or 0))
    if completion is None:
        completion = max(0, (total or 0) - prompt)
    cached, written, reasoning = _cached(usage, timings), _count(usage, "cache_creation_input_tokens"), _reasoning(usage)
    if "prompt_tokens" not in usage and "input_tokens" in usage:  # Anthropic leaves both out of input_tokens
        prompt += (_count(usage, "cache_read_input_tokens") or 0) + (written or 0)
    elif cached and cached > prompt:
        prompt, cached = (prompt + cached, cached) if total == prompt + cached + completion else (prompt, prompt)
    if reasoning:
        completion, reasoning = _with_reasoning(completion, reasoning, prompt, total, excludes_reasoning or "thoughtsTokenCount" in usage)
    out: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": max(total or 0, prompt + completion)}
    _details(out, usage, "prompt_tokens_details", "input_tokens_details", {"cached_tokens": cached, "cache_write_tokens": written or None})
    _details(out, usage, "completion_tokens_details", "output_tokens_details", {"reasoning_tokens": reasoning})
    out.update((key, value) for key, value in usage.items() if key not in _FOLDED)
    return out


def is_plain(usage: Mapping[str, Any]) -> bool:
    """Whether this is OpenAI's own form, told at a glance: nearly every answer's is, and reading it closely costs more than the rest of the answer."""
    if not _PLAIN.issuperset(usage):
        return False
    prompt, completion, total = usage.get("prompt_tokens"), usage.get("completion_tokens"), usage.get("total_tokens")
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0 or total != prompt + completion:
        return False
    return _within(usage, "prompt_tokens_details", "cached_tokens", prompt) and _within(usage, "completion_tokens_details", "reasoning_tokens", completion)


def _within(usage: Mapping[str, Any], group: str, name: str, most: int) -> bool:
    if group not in usage:
        return True
    details = usage[group]
    if type(details) is not dict:
        return False
    count = details.get(name, 0)
    return type(count) is int and 0 <= count <= most


def is_normal(usage: Mapping[str, Any], normal: Mapping[str, Any]) -> bool:
    """Whether a usage already says all that its normal form says, so that it can stay as it is."""
    nulls = any(key in usage and usage[key] is None for key in ("prompt_tokens_details", "completion_tokens_details"))
    return not nulls and all(key in usage and usage[key] == value for key, value in normal.items())


def _with_reasoning(completion: int, reasoning: int, prompt: int, total: int | None, excluded: bool) -> tuple[int, int]:
    if excluded or total == prompt + completion + reasoning:
        return completion + reasoning, reasoning
    if reasoning > completion:  # either it is left out (no total that contradicts), or the provider miscounts (seen on Baseten)
        return (completion + reasoning, reasoning) if total is None else (completion, completion)
    return completion, reasoning


def _cached(usage: Mapping[str, Any], timings: Any) -> int | None:
    for value in (
        _detail(usage, "prompt_tokens_details", "cached_tokens"),
        _detail(usage, "input_tokens_details", "cached_tokens"),
        _first(usage, ("prompt_cache_hit_tokens", "cached_tokens", "cachedContentTokenCount", "cache_read_input_tokens")),
    ):
        if value is not None:
            return value
    return _count(timings, "cache_n") if isinstance(timings, Mapping) else None


def _reasoning(usage: Mapping[str, Any]) -> int | None:
    for value in (
        _detail(usage, "completion_tokens_details", "reasoning_tokens"),
        _first(usage, ("reasoning_tokens",)),
        _detail(usage, "output_tokens_details", "thinking_tokens"),
        _detail(usage, "output_tokens_details", "reasoning_tokens"),
        _first(usage, ("thoughtsTokenCount",)),
    ):
        if value is not None:
            return value
    return None


def _details(out: Json, usage: Mapping[str, Any], name: str, alias: str, found: Mapping[str, int | None]) -> None:
    given = usage.get(name)
    if not isinstance(given, Mapping):
        given = {key: value for key, value in other.items() if key != "thinking_tokens"} if isinstance(other := usage.get(alias), Mapping) else {}
    details = {**given, **{key: value for key, value in found.items() if value is not None}}
    if details:
        out[name] = details


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int | None:
    inner = usage.get(group)
    return _count(inner, name) if isinstance(inner, Mapping) else None


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((count for name in names if (count := _count(usage, name)) is not None), None)


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None
