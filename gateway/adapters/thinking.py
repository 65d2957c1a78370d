"""The client's wish about thinking: one reading of all the ways in which clients spell it.

    off                      do not think
    on                       think
    minimal .. max           think, this hard
    None                     nothing was said

Spellings: `disable_thinking`, `thinking` (true, "low", Anthropic's and DeepSeek's object),
`reasoning_effort`, `reasoning` (`effort`, `enabled`, `max_tokens`: OpenRouter, Responses),
`enable_thinking` (Qwen), `chat_template_kwargs` (`enable_thinking`, `thinking`: vLLM,
SGLang, llama.cpp), `output_config.effort` (Anthropic), and each of them inside an
`extra_body` that a client sent literally; there the field at the top wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.adapters.paths import Path, remove
from gateway.chat import Json

LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""From the least to the most."""

WISHES = ("off", "on", *LEVELS)

_WORDS = {
    **{level: level for level in LEVELS},
    "ultra": "max",
    **dict.fromkeys(("on", "enabled", "adaptive"), "on"),
    **dict.fromkeys(("off", "none", "disabled", "between_tools"), "off"),
}

_UNSAID = ""  # the field is one of ours but says nothing: `disable_thinking: false`

Found = Iterator[tuple[Path, str]]


def read_wish(body: Mapping[str, Any]) -> str | None:
    """What the body asks for, or None. Off wins over a level, a level over a mere on."""
    if _KEYS.isdisjoint(body):
        return None
    wish = None
    for path, said in _spellings(body):
        if path[0] == "extra_body" and path[1] in body:
            continue
        if said == "off":
            return "off"
        if (said in LEVELS and wish not in LEVELS) or (said == "on" and wish is None):
            wish = said
    return wish


def wish_fields(body: Mapping[str, Any]) -> list[Path]:
    """The paths that carry the wish, also those that say nothing (`disable_thinking: false`)."""
    if _KEYS.isdisjoint(body):
        return []
    return [path for path, _ in _spellings(body)]


def drop_wish(body: Json) -> None:
    """Remove every field of the wish, and the objects that this leaves empty."""
    for path in wish_fields(body):
        remove(body, path)


def _spellings(body: Mapping[str, Any], within: Path = ()) -> Found:
    for key, read in _READERS.items():
        if key in body:
            for path, said in read(body[key]):
                yield (*within, key, *path), said
    extra = body.get("extra_body") if not within else None
    if isinstance(extra, dict):
        yield from _spellings(extra, ("extra_body",))


def _no(value: Any) -> Found:
    if isinstance(value, bool):
        yield (), "off" if value else _UNSAID


def _yes(value: Any) -> Found:
    if isinstance(value, bool):
        yield (), "on" if value else "off"


def _word(value: Any) -> Found:
    if isinstance(value, str) and (said := _WORDS.get(value.lower())):
        yield (), said


def _thinking(value: Any) -> Found:
    if isinstance(value, dict):
        budget = value.get("budget_tokens")
        if budget == 0 and budget is not False:
            yield (), "off"
        elif "type" in value:
            yield from _word(value["type"])
        elif budget:
            yield (), "on"
    else:
        yield from _yes(value)
        yield from _word(value)


def _budget(value: Any) -> Found:
    if isinstance(value, int) and not isinstance(value, bool):
        yield (), "on" if value else "off"


def _inside(**readers: Callable[[Any], Found]) -> Callable[[Any], Found]:
    def read(value: Any) -> Found:
        if isinstance(value, dict):
            for key, inner in readers.items():
                if key in value:
                    for path, said in inner(value[key]):
                        yield (key, *path), said

    return read


_READERS: dict[str, Callable[[Any], Found]] = {
    "disable_thinking": _no,
    "thinking": _thinking,
    "reasoning_effort": _word,
    "reasoning": _inside(effort=_word, enabled=_yes, max_tokens=_budget),
    "enable_thinking": _yes,
    "chat_template_kwargs": _inside(enable_thinking=_yes, thinking=_yes),
    "output_config": _inside(effort=_word),
}
_KEYS = frozenset((*_READERS, "extra_body"))


def in_chat(body: Json) -> None:
    """Tell the wish of a translated request in the words of chat completions, for a provider without a thinking rule.

    A level becomes `reasoning_effort`; on and off have no word there that every host takes.
    """
    wish = read_wish(body)
    if wish is None:
        return
    drop_wish(body)
    if wish in LEVELS:
        body["reasoning_effort"] = "high" if wish in ("xhigh", "max") else wish
