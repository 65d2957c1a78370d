"""Several keys of one provider: used in turn, and each rests for itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asked import chain_of, many
from running import Running, in_memory, serving, serving_app, yaml
from upstream_double import Script, Seen, Upstream, completion, plain

from gateway.app import Gateway
from gateway.config import parse

KEYS = ("pool-key-one-0123456789", "pool-key-two-0123456789", "pool-key-three-0123456789")
POOL = f"api_keys: [{', '.join(KEYS)}]\nretries: 0"
DEAD = {"error": {"message": f"Incorrect API key provided: {KEYS[0]}", "type": "invalid_request_error", "code": "invalid_api_key"}}
EMPTY = {"error": {"message": "Insufficient Balance", "type": "unknown_error", "code": "invalid_request_error"}}
SLOW = {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}


def pooled(urls: dict[str, str], more: str = "") -> str:
    """Provider `a` has the pool, the others one key each."""
    return yaml(urls, a=POOL + more).replace("    api_key: key-of-a-0123456789\n", "")


def used(upstream: Upstream) -> list[int]:
    """The numbers of the keys with which requests came."""
    return [KEYS.index(seen.headers["authorization"].removeprefix("Bearer ")) for seen in upstream.requests]


def bad(**kinds: Script) -> Any:
    """A provider that refuses some keys: `one=...`."""
    names = ("one", "two", "three")

    def answer(seen: Seen) -> Script:
        number = KEYS.index(seen.headers["authorization"].removeprefix("Bearer "))
        return kinds.get(names[number]) or plain(completion())

    return answer


async def statuses(running: Running, count: int) -> list[int]:
    return [(await running.chat()).status_code for _ in range(count)]


async def test_keys_are_used_in_turn(a: Upstream) -> None:
    a.call(bad())

    async with serving(pooled({"a": a.url})) as running:
        await statuses(running, 6)

    assert used(a) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("refusal", "label"), [(plain(DEAD, status=401), "401"), (plain(EMPTY, status=402), "402"), (plain(SLOW, status=429, headers={"retry-after": "9"}), "429")]
)
async def test_a_refused_key_leaves_the_pool_and_the_same_target_is_asked_with_the_next(a: Upstream, b: Upstream, refusal: Script, label: str) -> None:
    a.call(bad(one=refusal))

    async with serving(pooled({"a": a.url, "b": b.url})) as running:
        first = await running.chat()
        rest = await statuses(running, 4)
        resting = (await running.client.get("/readyz")).json()["providers"]["resting"]
        admin = (await running.client.get("/admin/providers")).json()["data"][0]["resting"]

    assert chain_of(first) == f"a={label},a=200"
    assert first.headers["x-thinkgate-attempts"] == "2"
    assert rest == [200] * 4
    assert used(a) == [0, 1, 2, 1, 2, 1]
    assert b.requests == []
    assert list(resting) == list(admin) == ["a/key 1"], "the key rests, the target does not"


async def test_a_limited_key_comes_back_after_its_retry_after(a: Upstream) -> None:
    a.reply(SLOW, status=429, headers={"retry-after-ms": "200"}).reply(completion())

    async with serving(pooled({"a": a.url})) as running:
        await running.chat()
        await running.chat()
        await asyncio.sleep(0.25)
        await statuses(running, 2)

    assert used(a) == [0, 1, 2, 0, 1]


async def test_when_no_key_is_left_the_next_target_answers_and_the_target_rests(a: Upstream, b: Upstream) -> None:
    a.call(lambda seen: plain(DEAD, status=401))
    b.reply(completion("b"))

    async with serving(pooled({"a": a.url, "b": b.url})) as running:
        first, second = await running.chat(), await running.chat()

    assert chain_of(first) == "a=401,a=401,a=401,b=200"
    assert chain_of(second) == "b=200"
    assert used(a) == [0, 1, 2]


async def test_when_no_key_is_left_the_error_says_so_and_shows_none(a: Upstream) -> None:
    a.call(
        bad(
            one=plain(DEAD, status=401), two=plain(SLOW, status=429, headers={"retry-after": "20"}), three=plain(SLOW, status=429, headers={"retry-after": "7"})
        )
    )

    async with serving(pooled({"a": a.url})) as running:
        first = await running.chat()
        a.clear()
        a.call(lambda seen: plain(DEAD, status=401))
        second = await running.chat()
        third = await running.chat()

    error = first.json()["error"]
    assert first.status_code == 502
    assert error["message"].startswith("all 1 providers failed, last error: a: none of its 3 keys can be used (auth, rate_limit), the first is free in")
    assert "x-should-retry" not in first.headers
    assert 1 <= int(first.headers["retry-after"]) <= 7
    assert chain_of(second) == "a=401", "the one that rests on our arithmetic is probed, where nothing else is left"
    assert third.status_code in (502, 503)
    for key in KEYS:
        assert key not in first.text + second.text + third.text
        assert key[:12] not in first.text


async def test_a_failure_that_is_not_the_keys_rests_the_target(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, repeat=9)
    b.reply(completion())

    async with serving(pooled({"a": a.url, "b": b.url}, "\ncooldown: {after: 1}")) as running:
        chains = [chain_of(await running.chat()) for _ in range(2)]
        resting = running.gateway.state.health.resting()

    assert chains == ["a=500,b=200", "b=200"]
    assert list(resting) == ["a/a-model"]


async def test_a_pool_with_one_dead_key_serves_two_hundred_at_once(a: Upstream) -> None:
    a.call(bad(one=plain(DEAD, status=401)))

    async with serving(pooled({"a": a.url})) as running:
        got = await many(running, 200)

    assert {answer.status_code for answer, _ in got} == {200}
    assert used(a).count(0) <= 67, "a third at most, and those came before the first refusal"


async def test_a_reload_with_another_key_frees_what_rested_for_the_old_one(a: Upstream) -> None:
    a.call(bad(one=plain(DEAD, status=401), two=plain(DEAD, status=401), three=plain(DEAD, status=401)))
    texts = [pooled({"a": a.url}), yaml({"a": a.url})]

    async with serving_app(Gateway(lambda: in_memory(parse(texts[0], env={})))) as running:
        assert (await running.chat()).status_code == 502
        a.clear()
        a.reply(completion())
        texts.pop(0)
        assert running.gateway.reload()
        assert (await running.chat()).status_code == 200


async def test_every_endpoint_uses_the_pool(a: Upstream) -> None:
    a.call(lambda seen: {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.1]}], "model": "m", "usage": {"prompt_tokens": 1}})

    async with serving(pooled({"a": a.url})) as running:
        for _ in range(3):
            answer = await running.client.post("/v1/embeddings", json={"model": "m", "input": "x"})
            assert answer.status_code == 200

    assert used(a) == [0, 1, 2]


async def test_an_adapter_that_signs_gets_the_key_that_is_used(a: Upstream, tmp_path: Path) -> None:
    a.reply(completion(), repeat=9)
    (tmp_path / "signing.py").write_text('auth = "none"\ndef build_request(req, ctx):\n    return {"headers": {"authorization": "Bearer " + ctx.api_key}}\n')
    text = pooled({"a": a.url}).replace("adapter: openai", "adapter: signing") + f"adapters_dir: {tmp_path}\n"

    async with serving(text) as running:
        assert await statuses(running, 3) == [200] * 3

    assert used(a) == [0, 1, 2]
