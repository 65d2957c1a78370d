"""However odd a provider's stream is, behind the gateway the SDK for Python reads it."""

from __future__ import annotations

from typing import Any

from odd_streams import ARGUMENTS, CALLS, TEXTS
from openai_client import HI, WEATHER_TOOL, openai_at, over
from running import serving
from upstream_double import Upstream


async def test_texts_arrive_raw_and_through_the_helper(a: Upstream) -> None:
    got: dict[str, Any] = {}
    async with serving(over(a)) as running, openai_at(running) as client:
        for name, items in TEXTS.items():
            a.clear()
            a.stream(*items)
            chunks = [c async for c in await client.chat.completions.create(model="m", messages=HI, stream=True)]
            async with client.chat.completions.stream(model="m", messages=HI) as stream:
                final = (await stream.get_final_completion()).choices[0]
            raw = "".join(choice.delta.content or "" for c in chunks for choice in c.choices)
            finishes = [choice.finish_reason for c in chunks for choice in c.choices if choice.finish_reason]
            heads = len({(c.id, c.model, c.created, c.object) for c in chunks})
            got[name] = (raw, finishes, heads, final.message.content, final.finish_reason)

    assert got == dict.fromkeys(TEXTS, ("Hello", ["stop"], 1, "Hello", "stop"))


async def test_tool_calls_arrive_streamed_and_plain(a: Upstream) -> None:
    got: dict[str, Any] = {}
    async with serving(over(a)) as running, openai_at(running) as client:
        for name, items in CALLS.items():
            a.clear()
            a.stream(*items)
            async with client.chat.completions.stream(model="m", messages=HI, tools=[WEATHER_TOOL]) as stream:
                streamed = (await stream.get_final_completion()).choices[0]
            plain = (await client.chat.completions.create(model="m", messages=HI, tools=[WEATHER_TOOL])).choices[0]
            got[name] = [(choice.finish_reason, _calls(choice.message)) for choice in (streamed, plain)]

    assert got == dict.fromkeys(CALLS, [("tool_calls", [("call_1", "function", "get_weather", ARGUMENTS)])] * 2)


def _calls(message: Any) -> list[tuple[str, str, str, str]]:
    return [(call.id, call.type, call.function.name, call.function.arguments) for call in message.tool_calls or []]
