"""Two replicas with two workers each, as processes, on a real PostgreSQL and a real Valkey: one gateway to whoever asks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from replicas import Replica, until
from servers import Postgres, Valkey

from gateway.keys.ledger import LOOK

ADMIN, SERVER = "admin-key-for-tests-0123456789", "server-key-for-tests-0123456789"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CONFIG = f"""
server: {{keys: [{SERVER}], admin_key: {ADMIN}}}
providers:
  a: {{adapter: openai, base_url: "mock://?reply=hello&gap=0", api_key: key-of-a-0123456789, models: {{x: {{input: 0, output: 1000000}}}}}}
models: {{m: a/x}}
"""

Pair = tuple[Replica, Replica]


@pytest.fixture(scope="module")
def pair(postgres: Postgres, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    shared = f"store: {postgres.fresh()}\nshared: {valkey.fresh()}\n"
    both = tuple(Replica(tmp_path_factory.mktemp("replica") / "home", CONFIG + shared) for _ in range(2))
    try:
        for replica in both:
            replica.start()
        for replica in both:
            replica.ready()
        until(lambda: all(ready(replica)["shared"]["processes"] == 4 for replica in both), 30)
        yield both  # type: ignore[misc]
    finally:
        for replica in both:
            replica.kill()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def ready(replica: Replica) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{replica.url}/readyz", trust_env=False).json()
    return found


def admin(replica: Replica, method: str, path: str, body: Any = None) -> Any:
    answer = httpx.request(method, f"{replica.url}/admin/{path}", json=body, headers=bearer(ADMIN), trust_env=False, timeout=20)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def made(replica: Replica, name: str, **limits: Any) -> tuple[str, str]:
    key = admin(replica, "POST", "keys", {"name": name, **limits})
    return key["id"], key["key"]


def requests_total(replica: Replica) -> float:
    """Chat requests as this replica's metrics have them."""
    text = httpx.get(f"{replica.url}/metrics", headers=bearer(SERVER), trust_env=False).text
    return sum(float(value) for value in re.findall(r'^thinkgate_requests_total\{endpoint="chat".* (\S+)$', text, re.MULTILINE))


async def ask(replicas: list[Replica], key: str, count: int) -> list[httpx.Response]:
    """So many requests at once, each over a connection of its own, so that every worker gets some."""
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits, verify=False) as client:
        urls = [f"{replicas[n % len(replicas)].url}/v1/chat/completions" for n in range(count)]
        return await asyncio.gather(*(client.post(url, json=BODY, headers=bearer(key)) for url in urls))


@pytest.mark.parametrize("replicas", [1, 2])
async def test_of_200_at_once_exactly_50_pass_over_two_workers_and_over_two_replicas(pair: Pair, replicas: int) -> None:
    _, key = made(pair[0], f"fifty-{replicas}", rpm=50)

    got = await ask(list(pair)[:replicas], key, 200)

    assert Counter(g.status_code for g in got) == {200: 50, 429: 150}


async def test_places_at_a_time_are_counted_over_all(pair: Pair) -> None:
    _, key = made(pair[0], "places", concurrency=3)

    for _ in range(5):
        got = await ask(list(pair), key, 40)
        assert 200 in {g.status_code for g in got}
    alone = await ask([pair[1]], key, 1)

    assert {g.status_code for g in got} <= {200, 429}
    assert alone[0].status_code == 200, "every place came back"


async def test_a_budget_is_not_overspent_by_more_than_what_is_in_flight(pair: Pair) -> None:
    """A request costs some dollars; one after the other over four processes, the first that begins above the budget is refused."""
    _, key = made(pair[0], "budget", budget={"usd": 30, "per": "total"})

    statuses = [(await ask([pair[n % 2]], key, 1))[0].status_code for n in range(24)]
    crowd = await ask(list(pair), key, 30)

    until(lambda: sum(row["requests"] for row in admin(pair[0], "GET", "usage?by=key")["data"] if row["name"] == "budget") == 54, 10)
    spent = next(row["cost"] for row in admin(pair[1], "GET", "usage?by=key")["data"] if row["name"] == "budget")
    each = spent / statuses.count(200)
    assert {g.status_code for g in crowd} == {429}
    assert statuses == sorted(statuses), "what is spent stays spent, on every process"
    assert 30 <= spent < 30 + each


