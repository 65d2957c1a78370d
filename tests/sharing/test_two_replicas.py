"""Two gateways on one Valkey and one store: what one lets in, learns or remembers, the other knows."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import CHAT, STREAM, Running, serving, yaml
from servers import Valkey
from upstream_double import HANG, Upstream, completion, delta, role, tool_call

KEY, ADMIN = "secret-of-one-0123456789", "admin-key-for-tests-0123456789"
BEARER = {"authorization": f"Bearer {KEY}"}
DOLLAR = "retries: 0\nmodels: {a-model: {input: 200000, output: 0}}"  # a USD for the double's prompt of five tokens


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def text(upstream: Upstream, shared: str, key: str = "", more: str = "", **settings: Any) -> str:
    keys = f"keys:\n  one: {{key: {KEY}, {key}}}\n" if key else ""
    return yaml({"a": upstream.url}, server=f"admin_key: {ADMIN}\nkeys: [server-key-for-tests-0123456789]", more=f"shared: {shared}\n{keys}{more}", **settings)


@asynccontextmanager
async def pair(config: str, other: str | None = None, folder: Path | None = None) -> AsyncIterator[tuple[Running, Running]]:
    """Two replicas that know of each other; with a `folder` on one store."""
    store = f"store: sqlite:///{folder}/keys.db\n" if folder else ""
    async with serving(config + store) as one, serving((other or config) + store) as two:
        for running in (one, two):
            await eventually(lambda running=running: shared(running)["processes"] == 2)  # type: ignore[misc]
        yield one, two


def shared(running: Running) -> dict[str, Any]:
    state: dict[str, Any] = running.gateway.state.ready()[1]["shared"]
    return state


async def eventually(done: Callable[[], bool | Awaitable[bool]], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = done()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


def alternating(pair: tuple[Running, Running], count: int, body: dict[str, Any] | None = None) -> Any:
    return asyncio.gather(*(pair[n % 2].chat(body, **BEARER) for n in range(count)))


async def admin(running: Running, method: str, path: str, body: Any = None) -> httpx.Response:
    return await running.client.request(method, f"/admin/{path}", json=body, headers=bearer(ADMIN))


async def test_of_200_at_once_on_two_replicas_exactly_50_pass(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion(), repeat=200)

    async with pair(text(a, valkey.fresh(), "rpm: 50")) as both:
        got = await alternating(both, 200)

    assert Counter(g.status_code for g in got) == {200: 50, 429: 150}
    assert len(a.requests) == 50
    refused = next(g for g in got if g.status_code == 429)
    assert refused.json()["error"]["message"].startswith('the key "one" is at its limit of 50 requests a minute')
    assert 50 < int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert sorted(int(g.headers["x-ratelimit-remaining-requests"]) for g in got if g.status_code == 200) == list(range(50))


async def test_a_team_is_one_for_all_replicas(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion(), repeat=40)

    async with pair(text(a, valkey.fresh(), "rpm: 100, team: t", "teams: {t: {rpm: 7}}\n")) as both:
        got = await alternating(both, 40)

    assert Counter(g.status_code for g in got) == {200: 7, 429: 33}
    assert 'the team "t"' in next(g for g in got if g.status_code == 429).json()["error"]["message"]


async def test_tokens_are_reserved_everywhere_and_settled_everywhere(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion(), repeat=10)

    async with pair(text(a, valkey.fresh(), "tpm: 1000")) as (one, two):
        first = await one.chat(**BEARER)
        second = await two.chat({**CHAT, "max_tokens": 900}, **BEARER)
        third = await one.chat({**CHAT, "max_tokens": 980}, **BEARER)

    assert [g.status_code for g in (first, second, third)] == [200, 200, 429]


async def test_one_at_a_time_holds_on_all_replicas_and_a_place_comes_back(a: Upstream, valkey: Valkey) -> None:
    a.stream(role(), delta("Hel"), HANG)
    a.reply(completion(), repeat=3)

    async with pair(text(a, valkey.fresh(), "concurrency: 1")) as (one, two):
        async with one.client.stream("POST", "/v1/chat/completions", json=STREAM, headers=BEARER) as answer:
            first = await anext(answer.aiter_raw())
            busy = await two.chat(**BEARER)
            assert answer.status_code == 200, first

        async def free() -> bool:
            return (await two.chat(**BEARER)).status_code == 200

        assert busy.status_code == 429
        await eventually(free)


async def test_a_budget_is_overspent_by_no_more_than_what_is_in_flight(a: Upstream, valkey: Valkey, tmp_path: Path) -> None:
    a.reply(completion(), repeat=100)

    async with pair(text(a, valkey.fresh(), "budget: {usd: 10, per: day}", a=DOLLAR), folder=tmp_path) as both:
        statuses = [(await both[n % 2].chat(**BEARER)).status_code for n in range(20)]
        crowd = await alternating(both, 50)

    paid = statuses.count(200)
    assert statuses == [200] * paid + [429] * (20 - paid)
    assert paid in (10, 11), "one after the other: the charge of the last answer may still be under way when the next request comes"
    assert {g.status_code for g in crowd} == {429}
    assert crowd[0].json()["error"]["code"] == "insufficient_quota"
    assert crowd[0].headers["x-should-retry"] == "false"


async def test_a_key_made_on_one_serves_on_the_other_at_once_and_a_revoked_one_is_dead_within_a_second(a: Upstream, valkey: Valkey, tmp_path: Path) -> None:
    a.reply(completion(), repeat=200)

    async with pair(text(a, valkey.fresh()), folder=tmp_path) as (one, two):
        made = (await admin(one, "POST", "keys", {"name": "new", "rpm": 3})).json()
        got = [(await (one, two)[n % 2].chat(**bearer(made["key"]))).status_code for n in range(1, 6)]
        await admin(one, "DELETE", f"keys/{made['id']}")
        began = time.monotonic()

        async def dead() -> bool:
            return (await two.chat(**bearer(made["key"]))).status_code == 401

        await eventually(dead)
        took = time.monotonic() - began

    assert got == [200, 200, 200, 429, 429]
    assert took < 1.5  # a second, and what a busy machine adds


async def test_usage_of_both_adds_up(a: Upstream, valkey: Valkey, tmp_path: Path) -> None:
    a.reply(completion(), repeat=10)

    async with pair(text(a, valkey.fresh(), "rpm: 100"), folder=tmp_path) as (one, two):
        await alternating((one, two), 10)
        for running in (one, two):
            await running.gateway.ledger.usage.flush()
        usage = (await admin(one, "GET", "usage?by=key")).json()["data"]

    assert [(row["name"], row["requests"], row["prompt_tokens"]) for row in usage] == [("one", 10, 50)]


async def test_what_one_learns_of_a_provider_the_other_knows(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    a.reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "30"})
    a.reply(completion(), repeat=5)
    b.reply(completion(), repeat=5)
    config = yaml({"a": a.url, "b": b.url}, more=f"shared: {valkey.fresh()}\n")

    async with pair(config) as (one, two):
        assert (await one.chat()).headers["x-thinkgate-chain"] == "a=429,b=200"
        await eventually(lambda: "a/a-model" in two.gateway.state.health.resting())
        second = await two.chat()
        one.gateway.state.health.forget("a/")
        await eventually(lambda: not two.gateway.state.health.resting())
        third = await two.chat()

    assert second.headers["x-thinkgate-chain"] == "b=200"
    assert third.headers["x-thinkgate-chain"] == "a=200"


async def test_an_answer_that_one_has_kept_serves_on_the_other_for_the_same_tenant(a: Upstream, valkey: Valkey) -> None:
    for number in range(4):
        a.reply(completion(f"answer {number}"))
    keys = f"  two: {{key: {KEY}-of-two}}\n"
    config = text(a, valkey.fresh(), "rpm: 100", keys, model="cache: {exact: 10m}")
    asked = {**CHAT, "temperature": 0}

    async with pair(config) as (one, two):
        first = await one.chat(asked, **BEARER)

        async def there() -> bool:
            got = await two.chat(asked, **BEARER)
            return got.headers["x-thinkgate-cache"] == "hit" and got.json() == first.json()

        await eventually(there)
        events = await two.events({**asked, "stream": True}, **BEARER)
        stranger = await two.chat(asked, **bearer(f"{KEY}-of-two"))

    assert "answer 0" in "".join(events)
    assert stranger.headers["x-thinkgate-cache"] == "miss"


async def test_reasoning_that_a_client_lost_comes_back_on_another_replica(a: Upstream, valkey: Valkey) -> None:
    call = tool_call("w", "{}", id="call_7")
    a.reply(completion(None, finish="tool_calls", calls=[call], reasoning_content="it asks for w"))
    a.reply(completion(), repeat=2)
    message = {"role": "assistant", "content": None, "tool_calls": [{k: v for k, v in call.items() if k != "index"}]}
    history = [*CHAT["messages"], message, {"role": "tool", "tool_call_id": "call_7", "content": "20C"}]
    tools = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {}}}}]
    config = text(a, valkey.fresh(), "rpm: 100", a="adapter: deepseek\nretries: 0")

    async with pair(config) as (one, two):
        await one.chat({**CHAT, "tools": tools}, **BEARER)
        got = await two.chat({**CHAT, "tools": tools, "messages": history}, **BEARER)

    assert got.status_code == 200
    assert "deepseek.reasoning_restored=1" in got.headers["x-thinkgate-transforms"]
    assert a.requests[1].json["messages"][1]["reasoning_content"] == "it asks for w"


async def test_each_replica_sends_its_part_of_what_a_provider_allows(a: Upstream, valkey: Valkey) -> None:
    async with pair(text(a, valkey.fresh(), a="retries: 0\nlimits: {rpm: 10, concurrency: 4}")) as (one, two):
        parts = [running.gateway.state.router.find("m")[0].fleet.bounds["a"].limits for running in (one, two)]

    assert [(part.rpm, part.concurrency) for part in parts] == [(5, 2), (5, 2)]


async def test_replicas_see_that_another_runs_another_config(a: Upstream, valkey: Valkey) -> None:
    url = valkey.fresh()
    config = text(a, url, "rpm: 50")

    async with pair(config, config.replace("rpm: 50", "rpm: 60")) as (one, two):
        await eventually(lambda: bool(shared(one)["other_revisions"]))
        ready = (await one.client.get("/readyz")).json()["shared"]
        theirs = shared(two)["revision"]

    assert ready["state"] == "up"
    assert ready["processes"] == 2
    assert list(ready["other_revisions"].values()) == [theirs] != [ready["revision"]]


async def test_a_reload_over_one_replica_reaches_all(a: Upstream, valkey: Valkey, tmp_path: Path) -> None:
    url = valkey.fresh()
    files = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    for file in files:
        file.write_text(text(a, url, "rpm: 50") + "store: sqlite://\n")

    async with serving(files[0]) as one, serving(files[1]) as two:
        await eventually(lambda: shared(one)["processes"] == 2)
        assert shared(one)["other_revisions"] == {}, "equal files in two places are one revision"
        for file in files:
            file.write_text(file.read_text().replace("rpm: 50", "rpm: 60"))
        assert (await admin(one, "POST", "reload")).json() == {"reloaded": True, "error": None}
        await eventually(lambda: two.gateway.config.keys["one"].limits.rpm == 60)


@pytest.mark.parametrize("wrong", ["timeout=never", "tiemout=1", "timeout=0"])
async def test_a_url_that_cannot_be_used_is_a_fault_of_the_config_without_its_password(a: Upstream, wrong: str) -> None:
    from gateway.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        async with serving(text(a, f"redis://:pass-word-1@127.0.0.1:6379/0?{wrong}")):
            pass
    assert "shared: its" in str(caught.value)
    assert "pass-word-1" not in str(caught.value)


async def test_the_admin_routes_do_not_tell_the_password(a: Upstream, valkey: Valkey) -> None:
    async with serving(text(a, valkey.fresh(), "rpm: 1")) as running:
        got = await admin(running, "GET", "config")
    assert got.json()["config"]["shared"] == f"redis://***@127.0.0.1:{valkey.port}/{valkey._databases}"
