"""pydantic-ai on either of OpenAI's endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from scenarios import get_weather, headers, main
from scenarios import model as asked


def agent(client: str) -> Agent:
    model: Model = OpenAIResponsesModel(asked()) if client == "pydantic-ai responses" else OpenAIChatModel(asked())
    return Agent(model, tools=[get_weather], model_settings={"extra_headers": headers()})


async def plain(client: str) -> AsyncIterator[str]:
    yield (await agent(client).run("hi")).output


async def stream(client: str) -> AsyncIterator[str]:
    async with agent(client).run_stream("hi") as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            yield piece


main({"plain": plain, "stream": stream, "tools": plain, "tools_stream": stream})
