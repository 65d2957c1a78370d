"""Pieces of Messages and chat requests for the tests of the dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anthropic.types import MessageCreateParams
from pydantic import TypeAdapter

from gateway.dialects import messages

REQUEST: TypeAdapter[Any] = TypeAdapter(MessageCreateParams)
CAPTURES = Path(__file__).parent.parent / "captures"
FUNCTION = {"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": '{"city":"Paris"}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "20C"}
USER = {"role": "user", "content": "weather in Paris?"}
PIXEL = "iVBORw0KGgo="
SIGNED = {"type": "thinking", "thinking": "café   😀 \\u0041 <tag>  two  spaces\n", "signature": "Eq+/AbC=="}


def outbound(*history: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return messages.request_from_chat({"model": "m", "messages": list(history), **fields})


def inbound(*history: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return messages.request_to_chat({"model": "m", "max_tokens": 9, "messages": list(history), **fields})


def valid(body: dict[str, Any]) -> dict[str, Any]:
    """The body, if the SDK's own request types take it."""
    REQUEST.validate_python(json.loads(json.dumps(body)))
    return body


START = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": [], "usage": {"input_tokens": 10, "output_tokens": 1}},
}
STOP = {"type": "message_stop"}


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(reason: str = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 5, **usage}}
