"""`balance` and prices in a running gateway."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from asked import chain_of, metric
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import Upstream, answer, completion, delta, finish, role, usage


async def firsts(running: Running, count: int, **more: object) -> Counter[str]:
    return Counter([chain_of(await running.chat({**CHAT, **more})).split("=")[0] for _ in range(count)])


def weighted(text: str, **weights: float) -> str:
    for name, weight in weights.items():
        text = text.replace(f"- {name}/{name}-model", f"- {{target: {name}/{name}-model, weight: {weight}}}")
    return text


async def test_weights_share_the_requests(a: Upstream, b: Upstream) -> None:
    a.reply(completion(), repeat=1000)
    b.reply(completion(), repeat=1000)

    async with serving(weighted(yaml({"a": a.url, "b": b.url}, model="balance: weighted"), a=9, b=1)) as running:
        found = await firsts(running, 100)

    assert 75 <= found["a"] <= 99


async def test_the_other_targets_stay_what_is_fallen_back_to(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, repeat=100)
    b.reply(completion(), repeat=100)

    async with serving(weighted(yaml({"a": a.url, "b": b.url}, model="balance: weighted"), a=1000, b=0.001)) as running:
        assert chain_of(await running.chat()) == "a=500,b=200"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_the_fastest_target_is_found_and_used(a: Upstream, b: Upstream, stream: bool) -> None:
    for upstream, delay in ((a, 0.15), (b, 0.0)):
        if stream:
            upstream.stream(role(), *(delta(f"{n} ") for n in range(12)), finish(), usage(5, 12), "[DONE]", delay=delay, repeat=99)
        else:
            upstream.reply(completion(), delay=delay, repeat=99)

    async with serving(yaml({"a": a.url, "b": b.url}, model="balance: latency")) as running:
        found = await firsts(running, 12, stream=stream)

    assert found == {"a": 1, "b": 11}


async def test_the_cheapest_target_comes_first(a: Upstream, b: Upstream) -> None:
    a.reply(completion(), repeat=9)
    b.reply(completion(), repeat=9)
    prices = {"a": "retries: 0\nmodels: {a-model: {input: 3, output: 15}}", "b": "retries: 0\nmodels: {b-model: {input: 0.5, output: 2}}"}

    async with serving(yaml({"c": "mock://", "a": a.url, "b": b.url}, model="balance: cheapest", **prices)) as running:
        assert await firsts(running, 3) == {"b": 3}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_the_log_line_and_a_counter_have_the_cost(a: Upstream, caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    if stream:
        a.stream(*answer("x", usage_chunk=True))
    else:
        a.reply(completion())
    caplog.set_level("INFO", "thinkgate.request")

    async with serving(yaml({"a": a.url}, a="retries: 0\nmodels: {a-model: {input: 2, output: 10}}")) as running:
        await running.chat({**CHAT, "stream": stream})
        cost = await metric(running, "thinkgate_cost_usd_total", provider="a")

    (line,) = [r.getMessage() for r in caplog.records if r.name == "thinkgate.request"]
    assert " cost=0.00004" in line
    assert cost == pytest.approx((5 * 2 + 3 * 10) / 1e6)


async def test_what_costs_nothing_says_so_and_what_has_no_price_says_nothing(a: Upstream, b: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    a.reply(completion())
    b.reply(completion())
    caplog.set_level("INFO", "thinkgate.request")

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 0\nmodels: {a-model: {input: 0, output: 0}}")) as running:
        await running.chat()
        await running.chat({**CHAT, "model": "b/x"})

    free, unknown = [r.getMessage() for r in caplog.records if r.name == "thinkgate.request"]
    assert re.search(r" cost=0( |$)", free)
    assert "cost=" not in unknown


async def test_a_failed_attempt_that_was_charged_counts_too(a: Upstream, b: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    a.reply(completion(text=""))
    b.reply(completion())
    caplog.set_level("INFO", "thinkgate.request")
    prices = {name: f"retries: 0\nmodels: {{{name}-model: {{input: 2, output: 10}}}}" for name in ("a", "b")}

    async with serving(yaml({"a": a.url, "b": b.url}, **prices)) as running:
        assert chain_of(await running.chat(STREAM | {"stream": False})) == "a=protocol,b=200"

    (line,) = [r.getMessage() for r in caplog.records if r.name == "thinkgate.request"]
    assert " cost=0.00008" in line


@pytest.mark.parametrize("name", ["c", "A", "", "a,b", "a/a-model", "*"])
async def test_a_request_can_narrow_its_chain_to_its_own_providers_only(a: Upstream, b: Upstream, name: str) -> None:
    a.reply(completion())
    b.reply(completion())
    text = yaml({"a": a.url, "b": b.url, "c": "mock://?reply=c&gap=0"}).replace("      - c/c-model\n", "")

    async with serving(text) as running:
        got = await running.chat(x_thinkgate_provider=name)
        inside = await running.chat(x_thinkgate_provider="b")

    assert got.status_code == 400
    assert (got.json()["error"]["code"], got.json()["error"]["param"]) == ("unknown_provider", "x-thinkgate-provider")
    assert chain_of(inside) == "b=200"
    assert a.requests == []


async def test_a_body_field_chooses_no_provider(a: Upstream, b: Upstream) -> None:
    a.reply(completion())

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat({**CHAT, "provider": "b", "base_url": b.url, "api_base": b.url, "target": "b/b-model", "x-thinkgate-provider": "b"})

    assert chain_of(got) == "a=200"
    assert b.requests == []
