"""Relays of Anthropic's dialect that want unsigned thinking back."""

from __future__ import annotations

import pytest
from running import CHAT, serving, yaml
from upstream_double import Upstream

ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "x",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
HISTORY = [*CHAT["messages"], {"role": "assistant", "content": "x", "reasoning_content": "because"}, {"role": "user", "content": "y"}]


@pytest.mark.parametrize(
    ("options", "first"),
    [("{}", "text"), ("{reasoning_field: thinking_blocks, reasoning_echo: all}", "thinking")],
    ids=["dropped by default", "sent where it is wanted"],
)
async def test_unsigned_reasoning(a: Upstream, options: str, first: str) -> None:
    a.reply(ANSWER)
    async with serving(yaml({"anthropic": a.url}, anthropic=f"adapter: anthropic\noptions: {options}")) as running:
        await running.chat({**CHAT, "messages": HISTORY})

    turn = a.requests[0].json["messages"][1]["content"]
    blocks = turn if isinstance(turn, list) else [{"type": "text", "text": turn}]
    assert blocks[0]["type"] == first
    assert first == "text" or blocks[0] == {"type": "thinking", "thinking": "because", "signature": ""}
