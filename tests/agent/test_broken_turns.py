"""What a turn of the model used that broke off counts: in the run, its limits and the key's budget, estimated as for every other request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents_yaml import AGENTS, KEYS, asked, until
from running import Running, serving, yaml
from upstream_double import CUT, HANG, Upstream, completion, delta, finish, role, thought, tool_call, usage

ADMIN = {"authorization": "Bearer admin-key-0123456789"}
ONE = {"authorization": "Bearer key-number-one-0123456789"}
WORDS = "x" * 400  # some 100 tokens


@pytest.fixture
async def world(a: Upstream) -> AsyncIterator[Running]:
    prices = "models: {a-model: {input: 100, output: 100}}\nretries: 0"
    async with serving(yaml({"a": a.url}, more=AGENTS + KEYS, a=prices, server="admin_key: admin-key-0123456789")) as running:
        yield running


async def begun(world: Running, agent: str, a: Upstream) -> str:
    run = await world.client.post(f"/v1/agents/{agent}/runs", json={"input": "hi", "background": True}, headers=ONE)
    await until(lambda: bool(a.requests))
    return str(run.json()["id"])


async def row(world: Running, endpoint: str) -> dict[str, Any]:
    """The only row of an endpoint, as soon as it is there."""
    async with asyncio.timeout(10):
        while True:
            rows = (await world.client.get("/admin/requests", headers=ADMIN)).json()["data"]
            if found := [row for row in rows if row["endpoint"] == endpoint]:
                return dict(found[0])
            await asyncio.sleep(0.02)


async def test_a_turn_that_was_cut_and_asked_again_counts_twice(world: Running, a: Upstream) -> None:
    a.stream(role(), thought(WORDS), CUT)
    a.stream(role(), delta("done"), finish(), usage(10, 3))
    run = (await world.client.post("/v1/agents/plain/runs", json={"input": "hi"}, headers=ONE)).json()
    assert (run["status"], run["output"]) == ("completed", "done")
    assert run["usage"]["completion_tokens"] == 3 + 100
    assert run["usage"]["prompt_tokens"] > 10
    assert run["cost"] == pytest.approx(run["usage"]["total_tokens"] * 100 / 1e6)
    assert (await row(world, "runs"))["completion_tokens"] == 103
    events = (await world.client.get(f"/admin/runs/{run['id']}", headers=ADMIN)).json()["events"]
    told = [event["data"] for event in events if event["type"] == "usage"]
    assert [entry.get("estimated", False) for entry in told] == [True, False]
    assert told[-1]["total"] == run["usage"]


async def test_a_run_that_is_gone_through_again_counts_what_broke_off_once(world: Running, a: Upstream) -> None:
    a.stream(role(), thought(WORDS), CUT)
    a.reply(completion(None, calls=[tool_call("calculator", '{"expression": "2+3"}')]))
    a.reply(completion("It is 5."))
    run = (await world.client.post("/v1/agents/ask/runs", json={"input": "hi"}, headers=ONE)).json()
    assert (run["status"], run["usage"]["completion_tokens"]) == ("waiting", 103)
    await world.client.post(f"/v1/runs/{run['id']}/approve", json={"approved": True}, headers=ONE)
    async with asyncio.timeout(10):
        while run["status"] != "completed":
            run = (await world.client.get(f"/v1/runs/{run['id']}", headers=ONE)).json()
    assert run["usage"]["completion_tokens"] == 106


async def test_an_answer_that_broke_off_after_it_was_shown_counts(world: Running, a: Upstream) -> None:
    a.stream(role(), delta(WORDS), CUT)
    run = (await world.client.post("/v1/agents/plain/runs", json={"input": "hi"}, headers=ONE)).json()
    assert (run["status"], run["reason"], run["output"]) == ("incomplete", "outage", WORDS)
    assert run["usage"]["completion_tokens"] == 100
    assert run["cost"] > 0


async def test_a_cancelled_run_pays_for_the_turn_that_it_was_in(world: Running, a: Upstream) -> None:
    a.stream(role(), delta(WORDS), HANG)
    run = await begun(world, "plain", a)
    await asyncio.sleep(0.2)  # the words are on their way
    ended = (await world.client.post(f"/v1/runs/{run}/cancel", headers=ONE)).json()
    assert (ended["status"], ended["usage"]["completion_tokens"]) == ("cancelled", 100)
    charged = await row(world, "runs")
    assert (charged["run_id"], charged["completion_tokens"], charged["estimated"], charged["cost"]) == (run, 100, True, pytest.approx(ended["cost"]))


async def test_a_client_that_leaves_pays_for_the_turn_that_its_run_was_in(world: Running, a: Upstream) -> None:
    a.stream(role(), delta(WORDS), HANG)
    body = asked("plain") | {"stream": True}
    async with world.client.stream("POST", "/v1/chat/completions", json=body, headers=ONE) as answer:
        async for line in answer.aiter_lines():
            if WORDS in line:
                break
    charged = await row(world, "chat")
    assert charged["completion_tokens"] >= 100
    assert charged["cost"] == pytest.approx((charged["prompt_tokens"] + charged["completion_tokens"]) * 100 / 1e6)
    run = (await world.client.get(f"/v1/runs/{charged['run_id']}", headers=ONE)).json()
    assert (run["status"], run["usage"]["completion_tokens"]) == ("cancelled", 100)


async def test_a_turn_that_failed_before_its_content_costs_nothing(world: Running, a: Upstream) -> None:
    a.stream(role(), CUT)
    run = (await world.client.post("/v1/agents/plain/runs", json={"input": "hi"}, headers=ONE)).json()
    assert (run["status"], run["usage"]["total_tokens"], run["cost"]) == ("failed", 0, None)
