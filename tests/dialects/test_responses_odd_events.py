"""Events of the Responses dialect whose fields are of no type that they may have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects.responses import Native, Reader

ODD = [["x"], {"a": 1}, 5, True, None]


def events(odd: Any) -> list[dict[str, Any]]:
    item = {"type": "message", "id": odd, "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    return [
        {"type": odd, "x": 1},
        {"type": "response.created", "response": {"id": "r", "output": []}},
        {"type": "response.output_item.added", "output_index": odd, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "item_id": odd, "output_index": odd, "content_index": 0, "delta": "hi"},
        {"type": "response.output_item.done", "output_index": odd, "item": item},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}},
    ]


@pytest.mark.parametrize("odd", ODD)
def test_the_text_is_read_once_all_the_same(odd: Any) -> None:
    reader, native = Reader("m"), Native({"model": "m", "input": "x"})
    said = ""
    for event in events(odd):
        data = json.dumps(event).encode()
        for chunk in reader.feed(None, data):
            said += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
        native.look(None, data)
    assert said == "hi"
    assert native.has_content
    assert native.done
