"""The OpenAI Agents SDK on either of OpenAI's endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from scenarios import get_weather, headers, main
from scenarios import model as asked


def agent(client: str) -> Agent:
    kind = OpenAIResponsesModel if client == "openai-agents responses" else OpenAIChatCompletionsModel
    model: Model = kind(model=asked(), openai_client=AsyncOpenAI(default_headers=headers()))
    return Agent(name="weather", model=model, tools=[function_tool(get_weather)])


async def plain(client: str) -> AsyncIterator[str]:
    yield (await Runner.run(agent(client), "hi")).final_output


async def stream(client: str) -> AsyncIterator[str]:
    async for event in Runner.run_streamed(agent(client), "hi").stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


main({"plain": plain, "stream": stream, "tools": plain, "tools_stream": stream})
