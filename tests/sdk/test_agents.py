"""Agents through the unmodified SDKs of OpenAI (Python, Node) and Anthropic: answers, events beside them, tools of the client, approvals, sessions, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
from node_scripts import Node
from openai import AsyncOpenAI, OpenAI
from openai_client import HI, WEATHER_TOOL, openai_at, over
from running import KEY, Running, serving
from test_anthropic_python import TOOL, anthropic_at
from upstream_double import CUT, Upstream, answer, completion, delta, role, tool_call

AGENTS = """
agents:
  calc: {pattern: simple, model: m, tools: [calculator, sequential_thinking]}
  ask: {pattern: simple, model: m, tools: [calculator], approval: {tools: [calculator]}}
"""
SUM = tool_call("calculator", '{"expression": "2+3"}', id="c1")
WEATHER = tool_call("get_weather", '{"city": "Paris"}', id="c2", index=1)
THOUGHT = tool_call("sequential_thinking", '{"thought": "Add them.", "thought_number": 1, "total_thoughts": 1, "next_thought_needed": false}', id="c3", index=1)
RICH: dict[str, Any] = {"metadata": {"agent_events": "v1"}}
WAYS = pytest.mark.parametrize("rich", [{}, RICH], ids=["ordinary", "with events"])


@pytest.fixture
async def world(a: Upstream) -> AsyncIterator[Running]:
    async with serving(over(a, more=AGENTS)) as running:
        yield running


def says(a: Upstream, *turns: Any) -> None:
    """The turns of the agent's model: a text, or calls."""
    for turn in turns:
        a.reply(completion(turn) if isinstance(turn, str) else completion(None, calls=turn))


