"""Virtual keys as clients and administrators meet them."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import CUT, DONE, HANG, Upstream, answer, completion, delta, finish, role, usage

ONE, TWO, ADMIN = "secret-of-one-0123456789", "secret-of-two-0123456789", "admin-key-for-tests-0123456789"
PRICED = "retries: 0\nmodels: {a-model: {input: 1000000, output: 1000000}}"  # a USD a token
SERVER = f"admin_key: {ADMIN}"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def keyed(url: str, keys: str, more: str = "", **settings: str) -> str:
    return yaml({"a": url}, server=SERVER, more=f"keys:\n  {keys}\n{more}", **settings)


async def rows(running: Running, least: int = 1) -> list[dict[str, Any]]:
    got = await running.client.get("/admin/requests", headers=bearer(ADMIN))
    found: list[dict[str, Any]] = got.json()["data"]
    assert len(found) >= least
    return found


async def admin(running: Running, method: str, path: str, body: Any = None) -> httpx.Response:
    return await running.client.request(method, f"/admin/{path}", json=body, headers=bearer(ADMIN))


async def ended(running: Running) -> None:
    async with asyncio.timeout(2):
        while "thinkgate_in_flight 0.0" not in (await running.client.get("/metrics", headers=bearer(ONE))).text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def leaves_after(running: Running, mark: str, **more: Any) -> None:
    """A client that reads a stream until `mark` and then closes its connection."""
    async with running.client.stream("POST", "/v1/chat/completions", json={**STREAM, **more}, headers=bearer(ONE)) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if mark in line:
                break
    await ended(running)


async def test_fifty_requests_at_once_under_a_limit_of_five(a: Upstream) -> None:
    a.reply(completion(), repeat=50)

    async with serving(keyed(a.url, f"one: {{key: {ONE}, rpm: 5}}")) as running:
        got = await asyncio.gather(*(running.chat(**bearer(ONE)) for _ in range(50)))

    assert sorted(g.status_code for g in got) == [200] * 5 + [429] * 45
    assert len(a.requests) == 5
    for refused in (g for g in got if g.status_code == 429):
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert "x-should-retry" not in refused.headers
    assert sorted(g.headers["x-ratelimit-remaining-requests"] for g in got if g.status_code == 200) == ["0", "1", "2", "3", "4"]


async def test_what_one_key_is_refused_takes_nothing_of_its_team_and_cools_no_provider(a: Upstream) -> None:
    a.reply(completion(), repeat=30)
    keys = f"one: {{key: {ONE}, rpm: 1, team: t}}\n  two: {{key: {TWO}, team: t}}"

    async with serving(keyed(a.url, keys, "teams: {t: {rpm: 10}}\n")) as running:
        ones = [(await running.chat(**bearer(ONE))).status_code for _ in range(10)]
        twos = [(await running.chat(**bearer(TWO))).status_code for _ in range(10)]
        ready = (await running.client.get("/readyz")).json()

    assert ones == [200] + [429] * 9
    assert twos == [200] * 9 + [429]
    assert ready["providers"]["resting"] == {}
    assert len(a.requests) == 10


async def test_tokens_are_reserved_and_settled(a: Upstream) -> None:
    a.reply(completion(), repeat=30)

    async with serving(keyed(a.url, f"one: {{key: {ONE}, tpm: 1000}}")) as running:
        first = await running.chat(**bearer(ONE))
        second = await running.chat({**CHAT, "max_tokens": 900}, **bearer(ONE))
        third = await running.chat({**CHAT, "max_tokens": 980}, **bearer(ONE))

    assert (first.status_code, first.headers["x-ratelimit-remaining-tokens"]) == (200, "0")  # 1,024 and the body: all of it
    assert second.status_code == 200
    assert third.status_code == 429  # 16 were used, which leaves 984: too few for 980 and the body


async def test_one_at_a_time_means_streams_too_and_a_place_comes_back_when_the_client_leaves(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), HANG)
    a.reply(completion(), repeat=3)

    async with serving(keyed(a.url, f"one: {{key: {ONE}, concurrency: 1}}")) as running:
        async with running.client.stream("POST", "/v1/chat/completions", json=STREAM, headers=bearer(ONE)) as answer:
            await anext(answer.aiter_raw())
            busy = await running.chat(**bearer(ONE))
        await ended(running)
        after = await running.chat(**bearer(ONE))

    assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
    assert after.status_code == 200


async def test_a_spent_budget_is_not_worth_another_try(a: Upstream) -> None:
    a.reply(completion(), repeat=30)

    async with serving(keyed(a.url, f"one: {{key: {ONE}, budget: {{usd: 10, per: day}}}}", a=PRICED)) as running:
        got = [await running.chat(**bearer(ONE)) for _ in range(3)]

    assert [g.status_code for g in got] == [200, 200, 429]
    error = got[2].json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("insufficient_quota", "insufficient_quota", None)
    assert got[2].headers["x-should-retry"] == "false"
    assert "retry-after" not in got[2].headers
    assert len(a.requests) == 2


async def test_a_stream_that_its_client_cuts_is_counted_and_charged(a: Upstream) -> None:
    a.stream(role(), *(item for i in range(52) for item in (delta(f"tok{i} "), 0.005)), finish(), DONE)

    async with serving(keyed(a.url, f"one: {{key: {ONE}, budget: {{usd: 10, per: total}}}}", a=PRICED)) as running:
        await leaves_after(running, "tok19")
        (row,) = await rows(running)
        refused = await running.chat(**bearer(ONE))

    assert (row["class"], row["status"], row["estimated"], row["key"]) == ("client_gone", 499, True, "one")
    assert row["completion_tokens"] >= 20
    assert row["prompt_tokens"] > 0
    assert row["cost"] == row["completion_tokens"] + row["prompt_tokens"]
    assert refused.status_code == 429


@pytest.mark.parametrize("told", [True, False], ids=["counted", "uncounted"])
async def test_a_clean_end_is_a_success_and_estimated_only_where_nobody_counted(a: Upstream, told: bool) -> None:
    a.stream(*answer("Hello ", "you", usage_chunk=told))

    async with serving(keyed(a.url, f"one: {{key: {ONE}}}")) as running:
        await leaves_after(running, "[DONE]")
        (row,) = await rows(running)

    assert (row["class"], row["status"], row["estimated"]) == (None, 200, not told)
    assert row["completion_tokens"] == 3 if told else row["completion_tokens"] > 0
    assert row["first_token_ms"] is not None


async def test_a_stream_that_its_provider_cuts_keeps_its_class_and_its_cost(a: Upstream) -> None:
    a.stream(role(), delta("one"), delta("two"), CUT)

    async with serving(keyed(a.url, f"one: {{key: {ONE}}}", a=PRICED)) as running:
        await running.chat(STREAM, **bearer(ONE))
        (row,) = await rows(running)

    assert (row["class"], row["estimated"]) == ("protocol", True)
    assert row["cost"] >= 3


async def test_what_failed_before_its_content_costs_nothing(a: Upstream) -> None:
    a.reply({"error": {"message": "boom"}}, status=500)
    a.reply(completion())

    async with serving(keyed(a.url, f"one: {{key: {ONE}, tpm: 1500}}", a=PRICED)) as running:
        failed = await running.chat(**bearer(ONE))
        (row,) = await rows(running)
        again = await running.chat(**bearer(ONE))

    assert failed.status_code == 502
    assert (row["cost"], row["prompt_tokens"], row["estimated"]) == (None, 0, False)
    assert again.status_code == 200


@pytest.mark.parametrize(
    "path",
    ["chat/completions", "responses", "messages", "messages/count_tokens", "completions", "embeddings", "moderations", "rerank", "images/generations"],
)
async def test_a_key_uses_its_models_alone_on_every_endpoint(a: Upstream, path: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi", "max_tokens": 5}

    async with serving(keyed(a.url, f'one: {{key: {ONE}, models: ["a/*"]}}')) as running:
        for prefix in ("/v1", ""):
            got = await running.client.post(f"{prefix}/{path}", json=body, headers=bearer(ONE))
            assert got.status_code == 403, (prefix, got.text)
            assert '"model_not_allowed"' in got.text or path.startswith("messages")
            assert "may not use the model" in got.json()["error"]["message"]

    assert a.requests == []


async def test_a_key_sees_its_models_alone(a: Upstream) -> None:
    async with serving(keyed(a.url, f'one: {{key: {ONE}, models: ["a/*"]}}\n  two: {{key: {TWO}}}')) as running:
        ones = await running.client.get("/v1/models", headers=bearer(ONE))
        twos = await running.client.get("/v1/models", headers=bearer(TWO))
        hidden = await running.client.get("/v1/models/m", headers=bearer(ONE))
        shown = await running.client.get("/v1/models/a/x", headers=bearer(ONE))

    assert ones.json()["data"] == []
    assert [entry["id"] for entry in twos.json()["data"]] == ["m"]
    assert (hidden.status_code, shown.status_code) == (403, 200)


async def test_a_limited_key_sees_its_limits_on_runs_too(a: Upstream) -> None:
    """X-ratelimit headers stand on success, failure and streams alike (CONTRACT 5)."""
    a.reply(completion(), repeat=4)
    agent = "agents:\n  plain: {pattern: simple, model: m}\n"

    async with serving(keyed(a.url, f"one: {{key: {ONE}, rpm: 3}}", agent)) as running:
        bodies = ({"input": "x"}, {"input": "x", "stream": True}, {"input": "x", "background": True}, {"input": "x"})
        got = [await running.client.post("/v1/agents/plain/runs", json=body, headers=bearer(ONE)) for body in bodies]

    assert [each.status_code for each in got] == [200, 200, 202, 429]
    assert [each.headers["x-ratelimit-remaining-requests"] for each in got] == ["2", "1", "0", "0"]


async def test_ours_are_the_limits_that_a_limited_key_sees_and_the_upstreams_else(a: Upstream) -> None:
    theirs = {"x-ratelimit-limit-requests": "9999", "x-ratelimit-remaining-tokens": "7"}
    a.reply(completion(), headers=theirs, repeat=2)
    a.stream(*answer("Hello"), headers=theirs)

    async with serving(keyed(a.url, f"one: {{key: {ONE}, rpm: 5}}\n  two: {{key: {TWO}}}")) as running:
        limited, free = await running.chat(**bearer(ONE)), await running.chat(**bearer(TWO))
        streamed = await running.chat(STREAM, **bearer(ONE))

    for got, remaining in ((limited, "4"), (streamed, "3")):
        assert got.headers.get_list("x-ratelimit-limit-requests") == ["5"]
        assert got.headers["x-ratelimit-remaining-requests"] == remaining
        assert got.headers["x-ratelimit-reset-requests"] == "1m0s"
        assert "x-ratelimit-remaining-tokens" not in got.headers
    assert free.headers["x-ratelimit-limit-requests"] == "9999"


async def test_a_dry_run_takes_nothing_of_the_limits_but_is_no_way_around_them(a: Upstream) -> None:
    a.reply(completion())

    async with serving(keyed(a.url, f"one: {{key: {ONE}, rpm: 1, models: [m]}}")) as running:
        dry = [await running.chat(**bearer(ONE), x_thinkgate_dry_run="1") for _ in range(3)]
        forbidden = await running.chat({**CHAT, "model": "a/x"}, **bearer(ONE), x_thinkgate_dry_run="1")
        real = await running.chat(**bearer(ONE))

    assert [g.status_code for g in dry] == [200] * 3
    assert (forbidden.status_code, real.status_code) == (403, 200)


async def test_nobody_comes_in_without_a_key_once_there_is_one(a: Upstream) -> None:
    async with serving(keyed(a.url, f"one: {{key: {ONE}}}")) as running:
        for headers in ({}, bearer("no-such-key-0123456789"), bearer(ONE[:-1]), bearer("${TEAM_A_KEY}")):
            assert (await running.client.get("/v1/models", headers=headers)).status_code == 401
        assert (await running.client.get("/admin/keys", headers=bearer(ONE))).status_code == 401
        assert (await running.client.get("/v1/models", headers={"x-api-key": ONE})).status_code == 200


async def test_a_key_of_the_server_may_use_everything(a: Upstream) -> None:
    a.reply(completion(), repeat=9)
    text = yaml({"a": a.url}, server=f"{SERVER}\nkeys: [{TWO}]", more=f"keys:\n  one: {{key: {ONE}, rpm: 1, models: [m]}}\n")

    async with serving(text) as running:
        got = [await running.chat({**CHAT, "model": model}, **bearer(TWO)) for model in ("m", "a/x", "m")]
        ones = [(await running.chat(**bearer(ONE))).status_code for _ in range(2)]

    assert [g.status_code for g in got] == [200] * 3
    assert not any(name.startswith("x-ratelimit") for g in got for name in g.headers)
    assert ones == [200, 429]


async def test_stored_answers_belong_to_one_key(a: Upstream) -> None:
    a.reply(completion())

    async with serving(keyed(a.url, f"one: {{key: {ONE}}}\n  two: {{key: {TWO}}}")) as running:
        made = await running.client.post("/v1/responses", json={"model": "m", "input": "hi"}, headers=bearer(ONE))
        path = f"/v1/responses/{made.json()['id']}"
        mine, theirs = await running.client.get(path, headers=bearer(ONE)), await running.client.get(path, headers=bearer(TWO))

    assert (mine.status_code, theirs.status_code) == (200, 404)


# the life of a key of the store


async def test_a_key_is_made_used_changed_rotated_and_revoked_over_the_admin_routes(a: Upstream) -> None:
    a.reply(completion(), repeat=30)

    async with serving(yaml({"a": a.url}, server=SERVER, more="teams: {t: {rpm: 100}}\n")) as running:
        made = await admin(running, "POST", "keys", {"name": "made", "models": ["m"], "rpm": 2, "team": "t", "tags": ["x"]})
        secret, ident = made.json()["key"], made.json()["id"]
        assert made.status_code == 201
        assert "digest" not in made.text
        assert [(await running.chat(**bearer(secret))).status_code for _ in range(3)] == [200, 200, 429]

        changed = await admin(running, "PATCH", f"keys/{ident}", {"rpm": 3})
        assert changed.json()["rpm"] == 3
        assert [(await running.chat(**bearer(secret))).status_code for _ in range(2)] == [200, 429]

        rotated = (await admin(running, "POST", f"keys/{ident}/rotate", {"overlap": 0})).json()
        assert (await running.chat(**bearer(secret))).status_code == 401
        assert (await running.chat(**bearer(rotated["key"]))).status_code == 429  # the same account
        await admin(running, "PATCH", f"keys/{ident}", {"rpm": None})
        assert (await running.chat(**bearer(rotated["key"]))).status_code == 200

        listed = (await admin(running, "GET", "keys")).json()["data"]
        assert [(k["id"], k["active"], k["counts_as"]) for k in listed] == [(ident, False, ident), (rotated["id"], True, ident)]
        assert secret not in str(listed)
        assert rotated["key"] not in str(listed)

        assert (await admin(running, "DELETE", f"keys/{rotated['id']}")).json()["revoked"] is True
        assert (await running.chat(**bearer(rotated["key"]))).status_code == 401
        assert (await running.client.get("/v1/models")).status_code == 401


async def test_what_cannot_be_made_or_changed_says_why(a: Upstream) -> None:
    async with serving(keyed(a.url, f"one: {{key: {ONE}}}")) as running:
        refused = [
            await admin(running, "POST", "keys", {}),
            await admin(running, "POST", "keys", {"name": "a b"}),
            await admin(running, "POST", "keys", {"name": "x", "rmp": 1}),
            await admin(running, "POST", "keys", {"name": "one"}),
            await admin(running, "PATCH", "keys/file:one", {"rpm": 1}),
            await admin(running, "DELETE", "keys/nobody"),
            await admin(running, "PATCH", "keys/nobody", {"rpm": 1}),
            await admin(running, "POST", "keys/nobody/rotate", {}),
            await admin(running, "GET", "usage?by=colour"),
            await admin(running, "GET", "usage?form=2026-01-01"),
            await admin(running, "GET", "requests?limit=x"),
            await admin(running, "GET", "requests/nothing"),
        ]

    assert [g.status_code for g in refused] == [400, 400, 400, 409, 400, 404, 404, 404, 400, 400, 400, 404]
    assert all(g.json()["error"]["message"] for g in refused)


async def test_the_first_key_of_a_gateway_without_any_closes_it(a: Upstream) -> None:
    async with serving(yaml({"a": a.url})) as running:
        assert (await running.client.get("/v1/models")).status_code == 200
        made = await running.client.post("/admin/keys", json={"name": "first"})
        assert "server.admin_key" in made.json()["warning"]
        assert (await running.client.get("/v1/models")).status_code == 401
        assert (await running.client.get("/admin/keys")).json()["error"]["code"] == "admin_disabled"
        assert (await running.client.get("/v1/models", headers=bearer(made.json()["key"]))).status_code == 200


async def test_usage_is_summed_paged_and_exported(a: Upstream) -> None:
    a.reply(completion(), repeat=5)

    async with serving(keyed(a.url, f"one: {{key: {ONE}}}\n  two: {{key: {TWO}}}", a=PRICED)) as running:
        for key in (ONE, ONE, TWO):
            await running.chat(**bearer(key), x_request_id=f"of-{key[10:13]}")
        await running.chat({**CHAT, "model": "nothing"}, **bearer(TWO))
        by_key = (await admin(running, "GET", "usage?by=key&from=2026-01-01")).json()["data"]
        by_model = (await admin(running, "GET", "usage?by=model")).json()["data"]
        later = (await admin(running, "GET", f"usage?from={time.time() + 7200:.0f}")).json()["data"]
        page = (await admin(running, "GET", "requests?limit=2")).json()
        rest = (await admin(running, "GET", f"requests?limit=2&before={page['next']}")).json()
        ones = (await admin(running, "GET", "requests?key_name=one&model=m")).json()
        one = (await admin(running, "GET", "requests/of-two")).json()
        exported = await admin(running, "GET", "requests?format=csv")

    assert [(row["name"], row["requests"], row["failed"], row["prompt_tokens"], row["cost"]) for row in by_key] == [
        ("one", 2, 0, 10, 16.0),
        ("two", 2, 1, 5, 8.0),
    ]
    assert [(row["name"], row["requests"]) for row in by_model] == [("m", 3), ("nothing", 1)]
    assert later == []
    assert [row["id"] for row in page["data"]][1:] + [row["id"] for row in rest["data"]] == ["of-two", "of-one", "of-one"]
    assert rest["next"] is None
    assert len(ones["data"]) == 2
    assert (one["key"], one["provider"], one["target_model"], one["attempts"][0]["status"]) == ("two", "a", "a-model", 200)
    assert exported.headers["content-type"].startswith("text/csv")
    table = list(csv.DictReader(io.StringIO(exported.text)))
    assert [row["model"] for row in table] == ["nothing", "m", "m", "m"]


async def test_nothing_is_lost_in_a_clean_stop_and_a_restart_knows_what_was_spent(a: Upstream, tmp_path: Path) -> None:
    a.reply(completion(), repeat=50)
    file = tmp_path / "thinkgate.yaml"
    file.write_text(keyed(a.url, f"one: {{key: {ONE}, budget: {{usd: 160, per: total}}}}", a=PRICED))

    async with serving(file) as running:
        await asyncio.gather(*(running.chat(**bearer(ONE)) for _ in range(20)))
    async with serving(file) as running:
        got = await running.chat(**bearer(ONE))
        listed = (await admin(running, "GET", "keys")).json()["data"]
        found = await rows(running, 21)

    assert got.status_code == 429
    assert (listed[0]["id"], listed[0]["spent_usd"]) == ("file:one", 160.0)
    assert len(found) == 21


async def test_a_reload_takes_keys_in_and_out_and_refuses_another_store(a: Upstream, tmp_path: Path) -> None:
    a.reply(completion(), repeat=5)
    file = tmp_path / "thinkgate.yaml"
    file.write_text(keyed(a.url, f"one: {{key: {ONE}, rpm: 1}}"))

    async with serving(file) as running:
        assert (await running.chat(**bearer(ONE))).status_code == 200
        file.write_text(keyed(a.url, f"one: {{key: {ONE}, rpm: 1}}\n  two: {{key: {TWO}}}"))
        assert running.gateway.reload()
        assert [(await running.chat(**bearer(key))).status_code for key in (ONE, TWO)] == [429, 200]
        file.write_text(keyed(a.url, f"two: {{key: {TWO}}}"))
        assert running.gateway.reload()
        assert (await running.chat(**bearer(ONE))).status_code == 401
        file.write_text(keyed(a.url, f"two: {{key: {TWO}}}", "store: sqlite:///other.db\n"))
        assert not running.gateway.reload()
        assert "restart" in (await running.client.get("/readyz")).json()["config"]["error"]


async def test_a_usage_chunk_before_the_client_leaves_is_believed(a: Upstream) -> None:
    a.stream(role(), delta("Hello"), finish(), usage(50, 40), HANG)

    async with serving(keyed(a.url, f"one: {{key: {ONE}}}")) as running:
        await leaves_after(running, '"completion_tokens":40', stream_options={"include_usage": True})
        (row,) = await rows(running)

    assert (row["prompt_tokens"], row["completion_tokens"], row["estimated"]) == (50, 40, False)


async def test_without_a_retention_only_what_a_budget_needs_is_written(a: Upstream) -> None:
    a.reply(completion(), repeat=3)
    keys = f"one: {{key: {ONE}}}\n  two: {{key: {TWO}, budget: {{usd: 100, per: total}}}}"

    async with serving(keyed(a.url, keys, "retention: {requests: 0}\n", a=PRICED)) as running:
        await running.chat(**bearer(ONE))
        await running.chat(**bearer(TWO))
        found = await rows(running)

    assert [row["key"] for row in found] == ["two"]


async def test_a_request_that_nobody_answered_is_a_failure_of_the_provider_that_was_asked_last(a: Upstream) -> None:
    a.reply({"error": {"message": "boom"}}, status=500)
    async with serving(yaml({"a": a.url}, a="retries: 0")) as running:
        await running.chat()
        await running.gateway.ledger.usage.flush()
        (row,) = (await running.client.get("/admin/requests")).json()["data"]
        used = (await running.client.get("/admin/usage?by=provider")).json()["data"]

    assert (row["provider"], row["target_model"], row["class"]) == ("a", "a-model", "providers_exhausted")
    assert [(one["name"], one["requests"], one["failed"]) for one in used] == [("a", 1, 1)]
