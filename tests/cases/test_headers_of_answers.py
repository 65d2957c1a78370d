"""The headers that every answer has: on success, on failure and on streams."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from running import CHAT, STREAM, serving, yaml
from upstream_double import Upstream, answer, completion, events, plain

DOWN = {"error": {"message": "down", "type": "server_error"}}
TIMING = re.compile(r"gateway;dur=\d+(\.\d+)?, upstream;dur=\d+(\.\d+)?")
ASKED = pytest.mark.parametrize("body", [CHAT, STREAM], ids=["plain", "stream"])


def common(got: httpx.Response) -> dict[str, str]:
    """The gateway's own headers; all of them printable ASCII."""
    assert all(re.fullmatch(r"[ -~]*", value) for value in got.headers.values())
    assert TIMING.fullmatch(got.headers["server-timing"])
    return {name.removeprefix("x-thinkgate-"): value for name, value in got.headers.items() if name.startswith("x-thinkgate-")}


@ASKED
async def test_success_names_who_answered_after_whom(a: Upstream, b: Upstream, body: dict[str, Any]) -> None:
    a.reply(DOWN, status=500)
    b.call(lambda seen: events(*answer("x")) if seen.json.get("stream") else plain(completion("x")))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 1")) as running:
        got = await running.chat(body)

    own = common(got)
    own.pop("transforms", None)
    assert own == {"provider": "b", "model": "b-model", "attempts": "3", "chain": "a=500,a=500,b=200"}
    assert not [name for name in got.headers if name.startswith(("retry-after", "x-should-retry"))]


@ASKED
async def test_failure_names_whom_was_asked(a: Upstream, b: Upstream, body: dict[str, Any]) -> None:
    a.reply(DOWN, status=500)
    b.wire()

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat(body)

    own = common(got)
    own.pop("transforms", None)
    assert got.status_code == 502
    assert own == {"attempts": "2", "chain": "a=500,b=server", "provider": "b", "model": "b-model"}


@ASKED
@pytest.mark.parametrize(
    ("given", "kept"),
    [("mine-1", True), ("A.b_c-9", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False), ("a;b", False), ("'or 1=1", False)],
)
async def test_the_request_id_is_the_clients_where_it_is_a_plain_word(a: Upstream, body: dict[str, Any], given: str, kept: bool) -> None:
    a.call(lambda seen: events(*answer("x")) if seen.json.get("stream") else plain(completion("x")))

    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat(body, x_request_id=given)

    assert (got.headers["x-request-id"] == given) is kept
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", got.headers["x-request-id"])
    assert a.requests[0].headers["x-request-id"] == got.headers["x-request-id"]


async def test_ids_that_were_made_differ(a: Upstream) -> None:
    async with serving(yaml({"a": a.reply().url})) as running:
        made = [(await running.chat()).headers["x-request-id"] for _ in range(3)]

    assert len(set(made)) == 3
    assert all(one.startswith("req_") for one in made)


@ASKED
async def test_what_was_changed_is_told(a: Upstream, body: dict[str, Any]) -> None:
    a.call(lambda seen: events(*answer("x")) if seen.json.get("stream") else plain(completion("x")))

    async with serving(yaml({"a": a.url}, a='adapter: deepseek\nthinking: "off"')) as running:
        got = await running.chat({**body, "max_completion_tokens": 5})

    transforms = common(got)["transforms"].split(" ")
    assert "deepseek.thinking=off" in transforms
    assert "deepseek.max_tokens_field=max_tokens" in transforms


async def test_a_long_list_of_changes_is_cut_at_a_kibibyte(a: Upstream, tmp_path: Any) -> None:
    (tmp_path / "chatty.lua").write_text(
        'function transform_request(req, ctx) for i = 1, 20 do ctx.warn("warning number " .. i .. " \\r\\nx: y é " .. ("z"):rep(60)) end return req end'
    )

    async with serving(yaml({"a": a.reply().url}, a="hooks: [chatty.lua]"), base=tmp_path) as running:
        got = await running.chat()

    transforms = common(got)["transforms"]
    assert len(transforms) <= 1024
    assert 'warn="warning number 1' in transforms
    assert re.search(r" \+\d+$", transforms)
    assert "x" not in got.headers


@ASKED
async def test_the_providers_rate_limits_are_passed_on(a: Upstream, body: dict[str, Any]) -> None:
    limits = {f"x-ratelimit-{what}-{of}": "7" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")}
    more = {**limits, "set-cookie": "sid=1", "server": "cloudflare", "x-internal": "1", "openai-organization": "org-1"}
    a.call(lambda seen: events(*answer("x"), headers=more) if seen.json.get("stream") else plain(completion("x"), headers=more))

    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat(body)

    assert {name: value for name, value in got.headers.items() if name.startswith("x-ratelimit-")} == limits
    assert {"set-cookie", "x-internal", "openai-organization"}.isdisjoint(got.headers)
    assert "cloudflare" not in got.headers.get("server", "")


async def test_the_limits_of_a_provider_that_failed_are_not_those_of_the_one_that_answered(a: Upstream, b: Upstream) -> None:
    a.reply(DOWN, status=500, headers={"x-ratelimit-remaining-requests": "0"})
    b.reply(completion("x"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat()

    assert "x-ratelimit-remaining-requests" not in got.headers


async def test_a_stream_is_not_kept_by_caches_and_proxies(a: Upstream) -> None:
    async with serving(yaml({"a": a.stream().url})) as running:
        got = await running.chat(STREAM)

    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert got.headers["cache-control"] == "no-cache"
    assert got.headers["x-accel-buffering"] == "no"
    assert "content-length" not in got.headers


@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/nothing"])
async def test_every_other_route_has_an_id_too(a: Upstream, path: str) -> None:
    async with serving(yaml({"a": a.url})) as running:
        got = await running.client.get(path, headers={"x-request-id": "mine-2"})

    assert got.headers["x-request-id"] == "mine-2"


async def test_request_ids_that_are_made_stand_in_the_order_of_their_time() -> None:
    """An index of the store takes such an id beside the last one; ids in any order cost it a page each."""
    async with serving(yaml({"a": "mock://"})) as running:
        ids = []
        for _ in range(5):
            ids.append((await running.chat()).headers["x-request-id"])
            await asyncio.sleep(0.005)

    assert ids == sorted(ids)
    assert len(set(ids)) == 5
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", id) for id in ids)
