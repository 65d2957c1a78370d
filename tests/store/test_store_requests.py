from __future__ import annotations

import pytest
from msgspec import structs

from gateway.errors import InvalidRequest
from gateway.store import UsageRow, requests

ATTEMPT = {"provider": "p", "model": "m", "class": "rate_limit", "status": 429, "ms": 3, "message": "naïve \0 \"'", "big": 10**30}
STRANGE = ["'; DROP TABLE thinkgate_requests; --", "a\0b", "\ud800", "m" * 100_000, "é🔑" * 10_000, "%s ? {}", ""]
STRANGE.append("".join(chr(0x4E00 + i * 7919 % 20_000) for i in range(5000)))  # an index entry of it cannot be compressed


async def test_a_request_comes_back_as_it_was_written(store, done):
    row = done(
        key="team-a",
        key_id="k1",
        team="t",
        kind="server",
        status=502,
        provider="p",
        target_model="m",
        stream=True,
        prompt_tokens=1,
        completion_tokens=2,
        cached_tokens=3,
        reasoning_tokens=4,
        estimated=True,
        cost=0.125,
        first_token_ms=5,
        total_ms=6,
        attempts=(ATTEMPT,),
        transforms=("p.thinking=off",),
        run_id="run_1",
    )

    assert await store.write_requests([row, done("r2")]) == 2

    assert await store.request("r1") == row
    assert await store.request("r2") == structs.replace(done("r2"), uid=(await store.request("r2")).uid)
    assert await store.request("r3") is None


def test_the_public_form_has_the_fields_of_the_admin_route(done):
    names = {"id", "time", "endpoint", "model", "key", "status", "class", "provider", "target_model", "stream", "run_id", "cost", "estimated"}
    tokens = {f"{kind}_tokens" for kind in ("prompt", "completion", "cached", "reasoning")}

    assert set(done().public()) == names | tokens | {"first_token_ms", "total_ms", "attempts", "transforms"}


async def test_a_batch_written_twice_counts_once(store, done):
    batch = [done(str(i), cost=1.0, key_id="k") for i in range(5)]
    await store.write_requests(batch)

    assert await store.write_requests([*batch, done("new", cost=1.0, key_id="k")]) == 1
    assert await store.write_requests([batch[0], batch[0]]) == 0

    assert len((await store.requests()).rows) == 6
    assert await store.spent(key_id="k") == 6.0


async def test_a_large_batch_is_written_whole(store, done):
    assert await store.write_requests([done(str(i), cost=0.5, key_id="k") for i in range(2500)]) == 2500

    assert await store.spent(key_id="k") == 1250.0
    assert await store.write_requests([]) == 0


async def test_an_id_that_a_client_used_twice_names_the_latest(store, done):
    await store.write_requests([done(model="first")])
    await store.write_requests([done(model="second")])

    assert (await store.request("r1")).model == "second"


async def test_pages_hold_everything_once_from_the_newest_on(store, done):
    await store.write_requests([done(str(i)) for i in range(25)])

    seen, before = [], None
    while True:
        page = await store.requests(limit=10, before=before)
        seen += [row.id for row in page.rows]
        before = page.next
        if before is None:
            break

    assert seen == [str(i) for i in reversed(range(25))]


@pytest.mark.parametrize("limit", [5, 6])
async def test_the_last_page_says_so(store, done, limit):
    await store.write_requests([done(str(i)) for i in range(5)])

    assert (await store.requests(limit=limit)).next is None


async def test_pages_are_narrowed_by_key_and_model(store, done):
    await store.write_requests([done(f"{key}{model}", key=key, model=model) for key in ("a", "b") for model in ("m", "n")])

    assert [r.id for r in (await store.requests(key_name="a")).rows] == ["an", "am"]
    assert [r.id for r in (await store.requests(model="n")).rows] == ["bn", "an"]
    assert [r.id for r in (await store.requests(key_name="b", model="m")).rows] == ["bm"]
    assert (await store.requests(key_name="c", before=10**30, limit=0)).rows == ()


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
async def test_strangers_words_do_not_cost_the_batch(store, done, text):
    words = {name: text + str(n) if text else "" for n, name in enumerate(("kind", "target_model", "run_id", "team", "provider"))}
    words |= dict.fromkeys(("id", "model", "key", "key_id"), text)
    row = done(**words, endpoint=text, attempts=({"message": text},), transforms=(text,), cost=1.0)

    await store.write_requests([row, done("beside", cost=1.0)])

    assert (await store.request("beside")) is not None
    kept = await store.request(text)
    assert kept is not None
    assert kept.model == (text if len(text) < 100 and text.isprintable() else kept.model)
    assert len((await store.requests(model=text, key_name=text)).rows) == 1
    assert await store.spent(key_id=text) == (2.0 if text == "" else 1.0)
    assert sum(row.requests for row in await store.usage("model")) == 2