async def test_a_key_serves_everywhere_at_once_and_is_dead_everywhere_within_a_second(pair: Pair) -> None:
    for n in range(3):
        id, key = made(pair[0], f"short-{n}")
        got = await ask(list(pair), key, 12)
        assert {g.status_code for g in got} == {200}
    admin(pair[0], "DELETE", f"keys/{id}")
    await asyncio.sleep(1.0)
    got = await ask(list(pair), key, 12)

    assert {g.status_code for g in got} == {401}


async def test_metrics_and_usage_add_up(pair: Pair) -> None:
    _, key = made(pair[0], "sums")
    before = [requests_total(replica) for replica in pair]

    await ask(list(pair), key, 60)

    assert [requests_total(replica) - old for replica, old in zip(pair, before, strict=True)] == [30, 30], "whichever worker is asked"

    until(lambda: rows(pair[1], "sums") == 60, 10)


async def test_a_worker_that_dies_takes_no_number_with_it_and_is_replaced(pair: Pair) -> None:
    replica = pair[1]
    _, key = made(replica, "killed")
    await ask([replica], key, 20)
    before, old = requests_total(replica), replica.children()

    os.kill(old[0], signal.SIGKILL)
    until(lambda: len(set(replica.children()) - set(old)) == 1 and len(replica.children()) == 2, 60)
    until(lambda: ready(replica)["shared"]["state"] == "up", 30)
    await ask([replica], key, 20)
    sums = {requests_total(replica) for _ in range(8)}

    assert min(sums) == max(sums) == before + 20


async def test_both_servers_killed_under_load_cost_no_request_and_no_row(pair: Pair, postgres: Postgres, valkey: Valkey) -> None:
    """PostgreSQL and Valkey die and come back while clients ask: each has its answer, and its row in the end."""
    _, key = made(pair[0], "outage", rpm=100000)
    await ask(list(pair), key, 8)  # every worker knows it
    stop, statuses, slowest = asyncio.Event(), [], [0.0]

    async def client(number: int) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60, verify=False) as http:
            while not stop.is_set():
                began = time.perf_counter()
                answer = await http.post(f"{pair[number % 2].url}/v1/chat/completions", json=BODY, headers=bearer(key))
                slowest[0] = max(slowest[0], time.perf_counter() - began)
                statuses.append(answer.status_code)
                await asyncio.sleep(0.02)

    clients = [asyncio.create_task(client(number)) for number in range(4)]
    await asyncio.sleep(0.3)
    postgres.kill()
    valkey.kill()
    await asyncio.sleep(1.0)
    stranger = await ask([pair[0]], "nobodys-key-for-tests-0123456789", 1)
    states = [ready(replica) for replica in pair]
    await asyncio.to_thread(postgres.start)
    valkey.start()
    await asyncio.to_thread(until, lambda: all(ready(replica)["shared"]["state"] == "up" for replica in pair), 20)
    stop.set()
    await asyncio.gather(*clients)

    assert set(statuses) == {200}
    assert slowest[0] < 5
    assert stranger[0].status_code == 503, "who it is cannot be known now"
    assert {state["shared"]["state"] for state in states} == {"away"}
    until(lambda: rows(pair[1], "outage") == len(statuses) + 8, 30)


async def test_a_worker_that_dies_while_the_store_is_away_is_replaced_when_it_is_back(pair: Pair, postgres: Postgres) -> None:
    """Its successor waits for the store; the other worker serves on, and an end that is asked for meanwhile comes at once."""
    replica = pair[1]
    _, key = made(replica, "waiting")
    await asyncio.sleep(2 * LOOK + 0.2)  # each worker knows it, whichever the requests come to
    await ask([replica], key, 12)
    old = replica.children()
    postgres.kill()
    try:
        os.kill(old[0], signal.SIGKILL)
        await asyncio.to_thread(until, lambda: "this worker waits for the store" in replica.log.read_text(), 40)
        got = await ask([replica], key, 12)
    finally:
        await asyncio.to_thread(postgres.start)
    await asyncio.to_thread(until, lambda: ready(pair[0])["shared"]["processes"] == 4, 40)
    after = await ask([replica], key, 24)

    assert {g.status_code for g in got} == {200}
    assert {g.status_code for g in after} == {200}


def rows(replica: Replica, name: str) -> int:
    try:
        return sum(row["requests"] for row in admin(replica, "GET", "usage?by=key")["data"] if row["name"] == name)
    except AssertionError:  # the store is not back yet
        return -1


