"""A model's reasoning goes back with its own turn, whatever provider comes next (D19, D22, vectors 17 and 18)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running import serving, yaml
from scripted import Scripted, agent, calls, run
from test_replay import Look
from upstream_double import DONE, Script, Seen, Upstream, chunk, delta, events, finish, plain, role, thought, tool_call

MISSING = {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API.", "type": "invalid_request_error"}}
AGENTS = """
agents:
  simple: {pattern: simple, model: m, tools: [calculator], limits: {steps: 6}}
  two: {pattern: two_stage, model: m, tools: [calculator]}
"""
DEEPSEEK = "adapter: deepseek\nretries: 0"


def sum_of(number: int) -> dict[str, Any]:
    return chunk({"tool_calls": [tool_call("calculator", json.dumps({"expression": f"{number}+{number}"}), id=f"c{number}")]})


def wrong(seen: Seen) -> bool:
    """Whether a turn lacks its reasoning in a request with tools."""
    return bool(seen.json.get("tools")) and any(not isinstance(turn, str) for turn in reasoning(seen.json))


def strict(seen: Seen) -> Script:
    """400 for every such request; else a call in each of four rounds, then the answer."""
    body = seen.json
    if wrong(seen):
        return plain(MISSING, status=400)
    rounds = sum(message["role"] == "tool" for message in body["messages"])
    if not body.get("tools"):
        return events(role(), thought("planning"), delta("go on"), finish(), DONE)
    if rounds == 4:
        return events(role(), delta("done"), finish(), DONE)
    return events(role(), thought(f"R{rounds}"), sum_of(rounds), finish("tool_calls"), DONE)


def reasoning(body: dict[str, Any]) -> list[Any]:
    return [message.get("reasoning_content") for message in body["messages"] if message["role"] == "assistant"]


async def test_reasoning_stays_with_the_turn_that_it_came_with() -> None:
    """D19: captured before anybody asks whether the turn has calls; a later turn without has none of it."""
    model = Scripted({**calls(("look", {"q": "x"})), "reasoning_content": "A"}, {"content": "done"})
    one, _, _ = await run(agent(), model, [Look()])
    assert model.asked[1]["messages"][-2]["reasoning_content"] == "A"
    assert [message.get("reasoning_content") for message in one.new if message["role"] == "assistant"] == ["A", None]
    assert "reasoning_content" not in one.new[-1]


async def test_an_answer_has_its_own_reasoning_and_not_that_of_the_call_before() -> None:
    """D19: tool round with A, then text round with B: B is the last turn's."""
    one, _, _ = await run(agent(), Scripted({**calls(("look", {"q": "x"})), "reasoning_content": "A"}, {"content": "done", "reasoning_content": "B"}), [Look()])
    assert one.new[-1] == {"role": "assistant", "content": "done", "reasoning_content": "B"}


@pytest.mark.parametrize("name", ["simple", "two"])
async def test_four_rounds_with_a_provider_that_wants_every_turns_reasoning(a: Upstream, b: Upstream, name: str) -> None:
    """D22: zero 400s, streamed, and with another provider from the middle on."""

    def until_round_two(seen: Seen) -> Script:
        if sum(message["role"] == "tool" for message in seen.json["messages"]) >= 2:
            return plain({"error": {"message": "down", "type": "server_error"}}, status=503)
        return strict(seen)

    a.call(until_round_two)
    b.call(strict)
    async with serving(yaml({"a": a.url, "b": b.url}, a=DEEPSEEK, b=DEEPSEEK, more=AGENTS)) as running:
        lines = await running.events({"model": f"agent/{name}", "messages": [{"role": "user", "content": "sum up"}], "stream": True})
    chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    assert "".join(choice["delta"].get("content") or "" for one in chunks for choice in one["choices"]) == "done"
    assert not any(wrong(seen) for seen in (*a.requests, *b.requests))
    last = b.requests[-1].json
    assert [turn for turn in reasoning(last) if turn] == ["R0", "R1", "R2", "R3"]
    assert all(isinstance(turn, str) for turn in reasoning(last))


async def test_a_turn_without_reasoning_never_gets_that_of_another(a: Upstream) -> None:
    """Vector 17: turn 1 = "A" and a call, turn 2 = "done" without; the third request has "A" on turn 1 and "" on turn 2."""
    a.stream(role(), thought("A"), sum_of(1), finish("tool_calls"), DONE)
    a.stream(role(), delta("done"), finish(), DONE)
    a.stream(role(), delta("and again"), finish(), DONE)
    async with serving(yaml({"a": a.url}, a=DEEPSEEK, more=AGENTS)) as running:
        for text in ("first", "second"):
            await running.chat({"model": "agent/simple", "messages": [{"role": "user", "content": text}], "metadata": {"session_id": "s"}})
    assert reasoning(a.requests[2].json) == ["A", ""]


async def test_a_history_from_before_reasoning_was_kept_is_healed(a: Upstream) -> None:
    """Vector 18, D11: turns without the field, one of them with a call; special characters come through unharmed."""
    a.call(strict)
    told = 'line\n"quoted" </think> <|x|> 思考'
    history = [
        {"role": "user", "content": "old"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "o1", "type": "function", "function": {"name": "calculator", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "o1", "content": "1"},
        {"role": "assistant", "content": "it was 1", "reasoning_content": told},
        {"role": "assistant", "content": "and so on"},
        {"role": "user", "content": "go on"},
    ]
    async with serving(yaml({"a": a.url}, a=DEEPSEEK, more=AGENTS)) as running:
        for _ in range(2):
            answer = await running.chat({"model": "agent/simple", "messages": history})
            assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "done")
    for seen in a.requests:
        turns = reasoning(seen.json)
        assert turns[0] == ""
        assert told in turns[1]


async def test_the_plan_is_folded_for_a_provider_that_takes_no_assistant_at_the_end(a: Upstream) -> None:
    """Section 8: `trailing_assistant: refuse` puts the same text behind the last message of the user, and makes no new one."""

    def claude(seen: Seen) -> Script:
        text = "done" if seen.json.get("tools") else "my plan"
        start = {
            "type": "message_start",
            "message": {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}},
        }
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        part = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
        every = (start, block, part, {"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"})
        return events(*((one["type"], one) for one in every))

    a.call(claude)
    async with serving(yaml({"a": a.url}, a="adapter: anthropic\nretries: 0", more=AGENTS)) as running:
        answer = await running.chat({"model": "agent/two", "messages": [{"role": "user", "content": "q"}]})
    assert answer.json()["choices"][0]["message"]["content"] == "done", answer.text
    messages = a.requests[-1].json["messages"]
    assert [message["role"] for message in messages] == ["user"]
    assert "[Plan]\nmy plan" in json.dumps(messages[0], ensure_ascii=False).replace("\\n", "\n")
