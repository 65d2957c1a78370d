"""The options that every adapter understands, and what they come to for one target.

Four layers, the later one wins: the defaults here, the adapter file's own, those of the
first section of its `models` that matches the target's model, the config's.

A section of an adapter's `models`:

    { match = { "gpt-5.5*", "gpt-5.6*" },    -- a glob or several, matched on the upstream's model id
      host = "api.openai.com",               -- only where the base URL is at this host, a subdomain of it, or loopback (a stand-in)
      thinking = { ... },                    -- laid over the adapter's rule key by key; false: no rule
      options = { ... } }
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway.adapters import thinking_rule
from gateway.adapters.hooks import thaw
from gateway.adapters.paths import Path, parse
from gateway.adapters.thinking_rule import ThinkingRule, compile_rule

if TYPE_CHECKING:
    from gateway.adapters.hooks import Adapter


_PLACE = re.compile(r"\{(\w+)\}")
_SAFE = re.compile(r"[A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `kind` is choice, switch, text, count, names, renames, values or ranges.

    `values` are a choice's (with None where it is one), or the names that are known.
    """

    kind: str
    values: tuple[Any, ...]
    default: Any
    doc: str

    def read(self, value: Any) -> Any:
        """The value as the rules use it: YAML's and Lua's on and off are words where words are expected, and true or false elsewhere."""
        if isinstance(value, bool) and self.kind == "choice" and value not in self.values:
            return "on" if value else "off"
        if self.kind == "switch" or (self.kind == "choice" and True in self.values and value not in self.values):
            return switched(value)
        if self.kind == "names" and isinstance(value, Mapping) and not value:
            return ()  # Lua's {} is both
        return value

    def fault(self, value: Any) -> str | None:
        """Why the value cannot be used, or None."""
        value = self.read(value)
        if self.kind == "choice" and not any(value is known or (value == known and type(value) is type(known)) for known in self.values):
            return f"must be one of {', '.join(_word(known) for known in self.values)}"
        if self.kind == "switch" and not isinstance(value, bool):
            return "must be true or false"
        if self.kind == "text" and not (value is None or isinstance(value, str)):
            return "must be a text or null"
        if self.kind == "count" and not (value is None or (type(value) is int and value > 0)):
            return "must be a whole number above 0, or null"
        if self.kind == "names" and not (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
            return "must be a list of names"
        if self.kind == "names" and self.values and not set(value) <= set(self.values):
            return f"must be some of {', '.join(self.values)}"
        if self.kind == "renames" and not (isinstance(value, Mapping) and all(isinstance(name, str) for pair in value.items() for name in pair)):
            return "must map names to names"
        if self.kind == "values" and not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
            return "must map names to values"
        if self.kind == "ranges" and not (isinstance(value, Mapping) and all(isinstance(name, str) and _is_range(pair) for name, pair in value.items())):
            return "must map names to pairs of numbers, the least and the most"
        return None


_SWITCHED = {"on": True, "yes": True, "off": False, "no": False}


def switched(value: Any) -> Any:
    """True or false for YAML's bare words, which a config keeps as texts; any other value as it is."""
    return _SWITCHED.get(value.lower(), value) if isinstance(value, str) else value


def own_value(default: Any, value: Any) -> Any:
    """The value of an option that an adapter declares with this default."""
    return switched(value) if isinstance(default, bool) else value


def _is_range(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(type(end) in (int, float) for end in pair) and pair[0] <= pair[1]


def _word(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


COMMON_OPTIONS: Mapping[str, Option] = {
    "reasoning_echo": Option(
        "choice",
        (None, "none", "tool_turns", "with_tools", "all"),
        None,
        "which assistant turns carry reasoning upstream: none; those that called tools; all of them if the request has tools; all; null: as the client sent it",
    ),
    "reasoning_field": Option(
        "choice",
        ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "parts", "tags"),
        "reasoning_content",
        "where an assistant turn carries it: a field; or its content, in parts (Mistral's) or between <think> tags",
    ),
    "reasoning_placeholder": Option("text", (), None, "what a turn carries that must carry reasoning and has none; null: nothing"),
    "reasoning_fills": Option(
        "choice",
        ("with_tools", "tool_turns"),
        "with_tools",
        "which turns get the placeholder: every turn that is echoed, if the request has tools; those that called tools, in any request",
    ),
    "reasoning_entries": Option(
        "choice",
        (None, "once", "signed"),
        None,
        "which entries of reasoning_details go back; once: each once, and signed where its format is checked; signed: no text without a signature; null: all",
    ),
    "reasoning_memory": Option("switch", (), False, "give back the reasoning that the client lost, by tool-call id"),
    "think_tags": Option("choice", ("off", "on", "start_inside"), "off", "split <think> out of the content of answers; start_inside: answers begin in it"),
    "hoist_extra_body": Option("switch", (), False, "move the fields of a literal extra_body to the top, where a field of the same name wins"),
    "drop_params": Option("names", (), (), "fields that are never sent; a path goes through lists: tools.function.strict"),
    "rename_params": Option("renames", (), {}, "field -> the name that the provider knows it by"),
    "default_params": Option("values", (), {}, "field -> what is sent where the client says nothing"),
    "clamp_params": Option("ranges", (), {}, "field -> the least and the most that the provider takes; a number outside becomes the nearest"),
    "max_tokens_field": Option(
        "choice",
        (None, "max_tokens", "max_completion_tokens", "either"),
        None,
        "which of the two names the provider knows; either: any, but max_tokens goes where both are there; null: as the client sent it",
    ),
    "tool_choices": Option(
        "names",
        ("auto", "none", "required", "named"),
        (),
        "the kinds of tool_choice that it takes; another gives way: named to required with that tool alone, required to auto, none to no tools; []: all",
    ),
    "tool_schema": Option("choice", (None, "filled", "moonshot"), None, "what the parameters of tools must be: there at all; Moonshot's subset of JSON Schema"),
    "tool_ids": Option("choice", (None, "nine"), None, "what ids of tool calls must be; nine: nine letters and digits, made of the id where it is none"),
    "tool_result_names": Option("switch", (), False, "name the function in the results of tools"),
    "bridge_after_tool": Option("switch", (), False, "put a short assistant turn between the result of a tool and the user"),
    "empty_content": Option(
        "choice",
        (None, "text", "none"),
        None,
        "the content of an assistant turn that has none; text: an empty text; none: null, if it called tools; null: as it came",
    ),
    "repair_arguments": Option("switch", (), False, "make the arguments of calls in the history JSON objects where they are not"),
    "thought_signature": Option(
        "text",
        (),
        None,
        "what stands in for Google's signature on a step of the current turn whose signature is lost, and for one that was refused; null: nothing",
    ),
    "system_role": Option(
        "choice",
        (None, "system", "developer", "first_only"),
        None,
        "the role of instructions; first_only: one system message, at the start; null: as the client sent it",
    ),
    "forced_tool_choice_while_thinking": Option(
        "choice", ("keep", "auto", "thinking_off"), "keep", "what gives way where a forced tool_choice meets a model that thinks"
    ),
    "stream_only": Option("choice", (False, True, "thinking"), False, "ask for a stream although the client did not: always, or while the model thinks"),
    "speaks": Option("names", (), (), "further dialects that it is spoken to in at the same base URL: responses, messages, completions"),
    "completion_excludes_reasoning": Option("switch", (), False, "its completion_tokens leave the reasoning out, so that it is added"),
    "known_as": Option("text", (), None, "the name under which the adapter knows the model that a deployment or an alias stands for"),
    "embedding_batch": Option(
        "count", (), None, "how many inputs an embeddings request may have; more go in several requests, one after the other; null: any number"
    ),
    "include_usage": Option("switch", (), True, "ask streams for usage (stream_options.include_usage)"),
}


class Settings(dict[str, Any]):
    """The options of one target, and the rules that they make. What hooks see as `ctx.options`.

    `base_url` is the config's, else the adapter's with each `{option}` in it filled in.
    """

    __slots__ = ("base_url", "clamp", "defaults", "drop", "name", "rename", "strict_turns", "thinking")

    def __init__(self, name: str, values: Mapping[str, Any], rule: ThinkingRule | None, base_url: str | None = None) -> None:
        super().__init__(values)
        self.name = name
        self.base_url = base_url
        self.thinking = rule
        self.defaults: tuple[tuple[str, Any], ...] = tuple((name, thaw(value)) for name, value in values["default_params"].items())
        self.clamp: tuple[tuple[str, float, float], ...] = tuple((name, low, high) for name, (low, high) in values["clamp_params"].items())
        self.strict_turns = any(values[name] for name in ("tool_ids", "tool_result_names", "bridge_after_tool", "empty_content"))
        self.drop: tuple[Path, ...] = tuple(parse(text) for text in values["drop_params"])
        self.rename: tuple[tuple[Path, Path], ...] = tuple((parse(old), parse(new)) for old, new in values["rename_params"].items())


def settings(adapter: Adapter, model: str, configured: Mapping[str, Any], base_url: str | None = None) -> Settings:
    """What holds for one model behind one base URL (None: the adapter's own).

    `configured` is what the config says and nothing else: the provider's options with the
    target's over them. Costs some 20 us: keep the result for as long as the adapter is the same.
    """
    section = section_of(adapter.models, configured.get("known_as") or model, base_url or adapter.base_url)
    values = {name: option.default for name, option in COMMON_OPTIONS.items()}
    for layer in (adapter.options, section.get("options") or {}, configured):
        values.update(
            {name: COMMON_OPTIONS[name].read(value) if name in COMMON_OPTIONS else own_value(adapter.options.get(name), value) for name, value in layer.items()}
        )
    return Settings(adapter.name, values, _rule(adapter.thinking, section.get("thinking")), base_url or _filled(adapter.base_url, values))


def _filled(base_url: str | None, values: Mapping[str, Any]) -> str | None:
    """`https://host.{region}.example` with the options' values in their places; what is not safe in an address stays unfilled."""
    if base_url is None or "{" not in base_url:
        return base_url
    return _PLACE.sub(lambda place: text if _SAFE.fullmatch(text := str(values.get(place[1], ""))) else place[0], base_url)


def section_of(models: tuple[Mapping[str, Any], ...], model: str, base_url: str | None) -> Mapping[str, Any]:
    """The first section that matches; an empty one if none does."""
    for section in models:
        match = section.get("match", "*")
        globs = (match,) if isinstance(match, str) else match
        if any(fnmatchcase(model, glob) for glob in globs) and _at_host(section.get("host"), base_url):
            return section
    return {}


def faults(options: Mapping[str, Any], thinking: Any, models: Any) -> Iterator[str]:
    """What is wrong with an adapter's declared data, one text each; for the loader."""
    yield from _option_faults("options", options)
    if isinstance(thinking, Mapping):
        yield from (f"thinking: {text}" for text in thinking_rule.faults(thinking))
    elif thinking is not None:
        yield "thinking must be a table"
    for number, section in enumerate(models or (), start=1):
        yield from (f"models[{number}]{text}" for text in _section_faults(section, thinking, options))


def _section_faults(section: Any, thinking: Any, declared: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(section, Mapping):
        yield " must be a table"
        return
    for key in section:
        if key not in ("match", "host", "thinking", "options"):
            yield f": unknown key {key!r}, known: match, host, thinking, options"
    match = section.get("match")
    if not (isinstance(match, str) or (isinstance(match, list | tuple) and match and all(isinstance(glob, str) for glob in match))):
        yield ".match must be a glob or a list of globs"
    options = section.get("options") or {}
    yield from (f".options: unknown option {name!r}" for name in options if name not in COMMON_OPTIONS and name not in declared)
    yield from _option_faults(".options", options)
    rule = section.get("thinking")
    if isinstance(rule, Mapping):
        yield from (f".thinking: {text}" for text in thinking_rule.faults({**thinking, **rule} if isinstance(thinking, Mapping) else rule))
    elif rule not in (None, False):
        yield ".thinking must be a table or false"


def _option_faults(where: str, options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        fault = COMMON_OPTIONS[name].fault(value) if name in COMMON_OPTIONS else None
        if fault:
            yield f"{where}.{name} {fault}"


def _rule(declared: Mapping[str, Any] | None, over: Any) -> ThinkingRule | None:
    if over is False or (declared is None and over is None):
        return None
    return compile_rule({**(declared or {}), **(over or {})})


def _at_host(wanted: str | None, base_url: str | None) -> bool:
    if wanted is None or base_url is None:
        return wanted is None
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return host == wanted or host.endswith(f".{wanted}") or parts.scheme == "mock" or host == "localhost" or _loopback(host)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
