"""What a chat stream must look like for the strictest of clients, as one check."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gateway.chat import Chunk, dumps, loads
from gateway.dialects.chat import ChatStream

Json = dict[str, Any]
FINISHES = {"stop", "length", "tool_calls", "content_filter", "function_call"}


def chunk(delta: Any, finish: Any = None, **top: Any) -> Json:
    """One ordinary chunk of a provider."""
    return {**head(), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **top}


def head(**more: Any) -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1764500000, "model": "up", **more}


def call(index: int | None = None, ident: str | None = None, name: str | None = None, arguments: Any = None) -> Json:
    """One tool call delta with only the given parts."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    out: Json = {"function": function}
    if ident is not None:
        out = {"id": ident, "type": "function", **out}
    return out if index is None else {"index": index, **out}


def run(events: Iterable[Any], *, include_usage: bool = False, done: bool = True) -> list[Json]:
    """What a client gets for these events, checked against the grammar."""
    chunks, _ = run_stream(events, include_usage=include_usage, done=done)
    return [one.json() for one in chunks]


def run_stream(events: Iterable[Any], *, include_usage: bool = False, done: bool = True) -> tuple[list[Chunk], ChatStream]:
    stream = ChatStream("asked", include_usage=include_usage)
    out: list[Chunk] = []
    for event in [*events, b"[DONE]"] if done else events:
        out += stream.feed(event if isinstance(event, bytes) else dumps(event))
    out += stream.finish()
    assert stream.finish() == []
    check([one.json() for one in out], include_usage=include_usage, ended=stream.finished)
    for one in out:
        assert loads(one.data) == one.json()
        assert b"\n" not in one.data
    return out, stream


def check(chunks: list[Json], *, include_usage: bool, ended: bool) -> None:
    """Raise AssertionError where a strict client would stumble."""
    for name in ("id", "object", "created", "model"):
        values = [one[name] for one in chunks]
        assert all(value == values[0] and value for value in values)
    roles: set[int] = set()
    finishes: dict[int, str] = {}
    calls: dict[tuple[int, int], str] = {}
    for place, one in enumerate(chunks):
        assert isinstance(one["created"], int)
        assert "error" not in one
        assert "obfuscation" not in one
        if one.get("usage") is not None:
            assert include_usage
            assert one["choices"] == []
            assert place == len(chunks) - 1
        else:
            assert one["choices"]
            assert include_usage or "usage" not in one
        for choice in one["choices"]:
            check_choice(choice, roles, finishes, calls)
    if ended:
        assert set(finishes) == roles
        for (index, _), arguments in calls.items():
            if finishes[index] == "tool_calls":
                assert arguments


def check_choice(choice: Json, roles: set[int], finishes: dict[int, str], calls: dict[tuple[int, int], str]) -> None:
    index, delta, finish = choice["index"], choice["delta"], choice["finish_reason"]
    assert isinstance(index, int)
    assert isinstance(delta, dict)
    assert index in roles or delta.get("role") == "assistant"
    assert delta.get("role", "assistant") == "assistant"
    roles.add(index)
    assert index not in finishes, "something came after the finish"
    if finish is not None:
        assert finish in FINISHES
        finishes[index] = finish
    assert isinstance(delta.get("content"), str | None)
    assert isinstance(delta.get("reasoning_content"), str | None)
    assert delta.get("tool_calls", []) is not None
    for one in delta.get("tool_calls") or ():
        key = (index, one["index"])
        assert isinstance(one["index"], int)
        if key not in calls:
            assert one["index"] == sum(1 for choice_index, _ in calls if choice_index == index)
            assert one["id"]
            assert one["type"] == "function"
            assert one["function"]["name"]
        else:
            assert "id" not in one
            assert "name" not in one["function"]
        assert isinstance(one["function"]["arguments"], str)
        calls[key] = calls.get(key, "") + one["function"]["arguments"]


def text(chunks: list[Json], field: str = "content", index: int = 0) -> str:
    """One field of one choice, put together."""
    return "".join(choice["delta"].get(field) or "" for one in chunks for choice in one["choices"] if choice["index"] == index)


def finish(chunks: list[Json], index: int = 0) -> str | None:
    reasons = [choice["finish_reason"] for one in chunks for choice in one["choices"] if choice["index"] == index and choice["finish_reason"]]
    assert len(reasons) <= 1
    return reasons[0] if reasons else None


def tool_calls(chunks: list[Json]) -> list[tuple[str, str, Any]]:
    """`(id, name, arguments)` of the calls of the first choice, arguments parsed."""
    out: dict[int, list[str]] = {}
    for one in chunks:
        for choice in one["choices"]:
            for delta in choice["delta"].get("tool_calls") or ():
                mine = out.setdefault(delta["index"], [delta.get("id", ""), delta["function"].get("name", ""), ""])
                mine[2] += delta["function"]["arguments"]
    return [(ident, name, json.loads(arguments)) for ident, name, arguments in out.values()]
