"""How the newest `openai` for Python learns that an answer on /v1/responses broke off."""

from __future__ import annotations

import openai
import pytest
from openai_client import openai_at, over
from running import serving
from upstream_double import CUT, Upstream, delta, role

BROKE_OFF = "the answer of a broke off"


async def read(client: openai.AsyncOpenAI, texts: list[str]) -> None:
    async for event in await client.responses.create(model="m", input="hi", stream=True):
        texts += [event.delta] if event.type == "response.output_text.delta" else []


async def read_with_the_helper(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model="m", input="hi") as stream:
        await stream.get_final_response()


async def test_a_stream_that_breaks_off_is_an_api_error_with_our_message(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), CUT, repeat=2)
    texts: list[str] = []

    async with serving(over(a)) as running, openai_at(running) as client:
        with pytest.raises(openai.APIError, match=BROKE_OFF) as caught:
            await read(client, texts)
        with pytest.raises(openai.APIError, match=BROKE_OFF):
            await read_with_the_helper(client)

    assert texts == ["Hel"]
    assert caught.value.code == "stream_interrupted"
