"""Streams as real providers send them, most of them off the specification: read directly, many break one SDK or another (measured 2026-11)."""

from __future__ import annotations

import json
from typing import Any

from upstream_double import Item, answer, chunk, delta, event_bytes, finish, role, tool_call, usage

Json = dict[str, Any]

ARGUMENTS = '{"city":"Paris"}'
_PARTS = ('{"city"', ':"Paris"}')


def _without(value: Json, *names: str) -> Json:
    return {key: inner for key, inner in value.items() if key not in names}


def _choice(value: Json, **more: Any) -> Json:
    """The chunk with fields of its choice replaced; `...` takes a field out."""
    choice = {**value["choices"][0], **more}
    return {**value, "choices": [{key: inner for key, inner in choice.items() if inner is not ...}]}


def _calls(first: Json, *later: Json) -> list[Item]:
    return [role(), *(chunk({"tool_calls": [part]}) for part in (first, *later)), finish("tool_calls"), "[DONE]"]


def _bytes(*items: Item) -> bytes:
    return b"".join(map(event_bytes, items))


_HELLO = answer("Hel", "lo")
_FIRST = tool_call("get_weather", _PARTS[0])
_WHOLE = tool_call("get_weather", ARGUMENTS)

TEXTS: dict[str, list[Item]] = {
    "clean": _HELLO,
    "no role": [delta("Hel"), delta("lo"), finish(), "[DONE]"],
    "no DONE": _HELLO[:-1],
    "no id, object, created or model": [_without(c, "id", "object", "created", "model") if isinstance(c, dict) else c for c in _HELLO],
    "another id in every chunk": [{**c, "id": f"x{at}", "model": f"m{at}"} if isinstance(c, dict) else c for at, c in enumerate(_HELLO)],
    "no index of the choice": [_choice(c, index=...) if isinstance(c, dict) else c for c in _HELLO],
    "null delta at the end": [role(), delta("Hello"), _choice(finish(), delta=None), "[DONE]"],
    "no delta at the end": [role(), delta("Hello"), _choice(finish(), delta=...), "[DONE]"],
    "an empty finish reason in every chunk": [role(), _choice(delta("Hello"), finish_reason=""), finish(), "[DONE]"],
    "the finish reason twice": [role(), delta("Hello"), finish(), finish(), "[DONE]"],
    "the finish reason with the last text": [role(), delta("Hel"), chunk({"content": "lo"}, "stop"), "[DONE]"],
    "a finish reason of its own": [role(), delta("Hello"), finish("eos"), "[DONE]"],
    "an empty first event of the content filter": [{**chunk({}), "choices": [], "prompt_filter_results": []}, *_HELLO],
    "null choices in the usage chunk": [*_HELLO[:-1], {**usage(), "choices": None}, "[DONE]"],
    "usage that nobody asked for": answer("Hel", "lo", usage_chunk=True),
    "data: null": [role(), b"data: null\n\n", delta("Hello"), finish(), "[DONE]"],
    "empty data": [role(), b"data:\n\n", delta("Hello"), finish(), "[DONE]"],
    "ping events": [("ping", {}), role(), ("ping", {"type": "ping"}), delta("Hello"), finish(), "[DONE]"],
    "comments": [b": hello\n\n", role(), b": wait\n\n", delta("Hello"), finish(), "[DONE]"],
    "carriage returns": [_bytes(*_HELLO).replace(b"\n", b"\r\n")],
    "no space after data": [_bytes(*_HELLO).replace(b"data: ", b"data:")],
    "a byte order mark": [b"\xef\xbb\xbf", *_HELLO],
    "one byte at a time": [bytes([byte]) for byte in _bytes(*_HELLO)],
    "an event over several lines": [
        role(),
        b"data: " + json.dumps(delta("Hello"), indent=1).replace("\n", "\ndata: ").encode() + b"\n\n",
        finish(),
        "[DONE]",
    ],
    "no blank line at the end": [_bytes(role(), delta("Hello"), finish()).rstrip(b"\n")],
    "events after DONE": [*_HELLO, delta("!!!"), "[DONE]"],
}
"""Each of these says `Hello`."""

CALLS: dict[str, list[Item]] = {
    "clean": _calls(tool_call("get_weather", ""), *({"index": 0, "function": {"arguments": part}} for part in _PARTS)),
    "the whole call in one chunk": _calls(_WHOLE),
    "no index": _calls(_without(_FIRST, "index"), {"function": {"arguments": _PARTS[1]}}),
    "no type": _calls(_without(_FIRST, "type"), {"index": 0, "function": {"arguments": _PARTS[1]}}),
    "the id and name again and again": _calls(_FIRST, tool_call("get_weather", _PARTS[1])),
    "an empty id and name later": _calls(_FIRST, tool_call("", _PARTS[1], id="")),
    "no role": _calls(_FIRST, {"index": 0, "function": {"arguments": _PARTS[1]}})[1:],
    "null arguments at first": _calls({**_FIRST, "function": {"name": "get_weather", "arguments": None}}, {"index": 0, "function": {"arguments": ARGUMENTS}}),
    "an object as arguments": _calls({**_WHOLE, "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}),
    "an index from 1": _calls({**_FIRST, "index": 1}, {"index": 1, "function": {"arguments": _PARTS[1]}}),
    "finish reason stop": [*_calls(_WHOLE)[:-2], finish("stop"), "[DONE]"],
    "null content beside": [role(), chunk({"content": None, "tool_calls": [_WHOLE]}), finish("tool_calls"), "[DONE]"],
}
"""Each of these calls `get_weather` once, with ARGUMENTS; the id is `call_1`."""
