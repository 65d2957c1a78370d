"""The memory of reasoning: what is kept, to whom it is given back, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import CHAT, serving, yaml
from upstream_double import DONE, Upstream, chunk, completion, finish, role, thought, tool_call

from gateway.upstream.reasoning import Memory, weights

TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def turn(*ids: str, **fields: Any) -> dict[str, Any]:
    calls = [{"id": ident, "type": "function", "function": {"name": "w", "arguments": "{}"}} for ident in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def test_a_turn_that_lost_its_reasoning_gets_it_back_by_its_first_call() -> None:
    memory = Memory()
    memory.keep("t", "a", "m", turn("c1", "c2", reasoning_content="because"))
    messages = [turn("c1", "c2")]

    assert memory.restore("t", "a", "m", messages) == 1
    assert messages[0]["reasoning_content"] == "because"


def test_what_the_client_sent_is_never_overwritten() -> None:
    memory = Memory()
    memory.keep("t", "a", "m", turn("c1", reasoning_content="ours"))
    messages = [turn("c1", reasoning_content="theirs")]

    assert memory.restore("t", "a", "m", messages) == 0
    assert messages[0]["reasoning_content"] == "theirs"


def test_an_id_that_stands_twice_restores_nothing() -> None:
    memory = Memory()
    memory.keep("t", "a", "m", turn("call_0", reasoning_content="which?"))

    assert memory.restore("t", "a", "m", [turn("call_0"), turn("call_0")]) == 0


def test_tenants_are_apart() -> None:
    memory = Memory()
    memory.keep("one", "a", "m", turn("c1", reasoning_content="secret"))

    assert memory.restore("two", "a", "m", [turn("c1")]) == 0


@pytest.mark.parametrize(("provider", "model", "restored"), [("b", "org/M", 1), ("a", "other", 0), ("b", "m-large", 0)])
def test_text_goes_to_the_same_weights_only(provider: str, model: str, restored: int) -> None:
    memory = Memory()
    memory.keep("t", "a", "m", turn("c1", reasoning_content="x"))

    assert memory.restore("t", provider, model, [turn("c1")]) == restored


@pytest.mark.parametrize(("provider", "model", "back"), [("a", "m", True), ("b", "m", False), ("a", "n", False)])
def test_signed_reasoning_goes_back_to_its_signer_only(provider: str, model: str, back: bool) -> None:
    memory = Memory()
    blocks = [{"type": "thinking", "thinking": "x", "signature": "sig"}]
    memory.keep("t", "a", "m", turn("c1", thinking_blocks=blocks))
    messages = [turn("c1")]
    memory.restore("t", provider, model, messages)

    assert (messages[0].get("thinking_blocks") == blocks) is back


def test_signatures_of_calls_go_back_to_their_calls() -> None:
    memory = Memory()
    message = turn("c1", "c2")
    message["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "s"}}
    memory.keep("t", "a", "m", message)
    messages = [turn("c1", "c2")]

    assert memory.restore("t", "a", "m", messages) == 1
    assert messages[0]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}
    assert "extra_content" not in messages[0]["tool_calls"][1]


def test_a_signature_goes_back_to_a_turn_that_kept_its_text() -> None:
    memory = Memory()
    message = turn("c1", reasoning_content="because")
    message["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "s"}}
    memory.keep("t", "a", "m", message)
    messages = [turn("c1", reasoning_content="because")]

    assert memory.restore("t", "a", "m", messages) == 1
    assert messages[0]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}


def test_entries_expire() -> None:
    clock = Clock()
    memory = Memory(seconds=10, now=clock)
    memory.keep("t", "a", "m", turn("c1", reasoning_content="x"))
    clock.now = 10

    assert memory.restore("t", "a", "m", [turn("c1")]) == 0
    memory.keep("t", "a", "m", turn("c2", reasoning_content="x"))
    assert len(memory) == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 400)), max_size=60))
def test_it_stays_within_its_bounds(turns: list[tuple[int, int]]) -> None:
    memory = Memory(entries=10, size=2000)
    for ident, length in turns:
        memory.keep("t", "a", "m", turn(f"c{ident}", reasoning_content="x" * (length + 1)))

    assert len(memory) <= 10
    assert memory._held == sum(kept.size for kept in memory._kept.values()) <= 2000


def test_a_turn_without_calls_or_without_reasoning_is_not_kept() -> None:
    memory = Memory()
    memory.keep("t", "a", "m", {"role": "assistant", "content": "x", "reasoning_content": "y"})
    memory.keep("t", "a", "m", turn("c1"))

    assert len(memory) == 0


@pytest.mark.parametrize(("one", "other"), [("deepseek-v4-pro", "deepseek-ai/DeepSeek-V4-Pro"), ("a/b/M", "m")])
def test_the_same_weights_under_other_names(one: str, other: str) -> None:
    assert weights(one) == weights(other)


@pytest.mark.parametrize("stream", [False, True])
async def test_deepseek_gets_back_what_the_client_lost(a: Upstream, stream: bool) -> None:
    call = tool_call("w", "{}", id="call_7")
    if stream:
        a.stream(role(), thought("need "), thought("it"), chunk({"tool_calls": [call]}), finish("tool_calls"), DONE)
    else:
        a.reply(completion(None, finish="tool_calls", calls=[call], reasoning_content="need it"))
    a.reply(completion("20C"))
    lost = [*CHAT["messages"], turn("call_7"), {"role": "tool", "tool_call_id": "call_7", "content": "20C"}]
    async with serving(yaml({"deepseek": a.url}, deepseek="adapter: deepseek")) as running:
        await running.chat({**CHAT, "tools": TOOLS, "stream": stream})
        answer = await running.chat({**CHAT, "messages": lost, "tools": TOOLS})

    assert a.requests[1].json["messages"][1]["reasoning_content"] == "need it"
    assert "deepseek.reasoning_restored=1" in answer.headers["x-thinkgate-transforms"]


async def test_a_cut_stream_is_not_remembered(a: Upstream) -> None:
    a.stream(role(), thought("half"), chunk({"tool_calls": [tool_call("w", "{", id="call_7")]}))
    a.reply(completion("x"))
    lost = [*CHAT["messages"], turn("call_7"), {"role": "tool", "tool_call_id": "call_7", "content": "20C"}]
    async with serving(yaml({"deepseek": a.url}, deepseek="adapter: deepseek")) as running:
        await running.chat({**CHAT, "tools": TOOLS, "stream": True})
        await running.chat({**CHAT, "messages": lost, "tools": TOOLS})

    assert a.requests[1].json["messages"][1]["reasoning_content"] == ""


async def test_the_memory_can_be_turned_off(a: Upstream) -> None:
    a.reply(completion(None, finish="tool_calls", calls=[tool_call("w", "{}", id="call_7")], reasoning_content="need it"))
    a.reply(completion("20C"))
    lost = [*CHAT["messages"], turn("call_7"), {"role": "tool", "tool_call_id": "call_7", "content": "20C"}]
    async with serving(yaml({"deepseek": a.url}, deepseek="adapter: deepseek\noptions: {reasoning_memory: false}")) as running:
        await running.chat({**CHAT, "tools": TOOLS})
        await running.chat({**CHAT, "messages": lost, "tools": TOOLS})

    assert a.requests[1].json["messages"][1]["reasoning_content"] == ""
