"""Tool call deltas made whole: one index, one id and one name per call, arguments as text.

Providers leave out the index, start it at 1 or give 0 to all, repeat or empty id and name,
send a new id with each piece, arguments as objects or before the name. What belongs
together is told by id, else by index, else by position, else it goes on with the latest call.
"""

from __future__ import annotations

import secrets
from typing import Any

from gateway.chat import Json, dumps, loads


class Call:
    """One call of an answer; `parts` are its arguments so far, `merged` those that came as objects.

    `given` is the provider's id for it, `ident` the one that the client gets: `taken` ids are other calls'.
    """

    __slots__ = ("given", "held", "ident", "index", "kind", "merged", "minted", "name", "parts", "source")

    def __init__(self, index: int, source: int | None, ident: str | None, kind: str, *, taken: bool = False) -> None:
        self.index = index
        self.source = source
        self.minted = ident is None
        self.given = ident
        self.ident = f"call_{secrets.token_hex(12)}" if ident is None or taken else ident
        self.kind = kind
        self.name = ""
        self.parts: list[str] = []
        self.merged: Json | None = None
        self.held: Json = {}

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value."""
        if self.merged is not None:
            return True
        try:
            loads("".join(self.parts))
        except ValueError:
            return False
        return True


class ToolCalls:
    """The calls of one choice of a stream."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: list[Call] = []

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls if call.name]

    def take(self, deltas: list[Any]) -> tuple[list[Json], bool]:
        """The deltas to send on, and whether they are the given ones, untouched."""
        out: list[Json] = []
        same = True
        for position, delta in enumerate(deltas):
            if isinstance(delta, dict):
                healed = self._one(delta, position, len(deltas) > 1)
                same = same and healed is delta
                if healed is not None:
                    out.append(healed)
            else:
                same = False
        return out, same

    def goes_on(self, deltas: Any) -> bool:
        """Take the most ordinary delta, one piece of arguments for a known call; False: it is another, and `take` must see it."""
        if len(deltas) != 1 or len(deltas[0]) != 2:
            return False
        index, function = deltas[0]["index"], deltas[0]["function"]
        text = function["arguments"]
        if len(function) != 1 or text.__class__ is not str or index.__class__ is not int:
            return False
        call = self._latest(index, None)
        if call is None or call.index != index or not call.name or call.kind != "function":
            return False
        call.parts.append(text)
        return True

    def flush(self) -> list[Json]:
        """The deltas that complete the calls: arguments that came as objects, `{}` for none at all."""
        out = []
        for call in self.calls:
            if not call.name or (call.merged is None and any(part.strip() for part in call.parts)):
                continue
            text = dumps(call.merged or {}).decode() if call.kind == "function" else ""
            call.merged = None
            call.parts = [text]
            if text:
                out.append({"index": call.index, "function": {"arguments": text}})
        self.calls = [call for call in self.calls if call.name]
        return out

    def _one(self, delta: Json, position: int, several: bool) -> Json | None:
        kind = "custom" if isinstance(delta.get("custom"), dict) else "function"
        field = "input" if kind == "custom" else "arguments"
        part = delta.get(kind)
        if not isinstance(part, dict):
            part = {}
        ident, index = _ident(delta.get("id")), delta.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = None
        name = part.get("name")
        name = name if isinstance(name, str) else ""
        text, merge = _arguments(part.get(field))
        call = self._find(ident, index, name, bool(text or merge), position if several else None)
        if call is None:
            call = Call(len(self.calls), index, ident, kind, taken=any(other.given == ident for other in self.calls if ident))
            self.calls.append(call)
        if merge is not None:
            call.merged = _merged(call.merged or {}, merge)
        if text:
            call.parts.append(text)
        if call.name:
            return _continuation(delta, call, kind, part, field, text)
        if name:
            call.index = sum(1 for other in self.calls if other.name)  # those that never get a name are never sent: they take no place
        return _first(delta, call, kind, part, field, name)

    def _find(self, ident: str | None, index: int | None, name: str, brings: bool, position: int | None) -> Call | None:
        """The call that a delta goes on with; None: it begins a new one."""
        if ident is not None:
            same = [call for call in self.calls if ident in (call.given, call.ident)]
            known = next((call for call in same if call.source == index), same[0] if same else None)
            if known is not None and not self._is_another(known, index, name):
                return known
        latest = self._latest(index, position if ident is None else None)
        if latest is None or not name or not latest.name:
            if latest is None and ident is None and not name and self.calls:
                return self.calls[-1]  # the id came on index 0, the arguments come on index 1
            return None if latest is not None and ident is not None and index is None and latest.complete() else latest
        if ident is not None and not latest.minted:
            # a new id with each piece of one call, or one index for all calls
            return None if index is None or name != latest.name or latest.complete() else latest
        return None if brings and (name != latest.name or index is None) and latest.complete() else latest

    @staticmethod
    def _is_another(known: Call, index: int | None, name: str) -> bool:
        """Whether a delta with a known id begins a call all the same: its own index and a name, where that call has its arguments."""
        return bool(name and known.name) and index is not None and known.source is not None and index != known.source and known.complete()

    def _latest(self, index: int | None, position: int | None) -> Call | None:
        if index is not None:
            return next((call for call in reversed(self.calls) if call.source == index), None)
        if position is not None:
            return self.calls[position] if position < len(self.calls) else None
        return self.calls[-1] if self.calls else None


def _ident(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _arguments(value: Any) -> tuple[str, Json | None]:
    """Arguments as text, or as the object to be merged."""
    if isinstance(value, str):
        return value, None
    if isinstance(value, dict):
        return "", value
    return ("", None) if value is None else (dumps(value).decode(), None)


def _merged(into: Json, new: Json) -> Json:
    out = dict(into)
    for key, value in new.items():
        old = out.get(key)
        out[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _first(delta: Json, call: Call, kind: str, part: Json, field: str, name: str) -> Json | None:
    """The delta that introduces a call; None while its name is not known."""
    if not name:
        call.held |= {key: value for key, value in delta.items() if key not in ("index", "id", "type", kind)}
        return None
    call.name = name
    call.kind = kind
    text = "".join(call.parts)
    whole = delta.get("id") == call.ident and delta.get("index") == call.index and delta.get("type") == kind
    if whole and not call.held and part.get(field) == text:
        return delta
    extras = {key: value for key, value in delta.items() if key not in ("index", "id", "type", kind)}
    return {"index": call.index, "id": call.ident, "type": kind, kind: {**part, "name": name, field: text}, **call.held, **extras}


def _continuation(delta: Json, call: Call, kind: str, part: Json, field: str, text: str) -> Json:
    """A later delta of a call: its index and a piece of the arguments, without id and name."""
    if "id" not in delta and "name" not in part and delta.get("index") == call.index and isinstance(part.get(field), str):
        return delta
    rest = {key: value for key, value in part.items() if key != "name"}
    extras = {key: value for key, value in delta.items() if key not in ("index", "id", "type", kind)}
    return {"index": call.index, call.kind: {**rest, field: text}, **extras}


def without_odd_calls(message: Json) -> bool:
    """Take calls out of a message or delta that are none; True: there were some. Null is legal for neither (SGLang, DeepSeek on Azure)."""
    odd = [key for key, kind in (("tool_calls", list), ("function_call", dict)) if key in message and not isinstance(message[key], kind)]
    for key in odd:
        del message[key]
    return bool(odd)
