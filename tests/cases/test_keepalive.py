"""Comments in silence: they keep the client's connection alive and give nothing away."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from asking import Bare, error_of, sdk, shaped, text
from openai import APIError
from running import CHAT, STREAM, serving, yaml
from upstream_double import DONE, HANG, Item, Upstream, answer, completion, delta, finish, role

OFTEN = "keepalive: 100ms"
COMMENT = ": keepalive\n\n"


def events(raw: str) -> list[str]:
    return [line[6:] for line in raw.split("\n") if line.startswith("data: ")]


async def test_silence_before_the_content_gives_status_and_comments(a: Upstream) -> None:
    a.stream(*answer("late"), delay=0.35)

    async with serving(yaml({"a": a.url}, server=OFTEN)) as running:
        got = await running.chat(STREAM)

    assert got.status_code == 200
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["x-request-id"]
    assert got.text.startswith(COMMENT * 2)
    assert got.text.count(COMMENT) <= 3
    assert (text(events(got.text)), events(got.text)[-1]) == ("late", DONE)


async def test_the_chain_may_still_move_on(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, delay=0.25)
    b.stream(*answer("from b"), delay=0.25)

    async with serving(yaml({"a": a.url, "b": b.url}, server=OFTEN)) as running:
        got = await running.chat(STREAM)

    assert text(events(got.text)) == "from b"
    assert got.text.index(COMMENT) == 0


async def test_a_failure_after_the_first_comment_is_an_event_of_the_stream(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, delay=0.25)
    b.reply({"error": {"message": "slow", "type": "rate_limit_error"}}, status=429)

    async with serving(yaml({"a": a.url, "b": b.url}, server=OFTEN)) as running:
        got = await running.chat(STREAM)

    error = error_of(events(got.text))
    assert got.status_code == 200
    assert shaped(error)
    assert (error["type"], error["code"]) == ("upstream_error", "providers_exhausted")
    assert [attempt["class"] for attempt in error["attempts"]] == ["server", "rate_limit"]


async def test_the_sdk_reads_past_comments_and_raises_the_late_error(a: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, delay=0.25)

    async with serving(yaml({"a": a.url}, server=OFTEN)) as running, sdk(running) as client:
        stream = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        with pytest.raises(APIError, match="down"):
            await anext(aiter(stream))


async def test_silence_after_the_content_gives_comments_too(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), 0.35, delta("lo"), finish(), DONE)

    async with serving(yaml({"a": a.url}, server=OFTEN)) as running:
        got = await running.chat(STREAM)

    first, last = got.text.index('"content":"Hel"'), got.text.index('"content":"lo"')
    assert 2 <= got.text[first:last].count(COMMENT) <= 3
    assert text(events(got.text)) == "Hello"


async def test_a_stream_that_keeps_talking_gets_no_comments(a: Upstream) -> None:
    words: list[Item] = [delta("x"), 0.03]
    a.stream(role(), *words * 10, finish(), DONE)

    async with serving(yaml({"a": a.url}, server=OFTEN)) as running:
        got = await running.chat(STREAM)

    assert COMMENT not in got.text


async def test_zero_means_never(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, delay=0.25)
    b.stream(role(), delta("x"), 0.25, finish(), DONE)

    async with serving(yaml({"a": a.url, "b": b.url}, server="keepalive: 0")) as running:
        got = await running.chat(STREAM)
        alone = await running.chat({**STREAM, "model": "a/x"})

    assert COMMENT not in got.text
    assert alone.status_code == 502  # a status, because nothing was sent before


async def test_plain_answers_get_none(a: Upstream) -> None:
    a.reply(completion("late"), delay=0.25)

    async with serving(yaml({"a": a.url}, server=OFTEN)) as running:
        client = await Bare.ask(running.url, CHAT)
        status, headers = await client.head()
        await client.until(b"late")
        await client.close()

    assert (status, headers["content-type"]) == (200, "application/json")
    assert b"keepalive" not in client.got


async def test_a_failure_before_the_first_comment_leaves_no_pulse_behind(a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    a.reply({"error": {"message": "down"}}, status=500)

    async with serving(yaml({"a": a.url}, server="keepalive: 20ms")) as running:
        got = await asyncio.gather(*(running.chat({**STREAM, "model": "a/x"}) for _ in range(5)))
        await asyncio.sleep(0.1)
        gc.collect()  # a task that failed unseen says so when it goes

    assert {answer.status_code for answer in got} <= {502, 503}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_pulse_ends_with_the_client(a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    a.stream(role(), delta("x"), HANG)

    async with serving(yaml({"a": a.url}, server="keepalive: 20ms")) as running:
        client = await Bare.ask(running.url)
        await client.until(b": keepalive")
        client.reset()
        await a.until(lambda upstream: upstream.disconnected)
        await asyncio.sleep(0.1)

    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
