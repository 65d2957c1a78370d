"""Plain answers, whatever form the provider gave them."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from asking import Bare, finishes, text
from running import CHAT, STREAM, serving, yaml
from upstream_double import Item, Upstream, answer, chunk, completion, delta, finish, role, thought, tool_call, usage


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
async def test_a_stream_that_nobody_asked_for_becomes_one_completion(a: Upstream, b: Upstream, kind: str) -> None:
    a.stream(delta("Hel"), delta("lo"), finish(), usage(1, 2), "[DONE]", headers={"content-type": kind})

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat({**CHAT, "stream": False})

    body = got.json()
    assert got.headers["content-type"] == "application/json"
    assert body["object"] == "chat.completion"
    assert (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]) == ("Hello", "stop")
    assert body["usage"]["total_tokens"] == 3
    assert b.requests == []


async def test_the_whole_of_a_stream_is_in_the_completion(a: Upstream) -> None:
    call, rest = tool_call("f", '{"q"'), {"index": 0, "function": {"arguments": ':"x"}'}}
    a.stream(role(), thought("Let "), thought("me"), delta("See"), chunk({"tool_calls": [call]}), chunk({"tool_calls": [rest]}), finish("tool_calls"), "[DONE]")

    async with serving(yaml({"a": a.url})) as running:
        choice = (await running.chat()).json()["choices"][0]

    message = choice["message"]
    assert (message["role"], message["content"], message["reasoning_content"]) == ("assistant", "See", "Let me")
    assert message["tool_calls"] == [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"q":"x"}'}}]
    assert choice["finish_reason"] == "tool_calls"


async def test_a_plain_answer_becomes_a_stream_for_a_client_that_wants_one(a: Upstream) -> None:
    a.reply(completion("Hello", reasoning_content="so"), repeat=2)

    async with serving(yaml({"a": a.url})) as running:
        events = await running.events({**STREAM, "stream_options": {"include_usage": True}})

    assert (text(events), text(events, "reasoning_content"), finishes(events)) == ("Hello", "so", ["stop"])
    assert events[-1] == "[DONE]"
    assert '"total_tokens":8' in events[-2]


async def test_a_cut_stream_is_no_answer_for_a_client_that_wants_it_plain(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("Hel"))
    b.reply(completion("whole"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat()

    assert got.json()["choices"][0]["message"]["content"] == "whole"
    assert got.headers["x-thinkgate-chain"] == "a=protocol,b=200"


async def test_blank_lines_before_the_answer_keep_the_connection_alive_and_commit_nothing(a: Upstream, b: Upstream) -> None:
    blank: list[Item] = [b"\n", 0.07] * 5
    a.stream(*blank, b'{"choices":[{"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}', headers={"content-type": "application/json"})
    a.stream(*blank, b"<html>gateway timeout</html>", headers={"content-type": "application/json"})
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 0\ntimeouts: {idle: 200ms}")) as running:
        first, second = await running.chat(), await running.chat()

    assert first.json()["choices"][0]["message"]["content"] == "ok"
    assert second.json()["choices"][0]["message"]["content"] == "from b"


async def test_blank_lines_for_ever_end_at_the_total_timeout(a: Upstream, b: Upstream) -> None:
    blank: list[Item] = [b"\n", 0.05]
    a.stream(*blank * 100, headers={"content-type": "application/json"})
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 0\ntimeouts: {idle: 300ms, total: 400ms}")) as running:
        began = asyncio.get_running_loop().time()
        got = await running.chat()

    assert got.headers["x-thinkgate-chain"] == "a=timeout,b=200"
    assert asyncio.get_running_loop().time() - began < 1.2


async def test_a_compressed_answer_reaches_the_client_plain(a: Upstream) -> None:
    a.reply(
        gzip.compress(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"gz"},"finish_reason":"stop"}]}'),
        headers={"content-encoding": "gzip", "content-type": "application/json"},
    )

    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat(None, accept_encoding="identity")

    assert got.json()["choices"][0]["message"]["content"] == "gz"
    assert "content-encoding" not in got.headers
    assert got.headers["content-length"] == str(len(got.content))
    assert a.requests[0].headers["accept-encoding"] == "identity"


async def test_a_compressed_stream_arrives_event_by_event(a: Upstream) -> None:
    packer = zlib.compressobj(wbits=31)

    def packed(data: bytes) -> bytes:
        return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)

    first = packed(b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n')
    last = packed(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n') + packer.flush()
    a.stream(first, 0.9, last, headers={"content-encoding": "gzip"})

    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url)
        await client.until(b'"content":"one"', seconds=0.6)
        assert b"content-encoding" not in client.got.lower()
        await client.until(b"[DONE]")
        await client.close()


@pytest.mark.parametrize("content", ["", None], ids=["empty text", "null"])
async def test_an_empty_answer_is_none_unless_the_model_says_so(a: Upstream, b: Upstream, content: str | None) -> None:
    a.reply(completion(content), repeat=2)
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        strict = await running.chat()
    async with serving(yaml({"a": a.url, "b": b.url}, model="empty_answer: accept")) as running:
        lenient = await running.chat()

    assert strict.headers["x-thinkgate-chain"] == "a=protocol,b=200"
    assert lenient.json()["choices"][0]["message"]["content"] == content
    assert len(b.requests) == 1


@pytest.mark.parametrize("items", [answer()[-1:], [role(), finish(), *answer()[-1:]]], ids=["nothing", "an end"])
async def test_an_empty_stream_that_is_accepted_says_whose_it_is(a: Upstream, items: list[Item]) -> None:
    a.stream(*items)

    async with serving(yaml({"a": a.url}, model="empty_answer: accept")) as running:
        got = await running.chat(STREAM)

    assert got.text.endswith("data: [DONE]\n\n")
    assert (got.headers["x-thinkgate-provider"], got.headers["x-thinkgate-attempts"], got.headers["x-thinkgate-chain"]) == ("a", "1", "a=200")


async def test_an_answer_that_was_cut_by_length_before_its_first_word_is_an_answer(a: Upstream, b: Upstream) -> None:
    a.reply(completion("", finish="length")).stream(role(), finish("length"), *answer()[-1:])

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        plain = await running.chat()
        streamed = await running.events()

    assert plain.json()["choices"][0]["finish_reason"] == "length"
    assert finishes(streamed) == ["length"]
    assert b.requests == []
