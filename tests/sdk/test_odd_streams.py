"""Streams that break SDKs when they are read directly are whole behind the gateway."""

from __future__ import annotations

import json

import pytest
from odd_streams import ARGUMENTS, CALLS, TEXTS
from openai_client import HI, WEATHER_TOOL, openai_at, over
from running import serving
from upstream_double import Upstream


@pytest.mark.parametrize("name", TEXTS)
async def test_a_text_arrives_raw_and_through_the_helper(a: Upstream, name: str) -> None:
    a.stream(*TEXTS[name])

    async with serving(over(a)) as running, openai_at(running) as client:
        chunks = [c async for c in await client.chat.completions.create(model="m", messages=HI, stream=True)]
        async with client.chat.completions.stream(model="m", messages=HI) as stream:
            final = await stream.get_final_completion()

    assert "".join(choice.delta.content or "" for c in chunks for choice in c.choices) == "Hello"
    assert [choice.finish_reason for c in chunks for choice in c.choices if choice.finish_reason] == ["stop"]
    assert len({(c.id, c.model, c.created) for c in chunks}) == 1
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == ("Hello", "stop")


@pytest.mark.parametrize("name", CALLS)
async def test_a_tool_call_arrives_streamed_and_plain(a: Upstream, name: str) -> None:
    a.stream(*CALLS[name])

    async with serving(over(a)) as running, openai_at(running) as client:
        async with client.chat.completions.stream(model="m", messages=HI, tools=[WEATHER_TOOL]) as stream:
            streamed = await stream.get_final_completion()
        plain = await client.chat.completions.create(model="m", messages=HI, tools=[WEATHER_TOOL])

    for said in (streamed, plain):
        assert said.choices[0].finish_reason == "tool_calls"
        calls = said.choices[0].message.tool_calls or []
        assert [(call.id, call.type, call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"] == [
            ("call_1", "function", "get_weather", json.loads(ARGUMENTS))
        ]
