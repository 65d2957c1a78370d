"""instructor: a form as the arguments of a tool, or as a JSON schema; an answer that does not fit is asked for again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import instructor
from openai import AsyncOpenAI
from pydantic import BaseModel, field_validator
from scenarios import CALLED, main


class Weather(BaseModel):
    """The weather in a city."""

    city: str

    @field_validator("city")
    @classmethod
    def of_france(cls, city: str) -> str:
        CALLED.append(city)
        if city != "Paris":
            raise ValueError("the city must be Paris")
        return city


def patched(client: str) -> instructor.AsyncInstructor:
    mode = {"instructor tools": instructor.Mode.TOOLS, "instructor json": instructor.Mode.JSON_SCHEMA}[client]
    return instructor.from_openai(AsyncOpenAI(), mode=mode)


async def plain(client: str) -> AsyncIterator[str]:
    said = await patched(client).chat.completions.create(model="m", response_model=Weather, messages=[{"role": "user", "content": "hi"}])
    yield said.city


async def stream(client: str) -> AsyncIterator[str]:
    parts = patched(client).chat.completions.create_partial(model="m", response_model=Weather, messages=[{"role": "user", "content": "hi"}])
    async for part in parts:
        yield part.city or ""


main({"plain": plain, "stream": stream})