class TestOpenAI:
    async def test_a_plain_answer_is_one_of_any_model(self, world: Running, a: Upstream) -> None:
        says(a, [SUM, THOUGHT], "It is 5.")
        async with openai_at(world) as client:
            said = await client.chat.completions.create(model="agent/calc", messages=HI)
        message = said.choices[0].message
        assert (message.content, message.tool_calls, said.choices[0].finish_reason) == ("It is 5.", None, "stop")
        assert "Add them." in (message.model_extra or {})["reasoning_content"]
        assert said.usage is not None
        assert said.usage.total_tokens == 16
        assert (said.model_extra or {})["x_agent"].items() >= {"steps": 2, "cost": None}.items()

    @WAYS
    async def test_a_naive_loop_over_choices_of_a_stream_never_breaks(self, world: Running, a: Upstream, rich: dict[str, Any]) -> None:
        says(a, [SUM, THOUGHT], "It is 5.")

        def loop() -> str:
            with OpenAI(base_url=world.url, api_key=KEY) as client:
                return "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(model="agent/calc", messages=HI, stream=True, **rich))

        assert await asyncio.to_thread(loop) == "It is 5."

    @WAYS
    async def test_the_helper_for_streams_gathers_the_same_answer(self, world: Running, a: Upstream, rich: dict[str, Any]) -> None:
        says(a, [SUM, THOUGHT], "It is 5.")
        async with openai_at(world) as client, client.chat.completions.stream(model="agent/calc", messages=HI, **rich) as stream:
            seen = [event.type async for event in stream]
            said = await stream.get_final_completion()
        assert (said.choices[0].message.content, said.choices[0].finish_reason) == ("It is 5.", "stop")
        assert "content.delta" in seen
        assert not [kind for kind in seen if kind.startswith("tool_calls")]

    async def test_events_come_as_a_field_that_nobody_must_know(self, world: Running, a: Upstream) -> None:
        says(a, [SUM], "It is 5.")
        async with openai_at(world) as client:
            chunks = [
                c async for c in await client.chat.completions.create(model="agent/calc", messages=HI, stream=True, extra_headers={"X-Agent-Events": "v1"})
            ]
        told = [chunk.model_extra["x_agent"] for chunk in chunks if chunk.model_extra]
        assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
        assert {"run.started", "tool.started", "tool.finished", "run.finished"} <= {event["type"] for event in told}
        assert all(len(chunk.choices) == 1 for chunk in chunks)

    @WAYS
    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_a_tool_of_the_client_goes_there_and_back(self, world: Running, a: Upstream, stream: bool, rich: dict[str, Any]) -> None:
        says(a, [SUM, WEATHER], "Sunny, and 5.")
        async with openai_at(world) as client:
            ask: dict[str, Any] = {"model": "agent/calc", "tools": [WEATHER_TOOL], **rich}
            first = (await _whole(client, stream, messages=HI, **ask)).choices[0]
            assert first.finish_reason == "tool_calls"
            [call] = first.message.tool_calls
            assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Paris"}')
            history = [*HI, first.message.model_dump(exclude_none=True, exclude={"parsed"}), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
            second = (await _whole(client, stream, messages=history, **ask)).choices[0]
            with pytest.raises(openai.ConflictError, match="run"):
                await _whole(client, False, messages=history, **ask)
        assert (second.message.content, second.finish_reason) == ("Sunny, and 5.", "stop")
        assert [m["content"] for m in a.requests[1].json["messages"] if m["role"] == "tool"] == ["5", "sunny"]

    async def test_an_approval_is_a_call_with_parsed_arguments(self, world: Running, a: Upstream) -> None:
        says(a, [SUM], "Done.")
        async with openai_at(world) as client:
            message = (await client.chat.completions.create(model="agent/ask", messages=HI)).choices[0].message
            [call] = message.tool_calls or ()
            assert call.type == "function"
            assert call.function.name == "approval_request"
            assert json.loads(call.function.arguments).items() >= {"tool": "calculator", "arguments": {"expression": "2+3"}}.items()
            said: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"approved": true}'}
            done = await client.chat.completions.create(model="agent/ask", messages=[*HI, message.model_dump(exclude_none=True), said])
        assert done.choices[0].message.content == "Done."

    async def test_a_session_is_named_in_metadata_or_by_a_header(self, world: Running, a: Upstream) -> None:
        says(a, "one", "two", "three")
        async with openai_at(world) as client:
            await client.chat.completions.create(model="agent/calc", messages=HI, metadata={"session_id": "s1"})
            more: Any = [{"role": "user", "content": "and?"}]
            raw = await client.chat.completions.with_raw_response.create(model="agent/calc", messages=more, extra_headers={"X-Session-Id": "s1"})
            await client.chat.completions.create(model="agent/calc", messages=more)
        assert raw.headers["x-thinkgate-session"] == "s1"
        told = [[m["content"] for m in seen.json["messages"] if m["role"] != "system"] for seen in a.requests]
        assert told == [["hi"], ["hi", "one", "and?"], ["and?"]]

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_responses_have_the_answer_as_their_text(self, world: Running, a: Upstream, stream: bool) -> None:
        says(a, [SUM], "It is 5.")
        async with openai_at(world) as client:
            if stream:
                async with client.responses.stream(model="agent/calc", input="hi") as streaming:
                    kinds = {event.type async for event in streaming}
                    said: Any = await streaming.get_final_response()
                assert "response.output_text.delta" in kinds
            else:
                said = await client.responses.create(model="agent/calc", input="hi")
        assert (said.output_text, said.status) == ("It is 5.", "completed")
        assert not [item for item in said.output if item.type == "function_call"]

    async def test_responses_carry_a_call_of_the_clients_tool_there_and_back(self, world: Running, a: Upstream) -> None:
        says(a, [SUM, WEATHER], "Sunny, and 5.")
        tool: Any = {"type": "function", "name": "get_weather", "parameters": WEATHER_TOOL["function"]["parameters"], "strict": True}
        async with openai_at(world) as client:
            first = await client.responses.create(model="agent/calc", input="hi", tools=[tool])
            [call] = [item for item in first.output if item.type == "function_call"]
            output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
            history: Any = [{"role": "user", "content": "hi"}, *[item.model_dump(exclude_none=True) for item in first.output], output]
            second = await client.responses.create(model="agent/calc", input=history, tools=[tool])
        assert second.output_text == "Sunny, and 5."

    async def test_when_no_provider_answers_it_is_the_sdks_own_error(self, world: Running, a: Upstream) -> None:
        a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)
        async with openai_at(world, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError, match="all 1 providers failed"):
                await client.chat.completions.create(model="agent/calc", messages=HI)
            with pytest.raises(openai.APIError, match=r"all 1 providers failed|no target"):
                async for _ in await client.chat.completions.create(model="agent/calc", messages=HI, stream=True):
                    pass
            with pytest.raises(openai.NotFoundError, match="nobody"):
                await client.chat.completions.create(model="agent/nobody", messages=HI)

    async def test_a_stream_of_responses_that_fails_goes_on_with_the_same_response_to_its_end(self, world: Running, a: Upstream) -> None:
        a.stream(role(), delta("It "), CUT, repeat=3)
        body = {"model": "agent/calc", "input": "hi", "stream": True}
        said = (await world.client.post("/v1/responses", json=body, headers={"authorization": f"Bearer {KEY}"})).text
        told = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: ")]
        assert [event["type"] for event in told] == ["response.created", "response.in_progress", "error", "response.failed"]
        assert [event["sequence_number"] for event in told] == [0, 1, 2, 3]
        assert told[0]["response"]["id"] == told[3]["response"]["id"]

    async def test_an_answer_that_broke_off_is_asked_for_again_before_anybody_sees_it(self, world: Running, a: Upstream) -> None:
        a.stream(role(), delta("It "), CUT)
        a.stream(*answer("It is 5."))
        async with openai_at(world) as client:
            said = await client.chat.completions.create(model="agent/calc", messages=HI)
        assert said.choices[0].message.content == "It is 5."


