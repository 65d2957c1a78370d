"""LangChain's two ways to us: ChatOpenAI, on either of OpenAI's endpoints, and ChatDeepSeek."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI
from scenarios import get_weather, headers, main
from scenarios import model as asked

WEATHER = tool(get_weather)


def model(client: str) -> Any:
    if client == "ChatDeepSeek":
        return ChatDeepSeek(model=asked(), default_headers=headers())
    return ChatOpenAI(model=asked(), default_headers=headers(), use_responses_api=client == "ChatOpenAI responses")


async def plain(client: str) -> AsyncIterator[str]:
    yield (await model(client).ainvoke("hi")).text


async def stream(client: str) -> AsyncIterator[str]:
    async for piece in model(client).astream("hi"):
        yield piece.text


async def tools(client: str, streamed: bool = False) -> AsyncIterator[str]:
    bound = model(client).bind_tools([WEATHER])
    messages: list[AnyMessage] = [HumanMessage("hi")]
    while True:
        said = await _streamed(bound, messages) if streamed else await bound.ainvoke(messages)
        yield said.text
        if not said.tool_calls:
            return
        messages += [said, *[WEATHER.invoke(call) for call in said.tool_calls]]


async def _streamed(bound: Any, messages: list[AnyMessage]) -> Any:
    pieces = [piece async for piece in bound.astream(messages)]
    return sum(pieces[1:], pieces[0])


def tools_stream(client: str) -> AsyncIterator[str]:
    return tools(client, streamed=True)


main({"plain": plain, "stream": stream, "tools": tools, "tools_stream": tools_stream})
