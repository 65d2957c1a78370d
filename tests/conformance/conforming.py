"""Answers against the schemas of this folder, and what the conformance tests say and ask.

The schemas hold what the interface promises and what clients insist on. Where the variable
THINKGATE_OPENAI_SCHEMA names a file with OpenAI's own description of it (OpenAPI, JSON,
made to fit JSON Schema 2020-12), every answer is checked against that too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from running import CHAT

Json = dict[str, Any]

SCHEMAS = Path(__file__).parent / "schemas"
CAPTURES = Path(__file__).parent.parent / "captures"

HI: list[Any] = [{"role": "user", "content": "hi"}]
MESSAGES: Json = {"model": "m", "max_tokens": 64, "messages": HI}
RESPONSES: Json = {"model": "m", "input": "hi"}
COMPLETIONS: Json = {"model": "m", "prompt": "hi"}
WEATHER: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
TOOL: Json = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city", "parameters": WEATHER}}

ENDPOINTS: dict[str, Json] = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES, "/v1/completions": COMPLETIONS}
"""The endpoints that answer with text, and a small body of each."""

_OPENAI = {
    "chat_chunk": "CreateChatCompletionStreamResponse",
    "chat_completion": "CreateChatCompletionResponse",
    "completion": "CreateCompletionResponse",
    "embeddings": "CreateEmbeddingResponse",
    "error": "ErrorResponse",
    "model": "Model",
    "models": "ListModelsResponse",
    "response": "Response",
}
"""Which of OpenAI's components each schema is about."""


def faults(value: Any, schema: str) -> list[str]:
    """What is wrong with a value: `place: what`, one text each. `schema` is a file of the folder schemas/, or `response_events#TYPE`."""
    return [f"{error.json_path}: {error.message[:300]}" for validator in _validators(schema) for error in validator.iter_errors(value)]


def conforms(value: Any, schema: str) -> Any:
    """The value, if it is what the schema says."""
    assert faults(value, schema) == []
    return value


def refused(answer: httpx.Response, status: int) -> Json:
    """The error object of an answer with this status, in OpenAI's form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error: Json = conforms(answer.json(), "error")["error"]
    return error


def chunks(events: Iterable[str]) -> list[Json]:
    """The chunks of a whole chat stream: each conforms, all are of one answer, the last event is [DONE]."""
    *data, last = events
    assert last == "[DONE]"
    found = [conforms(json.loads(event), "chat_chunk") for event in data]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in found}) == 1
    return found


def response_events(text: str) -> list[Json]:
    """The events of a whole Responses stream: each conforms to the schema of its type, the names and numbers are right."""
    events = []
    for number, (name, data) in enumerate(named_events(text)):
        event = conforms(data, f"response_events#{data['type']}")
        assert (name, number) == (event["type"], event["sequence_number"])
        events.append(event)
    return events


def named_events(text: str) -> list[tuple[str, Json]]:
    """Name and data of each event of a stream whose events are an `event:` line, a `data:` line and a blank one, and nothing else."""
    *blocks, rest = text.split("\n\n")
    assert rest == "", "the last event has no blank line behind it"
    events = []
    for block in blocks:
        first, second = block.split("\n")
        assert first.startswith("event: "), block
        assert second.startswith("data: "), block
        events.append((first[7:], json.loads(second[6:])))
    return events


def capture(name: str) -> tuple[Json, dict[str, str]]:
    """Body and headers of a request that a real client sent: `claude-code/02-POST-v1_messages`."""
    held = json.loads((CAPTURES / f"{name}.json").read_text(encoding="utf-8"))
    own = ("host", "connection", "content-length", "authorization", "x-api-key")
    return held["body"], {key: value for key, value in held["headers"] if key not in own}


@cache
def _validators(schema: str) -> list[Draft202012Validator]:
    file, _, part = schema.partition("#")
    own = {"$ref": f"{file}.json#/$defs/{part}" if part else f"{file}.json"}
    component = _components().get(part) if part else _OPENAI.get(file)
    theirs = [{"$ref": f"urn:openai#/components/schemas/{component}"}] if component and _published() else []
    return [Draft202012Validator(reference, registry=_registry()) for reference in (own, *theirs)]


@cache
def _registry() -> Registry[Any]:
    files = [(file.name, _resource(json.loads(file.read_text(encoding="utf-8")))) for file in SCHEMAS.glob("*.json")]
    return Registry().with_resources([*files, ("urn:openai", _resource(_published()))])


def _resource(contents: Any) -> Resource[Any]:
    return DRAFT202012.create_resource(contents)


@cache
def _published() -> Mapping[str, Any]:
    """OpenAI's own description; empty where none is at hand."""
    file = os.environ.get("THINKGATE_OPENAI_SCHEMA")
    return json.loads(Path(file).read_text(encoding="utf-8")) if file else {}


@cache
def _components() -> dict[str, str]:
    """The type of each event of a Responses stream -> OpenAI's component for it."""
    found = {}
    for name, component in _published().get("components", {}).get("schemas", {}).items():
        kinds = component.get("properties", {}).get("type", {}).get("enum", ())
        if name.startswith("Response") and name.endswith("Event") and len(kinds) == 1:
            found[kinds[0]] = name
    return found
