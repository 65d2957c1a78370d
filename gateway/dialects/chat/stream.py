"""The healer of chat streams: whatever a compatible provider sends, clients get the one grammar.

    every chunk   the same id, created and model; choices with index, delta and finish_reason
    per choice    the role first, then content, then exactly one finish
    at the end    one usage chunk, if the client asked for it

What is right already keeps its bytes. A finish is held back until nothing but usage and the
end can follow, because some providers put one on every chunk.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import msgspec

from gateway import failures
from gateway.chat import Chunk, Json, dumps
from gateway.dialects.chat.calls import ToolCalls, without_odd_calls
from gateway.dialects.chat.content import Details, alias_text, flatten, has_content
from gateway.dialects.chat.finish import finish_reason
from gateway.dialects.chat.usage import is_normal, normal_usage
from gateway.dialects.events import broken, paired

_decode = msgspec.json.Decoder().decode
_OBJECT = "chat.completion.chunk"
_MISSING = object()
_PLAIN = frozenset(("content", "reasoning_content", "refusal"))
_ACTED_ON = frozenset(("error", "base_resp", "obfuscation"))
_TIERS = frozenset((None, "auto", "default", "flex", "scale", "priority", "fast"))
_LF = 10  # a number is found in bytes five times as fast as a text of one byte
_NULL_USAGE = b',"usage":null}'


class _Choice:
    """What is known about one choice of the stream."""

    __slots__ = ("calls", "content", "details", "finish", "held", "index", "legacy", "started")

    def __init__(self, index: int) -> None:
        self.index = index
        self.started = False
        self.content = False
        self.legacy = False
        self.calls = ToolCalls()
        self.details = Details()
        self.finish: str | None = None
        self.held: Chunk | None = None


class ChatStream:
    """Turns the events of one chat stream into chunks that are right.

    done         the stream's [DONE] came
    finished     every choice that began has its finish
    has_content  text, reasoning, a tool call or a refusal came
    skipped      events that were neither JSON objects nor anything known

    `model` is what chunks say where the provider does not; `include_usage` the client's wish.
    A chunk's `content` says whether it carries some. Raises UpstreamError for an error inside the stream.
    """

    def __init__(self, model: str, *, include_usage: bool = False, excludes_reasoning: bool = False) -> None:
        self.done = False
        self.has_content = False
        self.skipped = 0
        self._include_usage = include_usage
        self._excludes_reasoning = excludes_reasoning
        self._id = ""
        self._created = 0
        self._model = ""
        self._fallback_model = model
        self._choices: dict[int, _Choice] = {}
        self._usage: Json | None = None
        self._usage_chunk: tuple[Json, bytes | None] | None = None
        self._timings: Any = None
        self._halves: dict[tuple[int, str], str] = {}
        self._ended = False

    @property
    def finished(self) -> bool:
        return bool(self._choices) and all(choice.finish is not None for choice in self._choices.values())

    @property
    def empty(self) -> bool:
        """No content came, and no finish that explains it (`length`, `content_filter`)."""
        return not self.has_content and all(choice.finish in (None, "stop") for choice in self._choices.values())

    @property
    def tools(self) -> list[str]:
        """Names of the tools that were called."""
        return [name for choice in self._choices.values() for name in choice.calls.names]

    @property
    def usage(self) -> Json | None:
        """The last usage that came, in OpenAI's form; None: none did."""
        if self._usage is None:
            return None
        return normal_usage(self._usage, excludes_reasoning=self._excludes_reasoning, timings=self._timings) or None

    def feed(self, data: bytes, name: str | None = None) -> list[Chunk]:
        """The chunks that one event gives: its data, and its name if it has one."""
        if self.done:
            return []
        try:
            obj = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._odd(data, name)
        if obj.__class__ is not dict:
            return self._odd_value(obj)
        if name == "error" and not obj.get("error"):
            raise failures.classify(None, {}, obj).failure()
        if _LF in data:
            return self._heal(obj, None)
        choices = obj.get("choices")
        if (
            choices.__class__ is list
            and len(choices) == 1
            and obj.get("id") == self._id
            and self._id
            and obj.get("usage") is None
            and _ACTED_ON.isdisjoint(obj)
        ):
            content = self._ordinary(obj, choices[0])
            if content is not None:
                if ("usage" in obj) is not self._include_usage:
                    data = _with_usage(obj, data) if self._include_usage else _without_usage(obj, data)
                return [Chunk(data, content=content, json=obj)]
        return self._heal(obj, data)

    def chunk(self, obj: Json) -> list[Chunk]:
        """The same for an event that is parsed already, also behind [DONE]; the value is taken over and may be changed."""
        return self._heal(obj, None)

    def finish(self) -> list[Chunk]:
        """The end of the stream: finishes that were held back, and usage.

        A finish that never came is made up only after a [DONE], behind content: a stream that
        just stops was cut (`finished` stays False).
        """
        if self._ended:
            return []
        self._ended = True
        out: list[Chunk] = []
        for choice in self._choices.values():
            if choice.finish is None and self.done and choice.content:
                flushed = choice.calls.flush()
                if flushed:
                    out.append(self._made(choice.index, {"tool_calls": flushed}, None))
                self._hold(choice, finish_reason("stop", called=bool(choice.calls.calls), legacy=choice.legacy))
        out += self._release()
        usage = self._usage_event() if self._include_usage else None
        return out if usage is None else [*out, usage]

    # --- the ordinary chunk ------------------------------------------------------------------

    def _ordinary(self, obj: Json, choice: Any) -> bool | None:
        """Whether an ordinary chunk has content; None: it is not ordinary and must be looked at closely."""
        try:
            if choice["finish_reason"] is not None or obj["model"] != self._model or obj["object"] != _OBJECT or obj.get("service_tier") not in _TIERS:
                return None
            state, created, delta = self._choices[choice["index"]], obj["created"], choice["delta"]
            if created != self._created or created.__class__ is not int or not state.started or "usage" in choice:
                return None
            content = False
            for key, value in delta.items():
                if key not in _PLAIN and (key != "role" or value != "assistant"):
                    return True if key == "tool_calls" and len(delta) == 1 and state.calls.goes_on(value) else None
                if value:
                    if value.__class__ is not str:
                        return None
                    content = content or key != "role"
        except (KeyError, TypeError, AttributeError):
            return None
        if content:
            state.content = self.has_content = True
        return content

    # --- everything else ---------------------------------------------------------------------

    def _heal(self, obj: Json, data: bytes | None) -> list[Chunk]:
        verdict = failures.in_stream_error(obj)
        if verdict is not None:
            raise verdict.failure()
        same = self._top(obj)
        choices = obj.get("choices")
        if not isinstance(choices, list) or not choices:
            return self._without_choices(obj, data if same else None)
        kept: list[Json] = []
        for position, choice in enumerate(choices):
            if not isinstance(choice, dict):
                continue
            before = bool(choice.get("delta"))
            same = self._heal_choice(self._state(choice, position), choice) and same
            if choice["delta"] or choice["finish_reason"] is not None or not before:  # else all of it is held back
                kept.append(choice)
        if not kept:
            return []
        same = self._envelope(obj) and same and len(kept) == len(choices)
        obj["choices"] = kept
        if all(choice["finish_reason"] is None for choice in kept):
            return self._given(obj, data if same else None)
        if len(kept) == 1 and not _fills(kept[0]["delta"]):
            self._choices[kept[0]["index"]].held = self._chunk(obj, data if same else None, False)
            return []
        return self._given_and_held(obj, kept)

    def _given(self, obj: Json, data: bytes | None) -> list[Chunk]:
        """The chunk to send, with the role in each choice's first one."""
        content = False
        for choice in obj["choices"]:
            state = self._choices[choice["index"]]
            if not state.started and _introduce(choice):
                data = None
            state.started = True
            if has_content(choice["delta"]):
                content = state.content = self.has_content = True
        return [self._chunk(obj, data, content)]

    def _given_and_held(self, obj: Json, kept: list[Json]) -> list[Chunk]:
        """The chunk without its finishes, which are held back."""
        given = []
        for choice in kept:
            reason = choice["finish_reason"]
            if reason is not None:
                rest = {key: value for key, value in choice.items() if key not in ("index", "delta", "logprobs", "finish_reason")}
                self._hold(self._choices[choice["index"]], reason, rest)
                choice["finish_reason"] = None
            if reason is None or _fills(choice["delta"]):
                given.append(choice)
        obj["choices"] = given
        return self._given(obj, None) if given else []

    def _without_choices(self, obj: Json, data: bytes | None) -> list[Chunk]:
        """Usage, or something that no client needs (Azure's filter results, a ping)."""
        if self._usage_chunk is not None and self._usage_chunk[0] is obj:
            self._usage_chunk = (obj, data)
        return []

    def _top(self, obj: Json) -> bool:
        """Mend what stands beside the choices; True: nothing was wrong."""
        same = True
        if "obfuscation" in obj:
            del obj["obfuscation"]
            same = False
        if "error" in obj:  # empty, or it would have been raised
            del obj["error"]
            same = False
        if obj.get("service_tier") not in _TIERS:  # strict clients refuse a word that OpenAI does not have
            del obj["service_tier"]
            same = False
        if obj.get("timings"):
            self._timings = obj["timings"]
        return self._take_usage(obj) and same

    def _take_usage(self, obj: Json) -> bool:
        usage = obj.get("usage", _MISSING)
        if usage is _MISSING or (usage is None and self._include_usage):
            return True
        if isinstance(usage, dict) and usage:
            self._usage = usage
            if not obj.get("choices"):
                self._usage_chunk = (obj, None)
                return True
        if self._include_usage:
            obj["usage"] = None
        else:
            del obj["usage"]
        return False

    def _envelope(self, obj: Json) -> bool:
        """Fill id, object, created and model, and keep them constant; True: they were right."""
        if not self._id:
            self._id = _text(obj.get("id")) or f"chatcmpl-{secrets.token_hex(12)}"
            self._created = _moment(obj.get("created"))
            self._model = _text(obj.get("model")) or self._fallback_model
        same = True
        for key, value in (("id", self._id), ("object", _OBJECT), ("created", self._created), ("model", self._model)):
            if obj.get(key) != value or obj[key].__class__ is not value.__class__:
                obj[key] = value
                same = False
        return same

    def _state(self, choice: Json, position: int) -> _Choice:
        index = choice.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = position
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice(index)
        return state

    def _heal_choice(self, state: _Choice, choice: Json) -> bool:
        """Mend one choice in place; True: nothing was wrong."""
        same = choice.get("index") == state.index and isinstance(choice.get("delta"), dict) and "finish_reason" in choice
        choice["index"] = state.index
        usage = choice.pop("usage", None)
        if usage is not None:  # older Kimi models
            same = False
            if isinstance(usage, dict):
                self._usage = usage
        if not isinstance(choice.get("delta"), dict):
            choice["delta"] = self._from_message(state, choice)
        delta: Json = choice["delta"]
        same = self._heal_delta(state, delta) and same
        reason = finish_reason(choice.get("finish_reason"), called=bool(state.calls.calls), legacy=state.legacy)
        if reason is not None:
            _append(delta, state.calls.flush())
            reason = finish_reason(choice["finish_reason"], called=bool(state.calls.calls), legacy=state.legacy)
            state.finish = reason
        if choice.get("finish_reason", _MISSING) != reason:
            choice["finish_reason"] = reason
            same = False
        return same

    def _from_message(self, state: _Choice, choice: Json) -> Json:
        """A delta for a choice that has none: from a whole message, unless that repeats what came."""
        message = choice.pop("message", None)
        return dict(message) if isinstance(message, dict) and not state.content else {}

    def _heal_delta(self, state: _Choice, delta: Json) -> bool:
        same = True
        if delta.get("role", "assistant") != "assistant":
            del delta["role"]
            same = False
        if without_odd_calls(delta):
            same = False
        if flatten(delta):
            same = False
        details = delta.get("reasoning_details")
        told = state.details.new_in(delta) if details else ""
        if details is not delta.get("reasoning_details"):
            same = False
        if not delta.get("reasoning_content"):
            text = alias_text(delta) or told or (delta["thinking"] if isinstance(delta.get("thinking"), str) else "")
            if text:
                delta["reasoning_content"] = text
                same = False
        calls = delta.get("tool_calls")
        if isinstance(calls, list) and calls:
            healed, untouched = state.calls.take(calls)
            if not untouched:
                same = False
                delta["tool_calls"] = healed
                if not healed:
                    del delta["tool_calls"]
        function = delta.get("function_call")
        if isinstance(function, dict):
            state.legacy = True
            arguments = function.get("arguments", "")
            if not isinstance(arguments, str):
                function["arguments"] = "" if arguments is None else dumps(arguments).decode()
                same = False
        return same

    # --- what is held back -------------------------------------------------------------------

    def _hold(self, state: _Choice, reason: str | None, extras: Json | None = None) -> None:
        state.finish = reason
        state.held = self._made(state.index, {}, reason, extras)

    def _release(self) -> list[Chunk]:
        out = []
        for _, state in sorted(self._choices.items()):
            held, state.held = state.held, None
            if held is None:
                continue
            if not state.started and _introduce(held.json()["choices"][0]):
                held = self._chunk(held.json(), None, False)
            state.started = True
            out.append(held)
        return out

    def _made(self, index: int, delta: Json, reason: str | None, extras: Json | None = None) -> Chunk:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason, **(extras or {})}
        obj = {"id": self._id, "object": _OBJECT, "created": self._created, "model": self._model, "choices": [choice]}
        return self._chunk(obj, None, bool(delta))

    def _usage_event(self) -> Chunk | None:
        usage = self.usage
        if usage is None:
            return None
        obj, data = self._usage_chunk or ({}, None)
        if not (self._envelope(obj) and is_normal(obj.get("usage") or {}, usage) and obj.get("choices") == []):
            data = None
            obj = {**obj, "choices": [], "usage": usage}
        return self._chunk(obj, data, False)

    def _chunk(self, obj: Json, data: bytes | None, content: bool) -> Chunk:
        if self._include_usage and "usage" not in obj:
            data = _with_usage(obj, dumps(obj) if data is None else data)
        return Chunk(dumps(obj) if data is None else data, content=content, json=obj)

    # --- what is no JSON object --------------------------------------------------------------

    def _odd(self, data: bytes, name: str | None) -> list[Chunk]:
        text = data.strip()
        if name == "error":
            raise failures.classify(None, {}, text).failure()
        if text.startswith(b"[DONE"):
            self.done = True
            return []
        if not text:
            return []
        try:  # half a surrogate pair, a raw control character, a broken character: json takes what msgspec refuses
            value = json.loads(text.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            lines = text.split(b"\n")
            if len(lines) > 1:  # a provider that forgets the blank line between its events
                return [chunk for line in lines for chunk in self.feed(line)]
            if text.startswith(b"{") and not self.finished:
                raise broken() from None
            self.skipped += 1
            return []
        return self._odd_value(value if not isinstance(value, dict) else self._whole_text(value))

    def _odd_value(self, value: Any) -> list[Chunk]:
        if value is None:
            return []
        if isinstance(value, dict):
            return self._heal(value, None)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            return [chunk for item in value for chunk in self._heal(item, None)]
        self.skipped += 1
        return []

    def _whole_text(self, value: Json) -> Json:
        """Join the halves of characters that were cut between two chunks, and replace what stays half."""
        choices = value.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                continue
            for key in [key for key in delta if isinstance(delta[key], str)]:
                text = self._halves.pop((position, key), "") + delta[key]
                if text and "\ud800" <= text[-1] <= "\udbff":
                    self._halves[position, key], text = text[-1], text[:-1]
                delta[key] = text
        whole: Json = paired(value)
        return whole


def _with_usage(obj: Json, data: bytes) -> bytes:
    """A chunk's text with `"usage":null`, which every chunk before the one with the usage has where that was asked for."""
    obj["usage"] = None
    return data.rstrip()[:-1] + _NULL_USAGE


def _without_usage(obj: Json, data: bytes) -> bytes:
    """A chunk's text without its `"usage":null`."""
    del obj["usage"]
    if data.endswith(_NULL_USAGE):  # the last brace is the object's own, so these bytes are its last member
        return data[: -len(_NULL_USAGE)] + b"}"
    return dumps(obj)


def _introduce(choice: Json) -> bool:
    """Put the role into a choice's first delta; True: it was not there."""
    delta = choice["delta"]
    if delta.get("role") == "assistant":
        return False
    choice["delta"] = {"role": "assistant", **{key: value for key, value in delta.items() if key != "role"}}
    return True


def _fills(delta: Json) -> bool:
    """Whether a delta holds more than the role and empty values."""
    return any(value for key, value in delta.items() if key != "role")


def _append(delta: Json, flushed: list[Json]) -> None:
    """Add the last pieces of arguments to the deltas of their calls, or as further ones."""
    for piece in flushed:
        calls = delta.setdefault("tool_calls", [])
        mine = next((call for call in calls if call["index"] == piece["index"] and "function" in call), None)
        if mine is None:
            calls.append(piece)
        else:
            mine["function"] = {**mine["function"], "arguments": mine["function"].get("arguments", "") + piece["function"]["arguments"]}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _moment(value: Any) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1:
        return int(value)
    return int(time.time())
