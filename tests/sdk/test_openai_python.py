"""What the newest `openai` for Python gets from a gateway: answers, streams, tools, forms, models, headers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI, LengthFinishReasonError, OpenAI, pydantic_function_tool
from openai_client import HI, WEATHER_TOOL, Weather, openai_at, over, strict_deepseek
from running import KEY, Running, serving
from upstream_double import Upstream, answer, chunk, completion, delta, events, finish, plain, role, thought, tool_call


def text_of(chunks: list[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def collect(client: AsyncOpenAI, **more: Any) -> list[Any]:
    return [chunk async for chunk in await client.chat.completions.create(model="m", messages=HI, stream=True, **more)]


class TestAnswers:
    async def test_a_plain_answer_has_everything_that_the_provider_said(self, a: Upstream) -> None:
        a.reply(completion("Hello", reasoning_content="so", audio={"id": "x"}))

        async with serving(over(a)) as running, openai_at(running) as client:
            said = await client.chat.completions.create(model="m", messages=HI, temperature=0.5, extra_body={"made_up": {"x": None}})

        message = said.choices[0].message
        assert (said.object, message.role, message.content, said.choices[0].finish_reason) == ("chat.completion", "assistant", "Hello", "stop")
        assert message.model_extra == {"reasoning_content": "so"}
        assert message.audio is not None
        assert message.audio.id == "x"
        assert said.usage is not None
        assert said.usage.total_tokens == 8
        assert a.requests[0].json == {"model": "a-model", "messages": HI, "temperature": 0.5, "made_up": {"x": None}}

    async def test_the_clients_key_and_headers_stay_here(self, a: Upstream) -> None:
        async with serving(over(a.reply())) as running, openai_at(running, organization="org-1", project="proj-1") as client:
            await client.chat.completions.create(model="m", messages=HI)

        headers = a.requests[0].headers
        assert headers["authorization"] == "Bearer key-of-a-0123456789"
        assert not [name for name in headers if name.startswith(("x-stainless", "openai-"))]
        assert KEY not in json.dumps(headers)
        assert headers["user-agent"].startswith("thinkgate/")

    async def test_the_request_id_is_the_one_of_the_response_and_of_the_upstream(self, a: Upstream) -> None:
        async with serving(over(a.reply())) as running, openai_at(running) as client:
            made = await client.chat.completions.create(model="m", messages=HI)
            given = await client.chat.completions.create(model="m", messages=HI, extra_headers={"X-Request-ID": "mine-1"})

        assert made._request_id is not None
        assert made._request_id.startswith("req_")
        assert given._request_id == "mine-1"
        assert [seen.headers["x-request-id"] for seen in a.requests] == [made._request_id, "mine-1"]

    async def test_the_synchronous_client_gets_the_same(self, a: Upstream) -> None:
        a.reply(completion("plain")).stream(*answer("str", "eamed"))

        def ask(running: Running) -> tuple[str | None, str]:
            with OpenAI(base_url=running.url, api_key=KEY) as client:
                plain = client.chat.completions.create(model="m", messages=HI).choices[0].message.content
                return plain, text_of(list(client.chat.completions.create(model="m", messages=HI, stream=True)))

        async with serving(over(a)) as running:
            assert await asyncio.to_thread(ask, running) == ("plain", "streamed")

    async def test_two_choices_arrive_plain_and_streamed(self, a: Upstream) -> None:
        both = completion("one")
        both["choices"].append({**both["choices"][0], "index": 1, "message": {"role": "assistant", "content": "two", "refusal": None}})
        a.reply(both).stream(role(), role(index=1), delta("o"), delta("two", index=1), delta("ne"), finish(), finish(index=1), "[DONE]")

        async with serving(over(a)) as running, openai_at(running) as client:
            whole = await client.chat.completions.create(model="m", messages=HI, n=2)
            async with client.chat.completions.stream(model="m", messages=HI, n=2) as stream:
                streamed = await stream.get_final_completion()

        assert a.requests[0].json["n"] == 2
        for said in (whole, streamed):
            assert [(c.index, c.message.content, c.finish_reason) for c in said.choices] == [(0, "one", "stop"), (1, "two", "stop")]

    async def test_a_fallback_is_seen_in_headers_only(self, a: Upstream, b: Upstream) -> None:
        a.reply({"error": {"message": "down"}}, status=500)
        b.reply(completion("from b"))

        async with serving(over(a, b)) as running, openai_at(running) as client:
            raw = await client.chat.completions.with_raw_response.create(model="m", messages=HI)

        assert raw.parse().choices[0].message.content == "from b"
        assert (raw.headers["x-thinkgate-chain"], raw.headers["x-thinkgate-attempts"], raw.headers["x-thinkgate-provider"]) == ("a=500,b=200", "2", "b")
        assert (raw.status_code, raw.retries_taken) == (200, 0)

    async def test_a_request_can_be_narrowed_to_one_provider(self, a: Upstream, b: Upstream) -> None:
        b.reply(completion("from b"))

        async with serving(over(a, b)) as running, openai_at(running) as client:
            said = await client.chat.completions.create(model="m", messages=HI, extra_headers={"x-thinkgate-provider": "b"})

        assert said.choices[0].message.content == "from b"
        assert a.requests == []
        assert "x-thinkgate-provider" not in b.requests[0].headers


class TestStreams:
    async def test_every_chunk_is_of_one_answer_and_usage_comes_when_it_was_asked_for(self, a: Upstream) -> None:
        a.stream(*answer("Hel", "lo", usage_chunk=True), repeat=2)

        async with serving(over(a)) as running, openai_at(running) as client:
            without = await collect(client)
            asked = await collect(client, stream_options={"include_usage": True})

        assert [seen.json["stream_options"] for seen in a.requests] == [{"include_usage": True}] * 2
        assert text_of(without) == text_of(asked) == "Hello"
        assert all(chunk.choices and chunk.usage is None for chunk in without)
        assert [chunk.usage.total_tokens for chunk in asked if chunk.usage] == [8]
        assert asked[-1].choices == []
        assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in asked}) == 1
        assert [c.finish_reason for chunk in asked for c in chunk.choices if c.finish_reason] == ["stop"]

    async def test_reasoning_streams_beside_the_text(self, a: Upstream) -> None:
        a.stream(role(), thought("I "), thought("see"), delta("Yes"), finish(), "[DONE]")

        async with serving(over(a)) as running, openai_at(running) as client:
            chunks = await collect(client)

        assert "".join(getattr(c.delta, "reasoning_content", None) or "" for chunk in chunks for c in chunk.choices) == "I see"
        assert text_of(chunks) == "Yes"

    async def test_a_provider_that_will_not_stream_and_one_that_always_does_are_both_understood(self, a: Upstream) -> None:
        a.reply(completion("whole")).stream(*answer("in ", "pieces"))

        async with serving(over(a)) as running, openai_at(running) as client:
            streamed = await collect(client)
            whole = await client.chat.completions.create(model="m", messages=HI)

        assert text_of(streamed) == "whole"
        assert whole.choices[0].message.content == "in pieces"
        assert whole.object == "chat.completion"

    async def test_the_raw_stream_has_the_headers_of_the_answer(self, a: Upstream) -> None:
        a.stream()

        async with (
            serving(over(a)) as running,
            openai_at(running) as client,
            client.chat.completions.with_streaming_response.create(model="m", messages=HI, stream=True) as raw,
        ):
            lines = [line async for line in raw.iter_lines()]

        assert raw.headers["content-type"].startswith("text/event-stream")
        assert raw.headers["x-thinkgate-model"] == "a-model"
        assert lines[-2:] == ["data: [DONE]", ""]

    async def test_leaving_a_stream_ends_the_upstreams_answer(self, a: Upstream) -> None:
        a.stream(role(), delta("Hel"), 5.0, delta("lo"))

        async with serving(over(a)) as running, openai_at(running) as client:
            stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
            async for chunk in stream:
                if text_of([chunk]):
                    break
            await stream.close()
            await a.until(lambda upstream: upstream.disconnected)

        assert len(a.disconnected) == 1


class TestTools:
    async def test_the_stream_helper_reads_calls_and_their_arguments(self, a: Upstream) -> None:
        first, second = tool_call("get_weather", '{"ci'), {"index": 0, "function": {"arguments": 'ty":"Paris"}'}}
        other = tool_call("get_weather", '{"city":"Rome"}', id="call_2", index=1)
        a.stream(role(), chunk({"tool_calls": [first]}), chunk({"tool_calls": [second]}), chunk({"tool_calls": [other]}), finish("tool_calls"), "[DONE]")

        async with (
            serving(over(a)) as running,
            openai_at(running) as client,
            client.chat.completions.stream(model="m", messages=HI, tools=[pydantic_function_tool(Weather, name="get_weather")]) as stream,
        ):
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()

        calls = final.choices[0].message.tool_calls or []
        assert [(call.id, call.function.name, call.function.parsed_arguments) for call in calls] == [
            ("call_1", "get_weather", Weather(city="Paris")),
            ("call_2", "get_weather", Weather(city="Rome")),
        ]
        assert final.choices[0].finish_reason == "tool_calls"
        assert kinds.count("tool_calls.function.arguments.done") == 2

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_a_second_turn_that_lost_the_reasoning_is_accepted_by_deepseek(self, a: Upstream, stream: bool) -> None:
        call = tool_call("get_weather", '{"city":"Paris"}')
        a.call(
            strict_deepseek(
                [events(role(), thought("I need it"), chunk({"tool_calls": [call]}), finish("tool_calls"), "[DONE]"), events(*answer("Sunny"))]
                if stream
                else [plain(completion(None, calls=[call], reasoning_content="I need it")), plain(completion("Sunny"))]
            )
        )

        async with serving(over(a, adapter="deepseek")) as running, openai_at(running) as client:

            async def turn(messages: list[Any]) -> Any:
                if not stream:
                    return (await client.chat.completions.create(model="m", messages=messages, tools=[WEATHER_TOOL])).choices[0].message
                async with client.chat.completions.stream(model="m", messages=messages, tools=[WEATHER_TOOL]) as streaming:
                    return (await streaming.get_final_completion()).choices[0].message

            first = await turn(HI)
            call = first.tool_calls[0]
            function = {"name": call.function.name, "arguments": call.function.arguments}
            kept = {"role": "assistant", "content": first.content, "tool_calls": [{"id": call.id, "type": call.type, "function": function}]}
            last = await turn([*HI, kept, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}])

        assert last.content == "Sunny"
        assert len(a.requests) == 2  # the second turn was right at once: no repair
        assert a.requests[1].json["messages"][1]["reasoning_content"] == "I need it"  # remembered by the id of the call

    async def test_a_message_given_back_as_the_sdk_has_it_keeps_its_reasoning(self, a: Upstream) -> None:
        call = tool_call("get_weather", '{"city":"Paris"}')
        a.call(strict_deepseek([plain(completion(None, calls=[call], reasoning_content="I need it")), plain(completion("Sunny"))]))

        async with serving(over(a, adapter="deepseek")) as running, openai_at(running) as client:
            first = (await client.chat.completions.create(model="m", messages=HI, tools=[WEATHER_TOOL])).choices[0].message
            given: Any = first
            result: Any = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
            await client.chat.completions.create(model="m", messages=[*HI, given, result], tools=[WEATHER_TOOL])

        assert a.requests[1].json["messages"][1]["reasoning_content"] == "I need it"


class TestForms:
    async def test_parse_gives_the_model_object(self, a: Upstream) -> None:
        a.reply(completion('{"city":"Paris"}'))

        async with serving(over(a)) as running, openai_at(running) as client:
            said = await client.chat.completions.parse(model="m", messages=HI, response_format=Weather)

        assert said.choices[0].message.parsed == Weather(city="Paris")
        asked = a.requests[0].json["response_format"]
        assert (asked["type"], asked["json_schema"]["name"], asked["json_schema"]["strict"]) == ("json_schema", "Weather", True)

    async def test_parse_gives_the_parsed_arguments_of_a_tool(self, a: Upstream) -> None:
        a.reply(completion(None, calls=[tool_call("get_weather", '{"city":"Paris"}')]))

        async with serving(over(a)) as running, openai_at(running) as client:
            said = await client.chat.completions.parse(model="m", messages=HI, tools=[pydantic_function_tool(Weather, name="get_weather")])

        assert (said.choices[0].message.tool_calls or [])[0].function.parsed_arguments == Weather(city="Paris")

    async def test_a_streamed_form_is_parsed_too(self, a: Upstream) -> None:
        a.stream(*answer('{"city":', '"Paris"}'))

        async with (
            serving(over(a)) as running,
            openai_at(running) as client,
            client.chat.completions.stream(model="m", messages=HI, response_format=Weather) as stream,
        ):
            assert (await stream.get_final_completion()).choices[0].message.parsed == Weather(city="Paris")

    async def test_a_refusal_and_a_cut_by_length_are_what_the_sdk_knows_them_as(self, a: Upstream) -> None:
        a.reply({**completion(None), "choices": [{"index": 0, "message": {"role": "assistant", "content": None, "refusal": "No."}, "finish_reason": "stop"}]})
        a.reply(completion('{"ci', finish="length"))

        async with serving(over(a)) as running, openai_at(running) as client:
            refused = await client.chat.completions.parse(model="m", messages=HI, response_format=Weather)
            with pytest.raises(LengthFinishReasonError):
                await client.chat.completions.parse(model="m", messages=HI, response_format=Weather)

        assert (refused.choices[0].message.refusal, refused.choices[0].message.parsed) == ("No.", None)


class TestModels:
    async def test_the_list_names_what_can_be_asked_for(self, a: Upstream) -> None:
        async with serving(over(a, more='  "gpt-*": a/gpt-*\n')) as running, openai_at(running) as client:
            names = [model.id async for model in client.models.list()]
            one = await client.models.retrieve("m")
            by_pattern = await client.models.retrieve("gpt-9")
            by_provider = await client.models.retrieve("a/anything")

        assert "m" in names
        assert (one.id, one.object, one.owned_by) == ("m", "model", "thinkgate")
        assert isinstance(one.created, int)
        assert (by_pattern.id, by_provider.id) == ("gpt-9", "a/anything")

    async def test_a_model_is_asked_for_by_pattern_or_by_its_provider(self, a: Upstream) -> None:
        a.reply(repeat=2)

        async with serving(over(a, more='  "gpt-*": a/gpt-*\n')) as running, openai_at(running) as client:
            await client.chat.completions.create(model="gpt-9", messages=HI)
            await client.chat.completions.create(model="a/anything", messages=HI)

        assert [seen.json["model"] for seen in a.requests] == ["gpt-9", "anything"]
