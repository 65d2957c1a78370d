"""How one model is told to think or not: the adapter's data `thinking`, compiled once.

    thinking = {
      off = { thinking = { type = "disabled" } },   -- the fields that say it; or "omit": no field at all;
                                                    -- or a level: it cannot be turned off, this is the least
      on = { thinking = { type = "enabled" } },     -- the same for on, and beside each level; left out: "omit";
                                                    -- "off": it cannot think, whatever is wished
      effort = "reasoning_effort",                  -- the field that takes the level; left out: a level is an on
      levels = { low = "low", medium = "high" },    -- level -> its value there; one that is not named takes the
                                                    -- nearest that is (of two the lower); left out: as they are;
                                                    -- fields instead of a value: these and no others
      default = "on",                               -- what the model does when nothing is said
      with_tools = "off",                           -- replaces the wish where it would think and the request has tools
      unstreamed = "off",                           -- the wish of a plain request that says nothing
      refuses = { "temperature" },                  -- parameters that are an error while it thinks: removed then
      always = true,                                -- the fields of `off` make it think less, not nothing
      keeps_effort = true,                          -- beside `off` the field of `effort` stays as the client sent it
      on_level = "medium",                          -- a mere on is this level where the client left the field of `effort` out
      keeps = { "reasoning.max_tokens" },           -- beside a mere on these stay as the client sent them
      beside = { ["thinking.display"] = "full" },   -- set beside on and levels where it is missing, if the client said
                                                    -- its wish in other words than the provider's
      room = "max_tokens",                          -- bounds thinking and answer together: raised by the number in the
                                                    -- field of `effort` where it is not larger
      drop = { "thinking.budget_tokens" },          -- other vendors' details: never sent
    }

Keys of `off` and `on` may be paths (`["chat_template_kwargs.enable_thinking"] = false`);
a null says that the field must not be there. `thinking = false` in a section of `models`:
no rule for these. Levels are those of `gateway.adapters.thinking`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.adapters import paths
from gateway.adapters.hooks import thaw
from gateway.adapters.paths import Path
from gateway.adapters.thinking import LEVELS, WISHES, wish_fields
from gateway.chat import Json

Fields = tuple[tuple[Path, Any], ...]

KEYS = (
    "off",
    "on",
    "effort",
    "levels",
    "default",
    "with_tools",
    "unstreamed",
    "refuses",
    "always",
    "keeps_effort",
    "on_level",
    "keeps",
    "beside",
    "room",
    "drop",
)


@dataclass(frozen=True, slots=True)
class Wording:
    """What one wish becomes: `fields` are set, `clear` must not be there. `label`: how it is reported; `thinks`: whether the model will.

    `spares` stay as the client wrote them, `least` are set where they are missing, `beside`
    too, but only if something else had to be changed.
    """

    label: str
    thinks: bool
    fields: Fields
    clear: tuple[Path, ...]
    spares: tuple[Path, ...] = ()
    least: Fields = ()
    beside: Fields = ()

    def keeps(self, path: Path) -> bool:
        """Whether the wish's field at `path` is one that this wording writes, in whole or in part."""
        written = [own for own, _ in (*self.fields, *self.least)]
        return any([path == own[: len(path)] or own == path[: len(own)] for own in (*written, *self.spares)])


@dataclass(frozen=True, slots=True)
class ThinkingRule:
    wordings: Mapping[str, Wording]
    default: str
    with_tools: str | None
    unstreamed: str | None
    refuses: tuple[Path, ...]
    room: tuple[Path, Path] | None = None
    """what bounds thinking and answer together, and the thinking's own number"""

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
        for path, value in (*wording.least, *(wording.beside if changed else ())):
            if paths.get(body, path) is None:
                changed |= paths.put(body, path, value)
        return changed | self._make_room(body)

    def _make_room(self, body: Json) -> bool:
        if self.room is None:
            return False
        bound, budget = (paths.get(body, path) for path in self.room)
        if type(bound) is not int or type(budget) is not int or bound > budget:
            return False
        return paths.put(body, self.room[0], bound + budget)


