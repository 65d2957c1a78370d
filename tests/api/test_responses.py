"""/v1/responses and /v1/messages through the SDKs of their makers, over providers that speak chat."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest
from running import Running, serving, yaml
from upstream_double import Upstream, answer, chunk, completion, finish, role, thought, tool_call

TOOL = {"type": "function", "name": "w", "description": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


@pytest.fixture
async def running(a: Upstream) -> AsyncIterator[Running]:
    async with serving(yaml({"a": a.url})) as running:
        yield running


@pytest.fixture
async def client(running: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(running: Running) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=running.url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
        yield client


async def test_a_later_request_refers_to_an_earlier_answer(a: Upstream, client: openai.AsyncOpenAI) -> None:
    a.reply(completion("Paris"))
    a.reply(completion("Two million"))
    first = await client.responses.create(model="m", input="Capital of France?", instructions="Be brief")
    second = await client.responses.create(model="m", input="How many people?", previous_response_id=first.id)

    assert second.output_text == "Two million"
    assert second.previous_response_id == first.id
    said = [(m["role"], m["content"]) for m in a.requests[1].json["messages"]]
    assert said == [("user", "Capital of France?"), ("assistant", "Paris"), ("user", "How many people?")]


async def test_answers_are_kept_listed_and_forgotten(a: Upstream, client: openai.AsyncOpenAI) -> None:
    a.reply(completion("Paris"))
    made = await client.responses.create(model="m", input="Capital?")
    got = await client.responses.retrieve(made.id)
    items = await client.responses.input_items.list(made.id)
    await client.responses.delete(made.id)

    assert got.output_text == "Paris"
    assert items.data[0].type == "message"
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_a_streamed_answer_is_kept_too(a: Upstream, client: openai.AsyncOpenAI) -> None:
    a.stream(*answer("Pa", "ris"))
    async with client.responses.stream(model="m", input="Capital?") as stream:
        kinds = [event.type async for event in stream]
        made = await stream.get_final_response()

    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert (await client.responses.retrieve(made.id)).output_text == "Paris"


async def test_store_false_keeps_nothing(a: Upstream, client: openai.AsyncOpenAI) -> None:
    a.reply(completion("x"))
    made = await client.responses.create(model="m", input="x", store=False)

    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_an_unknown_earlier_answer_is_named(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="m", input="x", previous_response_id="resp_nope")

    assert caught.value.param == "previous_response_id"


async def test_a_tool_loop_keeps_its_reasoning(a: Upstream, client: openai.AsyncOpenAI) -> None:
    call = tool_call("w", '{"city":"Paris"}', id="call_9")
    a.stream(role(), thought("need weather"), chunk({"tool_calls": [call]}), finish("tool_calls"), "[DONE]")
    a.reply(completion("20C"))
    async with client.responses.stream(model="m", input="weather in Paris?", tools=[TOOL]) as stream:  # type: ignore[list-item]
        first = await stream.get_final_response()
    called = next(item for item in first.output if item.type == "function_call")
    output = {"type": "function_call_output", "call_id": called.call_id, "output": "20C"}
    second = await client.responses.create(model="m", input=[output], previous_response_id=first.id, tools=[TOOL])  # type: ignore[list-item]

    assert second.output_text == "20C"
    turn = a.requests[1].json["messages"][1]
    assert turn["tool_calls"][0]["id"] == "call_9"
    assert turn["reasoning_content"] == "need weather"


async def test_a_total_failure_before_the_stream_is_a_status(a: Upstream, client: openai.AsyncOpenAI) -> None:
    a.reply({"error": {"message": "down"}}, status=500)
    with pytest.raises(openai.InternalServerError):
        async with client.responses.stream(model="m", input="x") as stream:
            await stream.get_final_response()


async def test_a_stream_that_breaks_off_ends_with_failed(a: Upstream, running: Running) -> None:
    a.stream(role(), chunk({"content": "half"}))
    got = await running.client.post("/v1/responses", json={"model": "m", "input": "x", "stream": True})

    names = [line[7:] for line in got.text.split("\n") if line.startswith("event: ")]
    assert names[-2:] == ["error", "response.failed"]
    assert "broke off" in got.text or "middle of the answer" in got.text


async def test_counting_and_what_is_not_served(running: Running) -> None:
    counted = await running.client.post("/v1/responses/input_tokens", json={"model": "m", "input": "hello " * 100})
    compact = await running.client.post("/v1/responses/compact", json={"model": "m", "input": "x"})

    assert 100 < counted.json()["input_tokens"] < 300
    assert compact.status_code == 501


async def test_messages_plain_streamed_and_with_tools(a: Upstream, claude: anthropic.AsyncAnthropic) -> None:
    a.reply(completion("Hi"))
    a.stream(role(), thought("hm"), chunk({"tool_calls": [tool_call("w", '{"city":"Paris"}', id="call_9")]}), finish("tool_calls"), "[DONE]")
    plain = await claude.messages.create(model="m", max_tokens=50, messages=[{"role": "user", "content": "hi"}])
    tool = {"name": "w", "input_schema": TOOL["parameters"]}
    async with claude.messages.stream(model="m", max_tokens=50, messages=[{"role": "user", "content": "weather?"}], tools=[tool]) as stream:  # type: ignore[list-item]
        message = await stream.get_final_message()

    assert plain.content[0].type == "text"
    assert [block.type for block in message.content] == ["thinking", "tool_use"]
    assert message.stop_reason == "tool_use"


async def test_errors_of_messages_are_anthropics(a: Upstream, claude: anthropic.AsyncAnthropic) -> None:
    a.reply({"error": {"message": "busy"}}, status=503)
    with pytest.raises(anthropic.APIStatusError) as caught:
        await claude.messages.create(model="m", max_tokens=50, messages=[{"role": "user", "content": "hi"}])

    assert caught.value.status_code == 529
    assert caught.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    assert caught.value.request_id


async def test_tokens_of_messages_are_estimated_where_no_provider_counts(claude: anthropic.AsyncAnthropic) -> None:
    counted = await claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hello " * 100}])

    assert 100 < counted.input_tokens < 300


async def test_a_provider_that_speaks_messages_counts_itself(a: Upstream) -> None:
    a.reply({"input_tokens": 7})
    async with serving(yaml({"a": a.url}, a="options: {speaks: [messages]}")) as running:
        answer = await running.client.post("/v1/messages/count_tokens", json={"model": "m", "messages": [{"role": "user", "content": "hi"}]})

    assert answer.json() == {"input_tokens": 7}
    assert a.requests[0].path.endswith("/messages/count_tokens")


async def test_the_providers_own_dialect_goes_through_untranslated(a: Upstream) -> None:
    events = [
        (
            "message_start",
            '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"x","content":[],"usage":{"input_tokens":3}}}',
        ),
        ("content_block_start", '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'),
        ("content_block_delta", '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}, "x_unknown": 1.0}'),
        ("content_block_stop", '{"type":"content_block_stop","index":0}'),
        ("message_delta", '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}'),
        ("message_stop", '{"type":"message_stop"}'),
    ]
    a.stream(*events)
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True, "x_unknown": {"a": None}}
    async with serving(yaml({"a": a.url}, a="options: {speaks: [messages]}")) as running:
        answer = await running.client.post("/v1/messages?beta=true", json=body, headers={"anthropic-beta": "b1", "anthropic-version": "2026-10-21"})

    assert answer.text == "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events)
    assert a.requests[0].json == {**body, "model": "a-model"}
    assert a.requests[0].headers["anthropic-beta"] == "b1"
    assert a.requests[0].headers["anthropic-version"] == "2026-10-21"
    assert (a.requests[0].path, a.requests[0].query) == ("/messages", "beta=true")


@pytest.mark.parametrize(("query", "speaks"), [("beta=true", "chat"), ("beta=true&x=1", "messages"), ("x=1", "messages")])
async def test_no_other_query_and_no_other_dialects_provider_gets_the_clients_query(a: Upstream, query: str, speaks: str) -> None:
    a.reply(
        completion("Hi")
        if speaks == "chat"
        else {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    )
    async with serving(yaml({"a": a.url}, a=f"options: {{speaks: [{speaks}]}}")) as running:
        answer = await running.client.post(f"/v1/messages?{query}", json={"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]})

    assert answer.status_code == 200
    assert a.requests[0].query == ""
