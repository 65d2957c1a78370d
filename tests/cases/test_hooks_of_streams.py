"""What hooks do while an answer comes: `finish(ctx)` flushes before its end, in every dialect; nobody is left out who was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asking import finishes, text
from running import STREAM, serving
from upstream_double import CUT, DONE, Item, Upstream, delta, finish, role

HELD = """
function transform_chunk(chunk, ctx)
  local choice = chunk.choices and chunk.choices[1]
  if not (choice and choice.delta.content and choice.delta.content ~= "") then return chunk end
  ctx.state.text = (ctx.state.text or "") .. choice.delta.content
  ctx.state.chunk = ctx.state.chunk or deep_copy(chunk)
end
function finish(ctx)
  if not ctx.state.chunk then return end
  ctx.state.chunk.choices[1].delta.content = "<" .. ctx.state.text .. ">"
  return ctx.state.chunk
end
"""
HELD_NATIVE = """
function transform_chunk(event, ctx)
  if event.type ~= "content_block_delta" then return event end
  ctx.state.text = (ctx.state.text or "") .. event.delta.text
end
function finish(ctx)
  return {type = "content_block_delta", index = 0, delta = {type = "text_delta", text = "<" .. ctx.state.text .. ">"}}
end
"""
NATIVE: list[Item] = [
    ("message_start", {"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}}),
    ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}),
    ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}}),
    ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
    ("message_stop", {"type": "message_stop"}),
]


def config(a: Upstream, adapter: str) -> str:
    return f"server: {{port: 0}}\nproviders: {{a: {{adapter: {adapter}, base_url: '{a.url}', api_key: k, hooks: [./held.lua]}}}}\nmodels: {{m: a/x}}\n"


@pytest.mark.parametrize("end", [[finish(), DONE], [finish()], [finish(), CUT], [DONE]], ids=["finish and DONE", "finish", "finish, cut", "DONE"])
async def test_what_was_held_back_comes_before_the_finish(a: Upstream, tmp_path: Path, end: list[Item]) -> None:
    (tmp_path / "held.lua").write_text(HELD)
    a.stream(role(), delta("Hel"), delta("lo"), *end)

    async with serving(config(a, "openai"), base=tmp_path) as running:
        events = await running.events()

    assert (text(events), finishes(events), events[-1]) == ("<Hello>", ["stop"], DONE)
    assert '"finish_reason":"stop"' in events[-2]


@pytest.mark.parametrize(("path", "body"), [("messages", {"max_tokens": 9}), ("responses", {"input": "hi"}), ("completions", {"prompt": "hi"})])
async def test_it_reaches_clients_of_every_dialect(a: Upstream, tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    (tmp_path / "held.lua").write_text(HELD)
    a.stream(role(), delta("Hel"), delta("lo"), finish(), DONE)
    request = {**STREAM, **body} if path == "messages" else {"model": "m", "stream": True, **body}

    async with serving(config(a, "openai"), base=tmp_path) as running:
        got = await running.client.post(f"/v1/{path}", json=request)

    assert got.status_code == 200
    assert "<Hello>" in got.text


async def test_in_a_native_stream_it_comes_before_the_events_that_end_it(a: Upstream, tmp_path: Path) -> None:
    (tmp_path / "held.lua").write_text(HELD_NATIVE)
    a.stream(*NATIVE)

    async with serving(config(a, "anthropic"), base=tmp_path) as running:
        got = await running.client.post("/v1/messages", json={**STREAM, "max_tokens": 9})

    names = [line[7:] for line in got.text.split("\n") if line.startswith("event: ")]
    assert names == ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"]
    assert "<Hello>" in got.text


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_a_provider_that_was_asked_cannot_be_left_out_any_more(a: Upstream, b: Upstream, tmp_path: Path, stream: bool) -> None:
    """CONTRACT 5: an attempt is one exchange, and the headers name each."""
    (tmp_path / "held.lua").write_text("function transform_chunk(c, ctx) ctx.skip('late') end function transform_response(r, ctx) ctx.skip('late') end")
    a.stream() if stream else a.reply()
    b.stream() if stream else b.reply()
    both = (
        config(a, "openai")
        .replace("models: {m: a/x}", "models: {m: {chain: [a/x, b/y]}}")
        .replace("held.lua]}", f"held.lua]}}, b: {{adapter: openai, base_url: '{b.url}', api_key: k}}")
    )

    async with serving(both, base=tmp_path) as running:
        got = await running.chat({**STREAM, "stream": stream})

    assert got.headers["x-thinkgate-chain"] == "a=adapter,b=200"
    assert got.headers["x-thinkgate-attempts"] == "2"