def compile_rule(declared: Mapping[str, Any]) -> ThinkingRule:
    """The rule of checked data (`faults` found nothing)."""
    effort = paths.parse(declared["effort"]) if declared.get("effort") else None
    drop = tuple(paths.parse(text) for text in declared.get("drop") or ())
    on = _fields(declared.get("on"))
    wordings = {level: _level(declared, level, effort, on, drop) for level in LEVELS}
    wordings["off"] = _off(declared, effort, wordings, drop)
    if declared.get("on") == "off":
        wordings = dict.fromkeys(WISHES, wordings["off"])
    else:
        wordings["on"] = wordings[declared["on"]] if declared.get("on") in LEVELS else _on(declared, effort, on, drop)
    return ThinkingRule(
        wordings=wordings,
        default=_default(declared),
        with_tools=declared.get("with_tools"),
        unstreamed=declared.get("unstreamed"),
        refuses=tuple(paths.parse(text) for text in declared.get("refuses") or ()),
        room=(paths.parse(declared["room"]), effort) if declared.get("room") and effort else None,
    )


def _on(declared: Mapping[str, Any], effort: Path | None, on: Fields, drop: tuple[Path, ...]) -> Wording:
    level = declared.get("on_level")
    least: Fields = ((effort, _value(declared, level)[1]),) if level and effort else ()
    spares = tuple(paths.parse(text) for text in declared.get("keeps") or ())
    return Wording("on", True, on, drop, spares, least, _fields(declared.get("beside")))


def _default(declared: Mapping[str, Any]) -> str:
    return "off" if declared.get("on") == "off" else str(declared.get("default") or "on")


def _level(declared: Mapping[str, Any], level: str, effort: Path | None, on: Fields, drop: tuple[Path, ...]) -> Wording:
    beside = _fields(declared.get("beside"))
    if effort is None:
        return Wording("on", True, on, drop, beside=beside)
    nearest, value = _value(declared, level)
    if isinstance(value, Mapping):
        return Wording(nearest, True, _fields(value), drop, beside=beside)
    return Wording(str(value), True, (*on, (effort, value)), drop, beside=beside)


def _value(declared: Mapping[str, Any], level: str) -> tuple[str, Any]:
    """The level that is taken for a level, and what the field of `effort` takes for it."""
    levels = declared.get("levels") or {level: level for level in LEVELS}
    nearest = _nearest(level, levels)
    return nearest, levels[nearest]


def _off(declared: Mapping[str, Any], effort: Path | None, wordings: Mapping[str, Wording], drop: tuple[Path, ...]) -> Wording:
    off = declared["off"]
    if off in LEVELS:
        return replace(wordings[off], beside=())
    spares = (effort,) if effort and declared.get("keeps_effort") else ()
    clear = (*drop, effort) if effort and not spares else drop
    if off == "omit":
        thinks = _default(declared) == "on"
        return Wording("on" if thinks else "off", thinks, (), clear)
    said = _fields(off)
    own = [path for path, _ in said]
    nulls = [paths.parse(key) for key, value in off.items() if value is None]
    return Wording("off", bool(declared.get("always")), said, (*nulls, *(path for path in clear if path not in own)), spares)


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
        elif said != "omit" and said not in LEVELS and not isinstance(said, Mapping) and (key, said) != ("on", "off"):
            yield f"{key} must be fields, a level or 'omit'"
    if effort is not None and not isinstance(effort, str):
        yield "effort must be the path of a field"
    if levels is not None and (not isinstance(levels, Mapping) or not levels or any(level not in LEVELS for level in levels)):
        yield f"levels must map some of {', '.join(LEVELS)}"
    for key, known in (("default", ("on", "off")), ("with_tools", WISHES), ("unstreamed", WISHES)):
        if declared.get(key) is not None and declared[key] not in known:
            yield f"{key} must be one of {', '.join(known)}"
    yield from _more_faults(declared, effort)
    for key in ("refuses", "keeps", "drop"):
        if not _names(declared.get(key) or ()):
            yield f"{key} must be a list of names"


def _more_faults(declared: Mapping[str, Any], effort: Any) -> Iterator[str]:
    if declared.get("on_level") is not None and (declared["on_level"] not in LEVELS or not effort):
        yield f"on_level must be one of {', '.join(LEVELS)} and needs `effort`, the field that takes it"
    if declared.get("room") is not None and not (isinstance(declared["room"], str) and effort):
        yield "room must be the path of a field and needs `effort`"
    for key in ("always", "keeps_effort"):
        if declared.get(key) not in (None, True, False):
            yield f"{key} must be true or false"
    if not isinstance(declared.get("beside") or {}, Mapping):
        yield "beside must be fields"


def _names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _nearest(level: str, values: Mapping[str, Any]) -> str:
    at = LEVELS.index(level)
    return min(values, key=lambda other: (abs(LEVELS.index(other) - at), LEVELS.index(other)))


def _fields(said: Any) -> Fields:
    if not isinstance(said, Mapping):
        return ()
    return tuple((paths.parse(key), thaw(value)) for key, value in said.items() if value is not None)