async def _whole(client: AsyncOpenAI, stream: bool, **asked: Any) -> Any:
    if not stream:
        return await client.chat.completions.create(**asked)
    async with client.chat.completions.stream(**asked) as streaming:
        return await streaming.get_final_completion()


class TestAnthropic:
    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_the_answer_is_text_and_what_led_to_it_thinking(self, world: Running, a: Upstream, stream: bool) -> None:
        says(a, [SUM], "It is 5.")
        async with anthropic_at(world) as client:
            said = await _message(client, stream, messages=HI)
        assert [block.text for block in said.content if block.type == "text"] == ["It is 5."]
        assert "calculator" in "".join(block.thinking for block in said.content if block.type == "thinking")
        assert (said.stop_reason, said.usage.output_tokens) == ("end_turn", 6)

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_a_tool_of_the_client_goes_there_and_back(self, world: Running, a: Upstream, stream: bool) -> None:
        says(a, [SUM, WEATHER], "Sunny, and 5.")
        async with anthropic_at(world) as client:
            first = await _message(client, stream, messages=HI, tools=[TOOL])
            [call] = [block for block in first.content if block.type == "tool_use"]
            assert (first.stop_reason, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
            result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}
            history = [*HI, {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]}, result]
            second = await _message(client, stream, messages=history, tools=[TOOL])
        assert [block.text for block in second.content if block.type == "text"] == ["Sunny, and 5."]

    async def test_an_error_is_the_sdks_own(self, world: Running, a: Upstream) -> None:
        a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)
        async with anthropic_at(world, max_retries=0) as client:
            for stream in (False, True):
                with pytest.raises(anthropic.APIStatusError, match=r"all 1 providers failed|no target"):
                    await _message(client, stream, messages=HI)


async def _message(client: anthropic.AsyncAnthropic, stream: bool, **asked: Any) -> Any:
    if not stream:
        return await client.messages.create(model="agent/calc", max_tokens=50, **asked)
    async with client.messages.stream(model="agent/calc", max_tokens=50, **asked) as streaming:
        return await streaming.get_final_message()


class TestNode:
    async def test_a_plain_answer(self, world: Running, a: Upstream, node: Node) -> None:
        says(a, [SUM], "It is 5.")
        out = await node(world, "plain", body={"model": "agent/calc"})
        assert out["data"]["choices"][0]["message"]["content"] == "It is 5."
        assert out["headers"]["x-thinkgate-run-id"] == out["data"]["x_agent"]["run_id"]

    @WAYS
    async def test_a_naive_loop_over_a_stream(self, world: Running, a: Upstream, node: Node, rich: dict[str, Any]) -> None:
        says(a, [SUM], "It is 5.")
        out = await node(world, "stream", body={"model": "agent/calc", **rich})
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in out) == "It is 5."
        assert any("x_agent" in chunk for chunk in out) is bool(rich)

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_run_tools_calls_the_clients_tool_and_goes_on(self, world: Running, a: Upstream, node: Node, stream: bool) -> None:
        says(a, [SUM, WEATHER], "Sunny, and 5.")
        out = await node(world, "run_tools", model="agent/calc", stream=stream)
        assert (out["content"], out["called"]) == ("Sunny, and 5.", ["Paris"])
        assert out["roles"] == ["user", "assistant", "tool", "assistant"]
