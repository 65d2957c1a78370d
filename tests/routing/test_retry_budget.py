"""How much more is sent when everything fails, and what always stays possible."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asked import chain_of, many, until
from running import serving, yaml
from upstream_double import Seen, Upstream, completion, plain

from gateway.routing.budget import RetryBudget

DOWN = {"error": {"message": "down", "type": "server_error"}}
PARAM = {"error": {"message": "Unsupported parameter: 'seed' is not supported with this model.", "code": "unsupported_parameter", "param": "seed"}}
TOUGH = "retries: {}\ncooldown: {{after: 1000}}"
"""nothing rests, so that the budget alone is what holds"""


@pytest.mark.parametrize(
    ("active", "again", "allowed"), [(1, 0, True), (1, 2, True), (1, 3, False), (15, 3, False), (20, 3, True), (20, 4, False), (500, 99, True)]
)
def test_a_fifth_of_the_active_requests_may_ask_again_and_three_always(active: int, again: int, allowed: bool) -> None:
    assert RetryBudget(active, again).allows() is allowed


@pytest.mark.parametrize("retries", [1, 5])
async def test_a_dead_world_is_asked_at_most_one_and_a_fifth_times_a_step(a: Upstream, b: Upstream, retries: int) -> None:
    for upstream in (a, b):
        upstream.call(lambda seen: plain(DOWN, status=500, delay=0.3))

    async with serving(yaml({"a": a.url, "b": b.url}, a=TOUGH.format(retries), b=TOUGH.format(retries))) as running:
        got = await many(running, 100)
        budget = running.gateway.state.router.fleet.budget

    assert {answer.status_code for answer, _ in got} == {502}
    assert 100 <= len(a.requests) <= 120
    assert 100 <= len(b.requests) <= 120
    assert (budget.active, budget.again) == (0, 0)


async def test_with_rests_a_dead_world_costs_hardly_more_than_the_crowd_that_was_there(a: Upstream, b: Upstream) -> None:
    a.call(lambda seen: plain(DOWN, status=500))
    b.call(lambda seen: plain(DOWN, status=500))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 1", b="retries: 1")) as running:
        for _ in range(30):
            await running.chat()
        sent = len(a.requests) + len(b.requests)

    assert sent <= 2 * (30 * 1.2), "two retries until it rests, then one probe a request"


async def test_few_requests_retry_as_they_are_told(a: Upstream) -> None:
    a.reply(DOWN, status=500).reply(completion())

    async with serving(yaml({"a": a.url}, a="retries: 1")) as running:
        assert chain_of(await running.chat()) == "a=500,a=200"


async def test_a_retry_that_is_not_allowed_leaves_the_move_to_the_next_target(a: Upstream, b: Upstream) -> None:
    a.call(lambda seen: plain(DOWN, status=500, delay=0.2))
    b.call(lambda seen: plain(completion("b")))

    async with serving(yaml({"a": a.url, "b": b.url}, a=TOUGH.format(1))) as running:
        got = await many(running, 60)

    assert {answer.status_code for answer, _ in got} == {200}
    assert {chain_of(answer) for answer, _ in got} == {"a=500,b=200", "a=500,a=500,b=200"}


async def test_every_request_reaches_the_last_target_of_a_chain_that_is_dead_but_for_it(a: Upstream, b: Upstream) -> None:
    a.call(lambda seen: plain({"error": {"message": "no such model", "code": "model_not_found"}}, status=404, delay=0.1))
    b.call(lambda seen: plain({"error": {"message": "no such model", "code": "model_not_found"}}, status=404, delay=0.1))

    async with serving(yaml({"a": a.url, "b": b.url, "c": "mock://?reply=c&gap=0"})) as running:
        got = await many(running, 60)

    assert {chain_of(answer) for answer, _ in got} == {"a=404,b=404,c=200"}


async def test_a_crowd_that_needs_a_repair_gets_it(a: Upstream) -> None:
    def answer(seen: Seen) -> Any:
        return plain(PARAM, status=400, delay=0.1) if "seed" in seen.json else completion()

    a.call(answer)
    async with serving(yaml({"a": a.url})) as running:
        bodies = [{"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 1}] * 30
        got = await asyncio.gather(*(running.chat(body) for body in bodies))
        budget = running.gateway.state.router.fleet.budget

    assert {chain_of(answer) for answer in got} == {"a=400,a=200"}
    assert budget.again == 0


async def test_a_client_that_leaves_in_the_pause_gives_its_share_back(a: Upstream) -> None:
    a.reply(DOWN, status=500, repeat=9)

    async with serving(yaml({"a": a.url}, a=TOUGH.format(3))) as running:
        client = asyncio.create_task(running.chat())
        await a.until(lambda upstream: upstream.requests)
        budget = running.gateway.state.router.fleet.budget
        await until(lambda: budget.again == 1)
        client.cancel()
        await until(lambda: budget.active == 0)

    assert budget.again == 0
