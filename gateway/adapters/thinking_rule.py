"""How one model is told to think or not: the adapter's data `thinking`, compiled once.

    thinking = {
      off = { thinking = { type = "disabled" } },   -- the fields that say it; or "omit": no field at all;
                                                    -- or a level: it cannot be turned off, this is the least
      on = { thinking = { type = "enabled" } },     -- the same for on, and beside each level; left out: "omit"
      effort = "reasoning_effort",                  -- the field that takes the level; left out: a level is an on
      levels = { low = "low", medium = "high" },    -- level -> its value there; one that is not named takes the
                                                    -- nearest that is (of two the lower); left out: as they are
      default = "on",                               -- what the model does when nothing is said
      with_tools = "off",                           -- replaces the wish where it would think and the request has tools
      unstreamed = "off",                           -- the wish of a plain request that says nothing
      refuses = { "temperature" },                  -- parameters that are an error while it thinks: removed then
      drop = { "thinking.budget_tokens" },          -- other vendors' details: never sent
    }

Keys of `off` and `on` may be paths (`["chat_template_kwargs.enable_thinking"] = false`);
a null says that the field must not be there. `thinking = false` in a section of `models`:
no rule for these. Levels are those of `gateway.adapters.thinking`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.adapters import paths
from gateway.adapters.hooks import thaw
from gateway.adapters.paths import Path
from gateway.adapters.thinking import LEVELS, WISHES, wish_fields
from gateway.chat import Json

Fields = tuple[tuple[Path, Any], ...]

KEYS = ("off", "on", "effort", "levels", "default", "with_tools", "unstreamed", "refuses", "drop")


@dataclass(frozen=True, slots=True)
class Wording:
    """What one wish becomes: `fields` are set, `clear` must not be there. `label`: how it is reported; `thinks`: whether the model will."""

    label: str
    thinks: bool
    fields: Fields
    clear: tuple[Path, ...]

    def keeps(self, path: Path) -> bool:
        """Whether the wish's field at `path` is one that this wording writes, in whole or in part."""
        return any([path == own[: len(path)] or own == path[: len(own)] for own, _ in self.fields])


@dataclass(frozen=True, slots=True)
class ThinkingRule:
    wordings: Mapping[str, Wording]
    default: str
    with_tools: str | None
    unstreamed: str | None
    refuses: tuple[str, ...]

    def write(self, body: Json, wish: str) -> bool:
        """Say `wish` in this model's words and in no others. False: the body said exactly that already."""
        wording = self.wordings[wish]
        changed = False
        for path in wish_fields(body):
            if not wording.keeps(path):
                changed |= paths.remove(body, path)
        for path in wording.clear:
            if path[0] in body:
                changed |= paths.remove(body, path)
        for path, value in wording.fields:
            changed |= paths.put(body, path, value)
        return changed


def compile_rule(declared: Mapping[str, Any]) -> ThinkingRule:
    """The rule of checked data (`faults` found nothing)."""
    effort = paths.parse(declared["effort"]) if declared.get("effort") else None
    drop = tuple(paths.parse(text) for text in declared.get("drop") or ())
    on = _fields(declared.get("on"))
    wordings = {level: _level(declared, level, effort, on, drop) for level in LEVELS}
    wordings["off"] = _off(declared, effort, wordings, drop)
    wordings["on"] = wordings[declared["on"]] if declared.get("on") in LEVELS else Wording("on", True, on, drop)
    return ThinkingRule(
        wordings=wordings,
        default=declared.get("default", "on"),
        with_tools=declared.get("with_tools"),
        unstreamed=declared.get("unstreamed"),
        refuses=tuple(declared.get("refuses") or ()),
    )


def _level(declared: Mapping[str, Any], level: str, effort: Path | None, on: Fields, drop: tuple[Path, ...]) -> Wording:
    if effort is None:
        return Wording("on", True, on, drop)
    levels = declared.get("levels") or {level: level for level in LEVELS}
    value = levels[_nearest(level, levels)]
    return Wording(str(value), True, (*on, (effort, value)), drop)


def _off(declared: Mapping[str, Any], effort: Path | None, wordings: Mapping[str, Wording], drop: tuple[Path, ...]) -> Wording:
    off = declared["off"]
    if off in LEVELS:
        return wordings[off]
    clear = (*drop, effort) if effort else drop
    if off == "omit":
        return Wording("off", declared.get("default", "on") == "on", (), clear)
    said = _fields(off)
    own = [path for path, _ in said]
    nulls = [paths.parse(key) for key, value in off.items() if value is None]
    return Wording("off", False, said, (*nulls, *(path for path in clear if path not in own)))


def faults(declared: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with declared data, one text each."""
    for key in declared:
        if key not in KEYS:
            yield f"unknown key {key!r}, known: {', '.join(KEYS)}"
    effort, levels = declared.get("effort"), declared.get("levels")
    if "off" not in declared:
        yield "off is missing: the fields that turn thinking off, a level, or 'omit'"
    for key in ("off", "on"):
        said = declared.get(key, "omit")
        if said in LEVELS and not effort:
            yield f"{key} = {said!r} needs `effort`, the field that takes a level"
        elif said != "omit" and said not in LEVELS and not isinstance(said, Mapping):
            yield f"{key} must be fields, a level or 'omit'"
    if effort is not None and not isinstance(effort, str):
        yield "effort must be the path of a field"
    if levels is not None and (not isinstance(levels, Mapping) or not levels or any(level not in LEVELS for level in levels)):
        yield f"levels must map some of {', '.join(LEVELS)}"
    for key, known in (("default", ("on", "off")), ("with_tools", WISHES), ("unstreamed", WISHES)):
        if declared.get(key) is not None and declared[key] not in known:
            yield f"{key} must be one of {', '.join(known)}"
    for key in ("refuses", "drop"):
        if not _names(declared.get(key) or ()):
            yield f"{key} must be a list of names"


def _names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _nearest(level: str, values: Mapping[str, Any]) -> str:
    at = LEVELS.index(level)
    return min(values, key=lambda other: (abs(LEVELS.index(other) - at), LEVELS.index(other)))


def _fields(said: Any) -> Fields:
    if not isinstance(said, Mapping):
        return ()
    return tuple((paths.parse(key), thaw(value)) for key, value in said.items() if value is not None)
