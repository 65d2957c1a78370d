"""What the newest `anthropic` for Python gets from a gateway over a provider that speaks chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from openai_client import HI, over, strict_deepseek
from running import KEY, Running, serving
from upstream_double import CUT, Upstream, answer, chunk, completion, delta, events, finish, plain, role, thought, tool_call

TOOL: Any = {"name": "get_weather", "description": "The weather in a city", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = tool_call("get_weather", '{"city":"Paris"}')


@asynccontextmanager
async def anthropic_at(running: Running, key: str = KEY, **options: Any) -> AsyncIterator[AsyncAnthropic]:
    """The client with its own defaults, retries included."""
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False)  # loading the CAs costs more than the test
    async with AsyncAnthropic(base_url=running.url.removesuffix("/v1"), api_key=key, http_client=http, **options) as client:
        yield client


async def ask(client: AsyncAnthropic, messages: list[Any] = HI, *, stream: bool = False, **more: Any) -> Any:
    if not stream:
        return await client.messages.create(model="m", max_tokens=50, messages=messages, **more)
    async with client.messages.stream(model="m", max_tokens=50, messages=messages, **more) as streaming:
        return await streaming.get_final_message()


class TestAnswers:
    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_text_reasoning_and_usage(self, a: Upstream, stream: bool) -> None:
        if stream:
            a.stream(role(), thought("so"), *answer("Hel", "lo", usage_chunk=True)[1:])
        else:
            a.reply(completion("Hello", reasoning_content="so"))

        async with serving(over(a)) as running, anthropic_at(running) as client:
            said = await ask(client, stream=stream)

        assert [block.type for block in said.content] == ["thinking", "text"]
        assert (said.content[0].thinking, said.content[1].text, said.stop_reason) == ("so", "Hello", "end_turn")
        assert (said.usage.input_tokens, said.usage.output_tokens) == (5, 3)

    async def test_the_text_arrives_in_pieces(self, a: Upstream) -> None:
        a.stream(*answer("Hel", "lo"))

        async with (
            serving(over(a)) as running,
            anthropic_at(running) as client,
            client.messages.stream(model="m", max_tokens=50, messages=HI) as stream,
        ):
            assert [text async for text in stream.text_stream] == ["Hel", "lo"]

    async def test_either_header_carries_the_key_and_the_answer_its_id(self, a: Upstream) -> None:
        a.reply(repeat=2)

        async with serving(over(a)) as running, anthropic_at(running) as bearer, anthropic_at(running, default_headers={"x-api-key": KEY}) as both:
            assert (await ask(bearer))._request_id.startswith("req_")
            assert (await ask(both)).content[0].text == "Hello"

    async def test_models_are_listed_in_anthropics_shape(self, a: Upstream) -> None:
        async with serving(over(a)) as running, anthropic_at(running) as client:
            models = [model async for model in client.models.list()]
            one = await client.models.retrieve("m")

        assert "m" in [model.id for model in models]
        assert (one.id, one.type, one.display_name) == ("m", "model", "m")


class TestTools:
    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    @pytest.mark.parametrize("kept", ["with thinking", "lost"])
    async def test_deepseek_accepts_the_second_turn(self, a: Upstream, stream: bool, kept: str) -> None:
        whole = [plain(completion(None, calls=[CALL], reasoning_content="I need it")), plain(completion("Sunny"))]
        pieces = [events(role(), thought("I need it"), chunk({"tool_calls": [CALL]}), finish("tool_calls"), "[DONE]"), events(*answer("Sunny"))]
        a.call(strict_deepseek(pieces if stream else whole))

        async with serving(over(a, adapter="deepseek")) as running, anthropic_at(running) as client:
            first = await ask(client, stream=stream, tools=[TOOL])
            used = next(block for block in first.content if block.type == "tool_use")
            turn = first.content if kept == "with thinking" else [used]
            result = {"type": "tool_result", "tool_use_id": used.id, "content": "sunny"}
            history = [*HI, {"role": "assistant", "content": turn}, {"role": "user", "content": [result]}]
            last = await ask(client, history, stream=stream, tools=[TOOL])

        assert (first.stop_reason, used.name, used.input) == ("tool_use", "get_weather", {"city": "Paris"})
        assert (last.content[0].text, len(a.requests)) == ("Sunny", 2)
        assert a.requests[1].json["messages"][1]["reasoning_content"] == "I need it"

    async def test_the_tool_runner_goes_round(self, a: Upstream) -> None:
        a.call(strict_deepseek([plain(completion(None, calls=[CALL], reasoning_content="I need it")), plain(completion("Sunny"))]))
        called = []

        @anthropic.beta_async_tool
        async def get_weather(city: str) -> str:
            """The weather in a city."""
            called.append(city)
            return "sunny"

        async with serving(over(a, adapter="deepseek")) as running, anthropic_at(running) as client:
            last = await client.beta.messages.tool_runner(model="m", max_tokens=50, messages=HI, tools=[get_weather]).until_done()

        assert (called, last.content[0].text) == (["Paris"], "Sunny")


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "message", "kind", "requests"),
        [
            (400, "Invalid value: 'wizard'.", anthropic.BadRequestError, 1),
            (429, "slow down", anthropic.RateLimitError, 3),
            (402, "Insufficient Balance", anthropic.RateLimitError, 1),
            (401, "Incorrect API key provided", anthropic.InternalServerError, 1),
            (503, "overloaded", anthropic.InternalServerError, 3),
        ],
    )
    async def test_the_class_the_words_and_the_number_of_requests(
        self, a: Upstream, status: int, message: str, kind: type[anthropic.APIStatusError], requests: int
    ) -> None:
        a.reply({"error": {"message": message, "type": "some_error"}}, status=status)

        async with serving(over(a)) as running, anthropic_at(running) as client:
            with pytest.raises(kind, match=message.rstrip(".")) as caught:
                await ask(client)

        assert len(a.requests) == requests
        assert caught.value.request_id
        assert KEY not in str(caught.value)

    async def test_a_wrong_key(self, a: Upstream) -> None:
        async with serving(over(a)) as running, anthropic_at(running, "wrong-key-123456") as client:
            with pytest.raises(anthropic.AuthenticationError) as caught:
                await ask(client)

        assert "wrong-key" not in str(caught.value)
        assert a.requests == []

    async def test_a_stream_that_breaks_off_is_an_error_with_our_message(self, a: Upstream) -> None:
        a.stream(role(), delta("Hel"), CUT)

        async with serving(over(a)) as running, anthropic_at(running) as client:
            with pytest.raises(anthropic.APIStatusError, match="the answer of a broke off"):
                await ask(client, stream=True)

        assert len(a.requests) == 1
