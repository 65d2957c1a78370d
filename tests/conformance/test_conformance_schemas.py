"""The schemas themselves: sound, and strict enough to notice what breaks clients."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from conforming import SCHEMAS, faults
from jsonschema import Draft202012Validator
from upstream_double import chunk, completion, tool_call

CHUNK = chunk({"role": "assistant", "content": "a", "tool_calls": [tool_call("f", "{}")]})
WHOLE = completion("a", calls=[tool_call("f", "{}")])
EVENT = {"type": "response.refusal.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "x", "sequence_number": 3}
SOUND: dict[str, Any] = {
    "chat_chunk": CHUNK,
    "chat_completion": WHOLE,
    "error": {"error": {"message": "m", "type": "t", "param": None, "code": "c"}},
    "model": {"id": "m", "object": "model", "created": 1, "owned_by": "o"},
    "response_events#response.refusal.delta": EVENT,
}
GONE = object()

DAMAGED: list[tuple[str, tuple[Any, ...], Any]] = [
    ("chat_chunk", ("id",), GONE),
    ("chat_chunk", ("id",), ""),
    ("chat_chunk", ("model",), None),
    ("chat_chunk", ("created",), 1.5),
    ("chat_chunk", ("object",), "chat.completion"),
    ("chat_chunk", ("choices",), None),
    ("chat_chunk", ("choices", 0, "index"), GONE),
    ("chat_chunk", ("choices", 0, "delta"), None),
    ("chat_chunk", ("choices", 0, "finish_reason"), GONE),
    ("chat_chunk", ("choices", 0, "finish_reason"), "eos"),
    ("chat_chunk", ("choices", 0, "delta", "tool_calls"), None),
    ("chat_chunk", ("choices", 0, "delta", "tool_calls", 0, "index"), GONE),
    ("chat_chunk", ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"), {}),
    ("chat_completion", ("choices",), []),
    ("chat_completion", ("choices", 0, "index"), GONE),
    ("chat_completion", ("choices", 0, "finish_reason"), None),
    ("chat_completion", ("choices", 0, "message", "content"), GONE),
    ("chat_completion", ("choices", 0, "message", "tool_calls", 0, "id"), None),
    ("chat_completion", ("choices", 0, "message", "tool_calls", 0, "function", "arguments"), None),
    ("chat_completion", ("usage", "prompt_tokens"), None),
    ("error", ("error", "param"), GONE),
    ("error", ("error", "code"), 400),
    ("error", ("error", "message"), None),
    ("model", ("owned_by",), GONE),
    ("model", ("created",), "2026"),
    ("response_events#response.refusal.delta", ("sequence_number",), GONE),
    ("response_events#response.refusal.delta", ("output_index",), GONE),
    ("response_events#response.refusal.delta", ("type",), "response.output_text.delta"),
]


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_every_schema_is_one(file: Any) -> None:
    Draft202012Validator.check_schema(json.loads(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("schema", SOUND)
def test_what_is_sound_has_no_faults(schema: str) -> None:
    assert faults(SOUND[schema], schema) == []


@pytest.mark.parametrize(("schema", "place", "value"), DAMAGED, ids=lambda part: part if isinstance(part, str) else None)
def test_damage_is_noticed(schema: str, place: tuple[Any, ...], value: Any) -> None:
    damaged = copy.deepcopy(SOUND[schema])
    at = damaged
    for key in place[:-1]:
        at = at[key]
    if value is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = value

    assert faults(damaged, schema)


def test_fields_that_nobody_knows_are_no_fault() -> None:
    assert faults({**CHUNK, "x_new": 1}, "chat_chunk") == []
    assert faults({**WHOLE, "x_new": [None]}, "chat_completion") == []