async def test_wild_numbers_do_not_cost_the_batch(store, done):
    wild = {"prompt_tokens": 10**30, "completion_tokens": -5, "status": 10**20, "total_ms": -1}

    await store.write_requests([done("wild", time=float("nan"), cost=float("inf"), **wild), done("nan", cost=float("nan")), done("tame", cost=0.5)])

    (usage,) = await store.usage("model")
    assert (usage.requests, usage.cost, usage.completion_tokens) == (3, 0.5, 0)
    assert usage.prompt_tokens == 10**12
    assert (await store.request("wild")).cost is None


async def test_usage_sums_by_key_model_and_provider(store, done):
    await store.write_requests(
        [
            done(key="a", provider="p", prompt_tokens=1, completion_tokens=2, cached_tokens=3, reasoning_tokens=4, cost=0.5),
            done(key="a", provider="q", prompt_tokens=10, status=502, kind="server"),
            done(key="b", provider="p", status=200, kind="protocol", cost=0.25),
            done(),
        ]
    )

    assert await store.usage("key") == [UsageRow("", 1), UsageRow("a", 2, 1, 11, 2, 3, 4, 0.5), UsageRow("b", 1, 1, cost=0.25)]
    assert await store.usage("provider") == [UsageRow("", 1), UsageRow("p", 2, 1, 1, 2, 3, 4, 0.75), UsageRow("q", 1, 1, 10)]
    assert [(row.name, row.requests) for row in await store.usage("model")] == [("smart", 4)]


@pytest.mark.parametrize("by", ["team", "key; --", ""])
async def test_usage_by_anything_else_is_refused(store, by):
    with pytest.raises(InvalidRequest):
        await store.usage(by)


async def test_usage_covers_the_hours_that_a_span_touches(store, done):
    await store.write_requests([done(time=moment) for moment in (3599.9, 3600.0, 7199.0, 7200.0, 10800.0)])

    async def count(since: float | None, until: float | None) -> int:
        return sum(row.requests for row in await store.usage("model", since, until))

    assert await count(None, None) == 5
    assert await count(3600, 7200) == 2
    assert await count(3700, 7201) == 3
    assert await count(7200, None) == 2
    assert await count(None, 3600) == 1


async def test_spending_is_by_key_or_by_team_since_an_hour(store, done):
    await store.write_requests([done(key_id="k", team="t", cost=1.0, time=hour * 3600.0) for hour in range(4)] + [done(key_id="l", team="t", cost=8.0)])

    assert await store.spent(key_id="k", since=2 * 3600) == 2.0
    assert await store.spent(key_id="k", since=2 * 3600 + 5) == 2.0
    assert await store.spent(team="t") == 12.0
    assert await store.spent(team="nobody") == 0.0
    with pytest.raises(ValueError, match="either"):
        await store.spent()


async def test_retention_deletes_old_requests_and_keeps_the_sums(store, done):
    await store.write_requests([done(f"old{i}", time=10.0, key_id="k", cost=1.0) for i in range(2100)] + [done("new", time=20.0, key_id="k", cost=1.0)])
    usage = await store.usage("key")

    assert await store.retain(requests_older_than=20.0) == 2100
    assert await store.retain(requests_older_than=20.0) == 0

    assert [row.id for row in (await store.requests()).rows] == ["new"]
    assert await store.usage("key") == usage
    assert await store.spent(key_id="k") == 2101.0


def test_batches_of_all_sizes_make_few_statements(done):
    """A driver keeps each statement that it has seen: one a size of batch made the process grow by 10 MiB over 100,000 requests."""
    rows = [done(f"r{number}") for number in range(500)]
    first = [next(requests.write(rows[:size])) for size in range(1, 501)]

    assert len({statement.text for statement in first}) <= 10
    assert all(set(statement.values) == {row.uid for row in rows[: index + 1]} for index, statement in enumerate(first))