async def test_an_update_of_one_replica_after_the_other_loses_nothing(pair: Pair) -> None:
    """Clients behind a balancer that asks the other replica where one does not take a connection: every request has its answer and its row."""
    _, key = made(pair[0], "rolling", rpm=100000)
    stop, statuses = asyncio.Event(), []

    async def client(number: int) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60, verify=False) as http:
            while not stop.is_set():
                for replica in (pair[number % 2], pair[1 - number % 2]):
                    try:
                        answer = await http.post(f"{replica.url}/v1/chat/completions", json=BODY, headers=bearer(key))
                    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError) as error:
                        if isinstance(error, httpx.ConnectError) or "without sending" in str(error) or isinstance(error, httpx.ReadError):
                            continue  # a kept connection that the server closed before it read a byte: any balancer asks again
                        raise
                    statuses.append(answer.status_code)
                    break
                else:
                    statuses.append(0)
                await asyncio.sleep(0.02)

    clients = [asyncio.create_task(client(number)) for number in range(4)]
    for replica in pair:
        assert await asyncio.to_thread(replica.stop) == 0
        replica.start()
        await asyncio.to_thread(replica.ready)
    stop.set()
    await asyncio.gather(*clients)

    assert set(statuses) == {200}
    assert len(statuses) > 50

    until(lambda: rows(pair[0], "rolling") >= len(statuses), 10)
    assert rows(pair[0], "rolling") == len(statuses)


async def test_reload_over_one_reaches_every_worker_of_every_replica(pair: Pair) -> None:
    for replica in pair:
        file = replica.folder / "thinkgate.yaml"
        file.write_text(file.read_text().replace("reply=hello", "reply=goodbye"))
    admin(pair[0], "POST", "reload")

    async with asyncio.timeout(10):
        while {g.json()["choices"][0]["message"]["content"] for g in await ask(list(pair), SERVER, 24)} != {"goodbye"}:  # noqa: ASYNC110 - it is asked over a wire
            await asyncio.sleep(0.1)
    until(lambda: not ready(pair[1])["shared"]["other_revisions"], 10)


def test_no_secret_is_in_the_logs_of_all_this(pair: Pair) -> None:
    text = "".join(replica.log.read_text() for replica in pair)

    assert "thinkgate.request id=" in text
    for secret in (ADMIN, SERVER, "key-of-a-0123456789", Valkey.PASSWORD, "tg-"):
        assert secret not in text


async def test_without_a_shared_state_workers_have_their_part_and_say_so(tmp_path: Path) -> None:
    keys = "keys: {one: {key: secret-of-one-0123456789, rpm: 50}}\n"
    replica = Replica(tmp_path / "home", CONFIG + keys + "store: sqlite:///keys.db\n")
    try:
        replica.start()
        replica.ready()
        got = await ask([replica], "secret-of-one-0123456789", 200)
        state = ready(replica)["shared"]
        total = {requests_total(replica) for _ in range(6)}
        id, key = made(replica, "new")
        at_once = await ask([replica], key, 12)
        admin(replica, "DELETE", f"keys/{id}")
        began = time.monotonic()
        while {g.status_code for g in await ask([replica], key, 6)} != {401}:
            assert time.monotonic() - began < 3
        file = replica.folder / "thinkgate.yaml"
        file.write_text(file.read_text().replace("reply=hello", "reply=goodbye"))
        admin(replica, "POST", "reload")
        said = {g.json()["choices"][0]["message"]["content"] for g in await ask([replica], SERVER, 12)}
        assert replica.stop() == 0
    finally:
        replica.kill()

    assert 25 <= sum(g.status_code == 200 for g in got) <= 50
    own = "its own rests of targets, kept answers, reasoning, stored responses and MCP sessions"
    assert state == {"state": "off", "processes": 2, "limits": "each of 2 processes lets in its part of every limit", "apart": f"each has {own}"}
    assert f"2 workers: each one lets in its part of every limit, and has {own}" in replica.log.read_text()
    assert total == {200.0}
    assert {g.status_code for g in at_once} == {200}
    assert said == {"goodbye"}


def test_workers_with_a_store_in_memory_say_that_each_has_its_own(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "home", CONFIG + "store: sqlite://\n")
    try:
        replica.start()
        replica.ready()
        told = ready(replica)["store"]["apart"]
    finally:
        replica.kill()

    assert told == "the store is in memory: each worker has its own keys, requests, usage, sessions and runs"
    assert f"warning: {told}" in replica.log.read_text()


def test_workers_whose_store_cannot_be_used_do_not_begin(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "home", CONFIG + "store: postgresql://user:pass-word-1@127.0.0.1:1/none\n")
    replica.start()
    try:
        assert replica.ended(60) == 1
    finally:
        replica.kill()
    assert "the store cannot be used" in replica.log.read_text()
    assert "pass-word-1" not in replica.log.read_text()
