"""How streams begin and end: the moment of commitment, cuts, errors inside, silence."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from asking import PATIENT, Bare, error_of, finishes, sdk, shaped, text
from openai import APIError
from running import CHAT, STREAM, serving, yaml
from upstream_double import CUT, DONE, HANG, RESET, Item, Upstream, answer, chunk, completion, delta, event_bytes, finish, role, thought, tool_call
from upstream_double import events as events_of

BOOM: dict[str, Any] = {"error": {"message": "quota exceeded", "type": "rate_limit_error", "code": 429}}
CONTENT: dict[str, list[Item]] = {
    "text": [role(), delta("Hello "), delta("w")],
    "reasoning": [role(), thought("hmm")],
    "tool call": [role(), chunk({"tool_calls": [tool_call("f", '{"a"')]})],
    "refusal": [role(), chunk({"refusal": "No"})],
}
ENDS: dict[str, list[Item]] = {
    "reset": [0.02, RESET],
    "cut": [CUT],
    "end without finish": [],
    "error event": [0.03, BOOM],
    "named error event": [0.03, ("error", {"message": "boom"})],
    "half an event": [b'data: {"choices":[{"del', CUT],
}
ERROR_FORMS: dict[str, list[Item]] = {
    "openai": [BOOM, DONE],
    "anthropic": [{"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}],
    "named": [("error", BOOM)],
    "after comments": [b": ping\n\n", b": ping\n\n", BOOM],
    "after the role": [role(), BOOM],
    "flat": [{"code": "429", "message": "rate limit exceeded"}],
    "base_resp": [{"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}],
}


@pytest.mark.parametrize("form", ERROR_FORMS)
async def test_an_error_before_the_first_content_moves_on_and_is_not_seen(a: Upstream, b: Upstream, form: str) -> None:
    a.stream(*ERROR_FORMS[form])
    b.stream(*answer("from b"), repeat=2)

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat(STREAM)
        again = await running.chat(STREAM)

    events = [line[6:] for line in got.text.split("\n") if line.startswith("data: ")]
    assert got.status_code == 200
    assert (text(events), events[-1]) == ("from b", DONE)
    assert got.headers["x-thinkgate-chain"] == "a=rate_limit,b=200"
    assert again.headers["x-thinkgate-chain"] == "b=200"  # a rests as after a 429


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("content", CONTENT)
async def test_an_answer_that_breaks_off_ends_in_an_error_and_no_other_provider_goes_on(a: Upstream, b: Upstream, content: str, end: str) -> None:
    a.stream(*CONTENT[content], *ENDS[end])

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat(STREAM)

    events = [line[6:] for line in got.text.split("\n") if line.startswith("data: ")]
    error = error_of(events)
    assert shaped(error)
    assert (error["type"], error["code"]) == ("upstream_error", "stream_interrupted")
    assert text(events) == ("Hello w" if content == "text" else "")
    assert finishes(events) == []
    assert b.requests == []


@pytest.mark.parametrize("end", ["error event", "named error event"])
@pytest.mark.parametrize("content", CONTENT)
async def test_content_and_an_error_in_one_piece_are_what_they_are_in_two(a: Upstream, b: Upstream, content: str, end: str) -> None:
    """Whether another provider answers must not hang on how the network packed the events."""
    a.stream(b"".join(event_bytes(item) for item in [*CONTENT[content], ENDS[end][-1]]))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat(STREAM)

    events = [line[6:] for line in got.text.split("\n") if line.startswith("data: ")]
    assert got.headers["x-thinkgate-chain"] == "a=200"
    assert error_of(events)["code"] == "stream_interrupted"
    assert text(events) == ("Hello w" if content == "text" else "")
    assert b.requests == []


@pytest.mark.parametrize("items", [[RESET], [CUT], [role(), RESET], [role(), CUT]], ids=repr)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_a_200_that_is_cut_before_content_is_protocol(a: Upstream, b: Upstream, items: list[Item], stream: bool) -> None:
    a.stream(*items)
    b.call(lambda seen: events_of(*answer("from b")))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat({**CHAT, "stream": stream})

    assert got.headers["x-thinkgate-chain"] == "a=protocol,b=200"
    assert "from b" in got.text


MESSAGE: list[Item] = [
    ("message_start", {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}}),
    ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
]
HALF: dict[str, tuple[list[Item], Item, bytes, list[Item]]] = {
    "openai": ([role()], delta("Hello "), b'data: {"choices":[{"index":0,"delta":{"content":"w\n\n', [delta("!"), finish(), DONE]),
    "anthropic": (
        MESSAGE,
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello "}}),
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","te\n\n',
        [
            ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
            ("message_stop", {"type": "message_stop"}),
        ],
    ),
    "gemini": (
        [],
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello "}]}}]},
        b'data: {"candidates": [{"content": {"parts": [{"te\n\n',
        [{"candidates": [{"content": {"role": "model", "parts": [{"text": "!"}]}, "finishReason": "STOP"}]}],
    ),
}


@pytest.mark.parametrize("adapter", HALF)
async def test_an_event_that_is_not_whole_is_no_part_of_a_whole_answer(a: Upstream, b: Upstream, adapter: str) -> None:
    """R10. Before content the next provider answers, after it the client is told."""
    start, content, half, end = HALF[adapter]
    a.stream(*start, half, content, *end)
    a.stream(*start, content, half, *end)
    b.stream(*answer("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a=f"adapter: {adapter}\n{PATIENT}")) as running:
        before = await running.chat(STREAM)
        after = await running.events()

    assert before.headers["x-thinkgate-chain"] == "a=protocol,b=200"
    assert text(after) == "Hello "
    assert error_of(after)["code"] == "stream_interrupted"
    assert len(b.requests) == 1


async def test_nor_does_one_go_on_to_a_client_that_speaks_the_same(a: Upstream) -> None:
    start, content, half, end = HALF["anthropic"]
    a.stream(*start, content, half, *end)

    async with serving(yaml({"a": a.url}, a=f"adapter: anthropic\n{PATIENT}")) as running:
        got = await running.client.post("/v1/messages", json={**STREAM, "max_tokens": 9})

    data = [json.loads(line[6:]) for line in got.text.split("\n") if line.startswith("data: ")]
    assert [one["type"] for one in data] == ["message_start", "content_block_start", "content_block_delta", "error"]


@pytest.mark.parametrize("broken", [b"\\ud83d", b"\xff", b"\x01"], ids=["half a pair", "no UTF-8", "control character"])
async def test_an_event_with_a_broken_character_is_not_lost(a: Upstream, broken: bytes) -> None:
    start, _, _, end = HALF["anthropic"]
    said = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"He%sllo"}}\n\n' % broken
    a.stream(*start, said, *end)

    async with serving(yaml({"a": a.url}, a=f"adapter: anthropic\n{PATIENT}")) as running:
        events = await running.events()

    assert (text(events)[:2], text(events)[-3:], events[-1]) == ("He", "llo", DONE)


async def test_what_came_in_one_piece_with_an_error_is_not_lost(a: Upstream) -> None:
    a.stream(role(), delta("one "), 0.03, b"".join(event_bytes(item) for item in [delta("two "), delta("three"), BOOM, delta("never")]))

    async with serving(yaml({"a": a.url})) as running:
        events = await running.events()

    assert text(events) == "one two three"
    assert error_of(events)["code"] == "stream_interrupted"


@pytest.mark.parametrize("end", [[RESET], []], ids=["reset", "clean"])
async def test_the_sdk_notices_the_cut(a: Upstream, end: list[Item]) -> None:
    a.stream(role(), delta("one "), delta("two "), 0.02, *end)
    said = ""

    async def read() -> None:
        nonlocal said
        async for part in await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True):
            said += part.choices[0].delta.content or ""

    async with serving(yaml({"a": a.url})) as running, sdk(running) as client:
        with pytest.raises(APIError) as caught:
            await read()

    assert said == "one two "
    assert caught.value.code == "stream_interrupted"


@pytest.mark.parametrize("items", [[DONE], [finish(), CUT], [finish(), RESET], [finish()]], ids=["DONE alone", "finish, cut", "finish, reset", "finish"])
async def test_a_finish_or_done_is_a_clean_end_however_the_connection_closes(a: Upstream, items: list[Item]) -> None:
    a.stream(role(), delta("all"), *items)

    async with serving(yaml({"a": a.url})) as running:
        events = await running.events()

    assert (text(events), finishes(events), events[-1]) == ("all", ["stop"], DONE)


@pytest.mark.parametrize("items", [[RESET], [], [role()], [role(), RESET], [b": c\n\n"], [DONE], [role(), finish(), DONE], [role(), CUT]])
async def test_a_stream_without_content_is_no_answer(a: Upstream, b: Upstream, items: list[Item]) -> None:
    a.stream(*(items or [b""]), repeat=2)
    b.stream(*answer("b ok"))

    async with serving(yaml({"a": a.url, "b": b.url}, a=PATIENT)) as running:
        moved = await running.events()
        alone = await running.chat({**STREAM, "model": "a/a-model"})

    assert text(moved) == "b ok"
    assert alone.status_code == 502
    assert alone.headers["content-type"] == "application/json"
    assert [attempt["class"] for attempt in alone.json()["error"]["attempts"]] in (["protocol"], ["server"])


async def test_the_status_goes_out_with_the_first_content_and_not_before(a: Upstream) -> None:
    a.stream(b": hello\n\n", role(), 0.3, delta("late"), finish(), DONE)

    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url)
        await a.until(lambda upstream: upstream.requests)
        with pytest.raises(TimeoutError):
            await client.until(b"HTTP/1.1", seconds=0.15)
        assert (await client.head())[0] == 200
        assert b'"content":"late"' in await client.until(b"[DONE]")
        await client.close()


@pytest.mark.parametrize(
    "items",
    [[HANG], [b": keep\n\n", HANG], [b": ping\n\n", 0.05] * 60, [role(), HANG], [b"\n", HANG]],
    ids=["silence", "a comment", "comments for ever", "the role", "a blank line"],
)
async def test_the_first_token_timeout_is_about_content(a: Upstream, b: Upstream, items: list[Item]) -> None:
    a.stream(*items)
    b.stream(*answer("b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 0\ntimeouts: {first_token: 300ms, idle: 5s}")) as running:
        began = asyncio.get_running_loop().time()
        got = await running.chat(STREAM)
        took = asyncio.get_running_loop().time() - began
        await a.until(lambda upstream: upstream.open == 0)

    assert got.headers["x-thinkgate-chain"] == "a=first_token_timeout,b=200"
    assert 0.25 < took < 1.0
    assert len(a.disconnected) == 1


async def test_a_target_has_its_own_first_token_timeout(a: Upstream, b: Upstream) -> None:
    a.stream(HANG)
    b.stream(*answer("b"))
    config = yaml({"a": a.url, "b": b.url}).replace("- a/a-model", "- {target: a/a-model, first_token: 200ms}")

    async with serving(config) as running:
        assert text(await running.events()) == "b"


async def test_silence_in_the_middle_ends_after_the_idle_timeout(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("Hel"), HANG)

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 0\ntimeouts: {first_token: 5s, idle: 200ms}")) as running:
        began = asyncio.get_running_loop().time()
        events = await running.events()

    assert text(events) == "Hel"
    assert error_of(events)["code"] == "stream_interrupted"
    assert asyncio.get_running_loop().time() - began < 1.0
    assert b.requests == []


async def test_the_chains_deadline_ends_the_wait_for_first_content(a: Upstream, b: Upstream) -> None:
    a.stream(HANG)
    b.stream(*answer("b"))

    async with serving(yaml({"a": a.url, "b": b.url}, model="deadline: 300ms")) as running:
        began = asyncio.get_running_loop().time()
        got = await running.chat(STREAM)

    assert got.status_code == 504
    assert asyncio.get_running_loop().time() - began < 1.0
    attempts = got.json()["error"]["attempts"]
    assert [(attempt["provider"], "skipped" in attempt) for attempt in attempts] == [("a", False), ("b", True)]
    assert b.requests == []


async def test_what_follows_done_is_not_sent_on(a: Upstream) -> None:
    a.stream(*answer("x"), delta("more"), BOOM)

    async with serving(yaml({"a": a.url})) as running:
        events = await running.events()

    assert (text(events), events[-1], events.count(DONE)) == ("x", DONE, 1)


async def test_usage_that_never_comes_does_not_hold_up_the_end(a: Upstream) -> None:
    a.stream(role(), delta("x"), finish(), HANG)

    async with serving(yaml({"a": a.url})) as running:
        began = asyncio.get_running_loop().time()
        events = await running.events()

    assert events[-1] == DONE
    assert asyncio.get_running_loop().time() - began < 4


async def test_a_content_filter_finish_is_an_answer(a: Upstream, b: Upstream) -> None:
    a.stream(role(), finish("content_filter"), DONE).reply(completion(None, finish="content_filter"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        events = await running.events()
        plain = await running.chat(CHAT)

    assert finishes(events) == ["content_filter"]
    assert plain.json()["choices"][0]["finish_reason"] == "content_filter"
    assert b.requests == []


async def test_the_error_event_is_one_line_of_json(a: Upstream) -> None:
    a.stream(role(), delta("x"), 0.03, {"error": {"message": "line one\nline two", "type": "server_error"}})

    async with serving(yaml({"a": a.url})) as running:
        raw = (await running.chat(STREAM)).text

    last = raw.rstrip("\n").split("\n\n")[-1]
    assert last.startswith("data: ")
    assert "\n" not in last
    assert "line one" in json.loads(last[6:])["error"]["message"]


async def test_a_stream_of_megabytes_without_content_moves_on(a: Upstream, b: Upstream) -> None:
    a.stream(role(), *[chunk({}, x_padding="x" * 100_000) for _ in range(20)], 5.0)
    b.stream(*answer("from b"))
    began = time.monotonic()
    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat(STREAM)

    assert "from b" in got.text
    assert time.monotonic() - began < 4
