"""Which failure goes to the next provider, which one rests a provider, and which one ends the request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asking import PATIENT, error_of, sdk, shaped, text
from openai import InternalServerError
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import HANG, Upstream, answer, completion, delta, plain, role

IMAGE = {
    "error": {"message": "messages.7: image dimensions exceed max allowed size", "type": "invalid_request_error", "param": None, "code": "image_too_large"}
}
FLAGGED = {"error": {"message": "Your request was flagged", "type": "invalid_request_error", "param": None, "code": "content_policy_violation"}}


def slow_down(text: str = "slow") -> dict[str, Any]:
    return {"error": {"message": text, "type": "rate_limit_error", "param": None, "code": None}}


async def chain_of(running: Running, **more: Any) -> str:
    return str((await running.chat({**CHAT, **more})).headers.get("x-thinkgate-chain"))


@pytest.mark.parametrize(("refusal", "code"), [(IMAGE, "image_too_large"), (FLAGGED, "content_policy_violation")], ids=["bad request", "content policy"])
async def test_the_callers_fault_ends_the_chain_with_the_providers_words_and_rests_nobody(a: Upstream, b: Upstream, refusal: dict[str, Any], code: str) -> None:
    a.reply(refusal, status=400).reply(completion("a"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 2\ncooldown: {after: 1}")) as running:
        refused = await running.chat()
        again = await chain_of(running)

    error = refused.json()["error"]
    attempts = error.pop("attempts")
    assert (refused.status_code, error) == (400, refusal["error"])
    assert error["code"] == code
    assert [attempt["status"] for attempt in attempts] == [400]
    assert refused.headers["x-should-retry"] == "false"
    assert again == "a=200"
    assert b.requests == []


async def test_a_model_may_let_content_policy_move_on(a: Upstream, b: Upstream) -> None:
    a.reply(FLAGGED, status=400)
    b.reply(completion("b"))

    async with serving(yaml({"a": a.url, "b": b.url}, model="move_on: [content_filter]")) as running:
        got = await running.chat()

    assert got.json()["choices"][0]["message"]["content"] == "b"


async def test_a_model_may_let_nothing_move_on(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500)

    async with serving(yaml({"a": a.url, "b": b.url}, model="move_on: [rate_limit]")) as running:
        got = await running.chat()

    assert (got.status_code, b.requests) == (502, [])


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_request_may_refuse_fallback(a: Upstream, b: Upstream, stream: bool) -> None:
    a.stream({"error": {"message": "boom", "type": "server_error"}})
    b.stream(role(), delta("b"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat({**CHAT, "stream": stream}, x_thinkgate_fallback="off")

    assert got.status_code == 502
    assert "boom" in got.json()["error"]["message"]
    assert b.requests == []
    assert a.requests[0].json == {**CHAT, "model": "a-model", "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
    assert not [name for name in a.requests[0].headers if name.startswith("x-thinkgate")]


async def test_a_resting_provider_is_not_asked_and_the_client_learns_how_long(a: Upstream) -> None:
    a.reply(slow_down(), status=429, headers={"retry-after": "7"})

    async with serving(yaml({"a": a.url})) as running:
        first, second = await running.chat(), await running.chat()

    assert (first.status_code, first.headers["retry-after"], first.json()["error"]["code"]) == (429, "7", "providers_exhausted")
    assert (second.status_code, second.json()["error"]["code"]) == (429, "no_target_available")
    assert 1 <= int(second.headers["retry-after"]) <= 7
    assert 6000 < int(second.headers["retry-after-ms"]) <= 7000
    assert "skipped" in second.json()["error"]["attempts"][0]
    assert len(a.requests) == 1


async def test_after_its_rest_a_provider_is_asked_again(a: Upstream) -> None:
    a.reply(slow_down(), status=429, headers={"retry-after-ms": "300"}).reply(completion("back"))

    async with serving(yaml({"a": a.url})) as running:
        await running.chat()
        for _ in range(3):  # what the client is told is no new rest
            assert (await running.chat()).status_code == 429
        await asyncio.sleep(0.35)
        assert await chain_of(running) == "a=200"


@pytest.mark.parametrize("waits", [("1", "30"), ("30", "1")], ids=["longer last", "longer first"])
async def test_of_two_waits_the_longer_one_holds(a: Upstream, waits: tuple[str, str]) -> None:
    for wait in waits:
        a.reply(slow_down(), status=429, headers={"retry-after": wait}, delay=0.05)

    async with serving(yaml({"a": a.url})) as running:
        await asyncio.gather(running.chat(), running.chat())
        third = await running.chat()

    assert third.json()["error"]["code"] == "no_target_available"
    assert int(third.headers["retry-after"]) in (29, 30)


async def test_an_older_success_does_not_end_a_newer_rest(a: Upstream) -> None:
    a.reply(completion("late"), delay=0.3).reply(slow_down(), status=429, headers={"retry-after": "30"})

    async with serving(yaml({"a": a.url})) as running:
        slow = asyncio.create_task(running.chat())
        await a.until(lambda upstream: upstream.requests)
        await running.chat()
        assert (await slow).status_code == 200
        assert (await running.chat()).json()["error"]["code"] == "no_target_available"


async def test_one_that_rests_on_our_arithmetic_is_tried_by_one_request_at_a_time(a: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500).reply(completion("back"), delay=0.2)

    async with serving(yaml({"a": a.url}, a="retries: 0\ncooldown: {after: 1, base: 30s, max: 1m}")) as running:
        assert await chain_of(running) == "a=500"
        many = await asyncio.gather(*(running.chat() for _ in range(5)))
        after = await running.chat()

    assert sorted(got.status_code for got in many) == [200, 503, 503, 503, 503]
    assert len(a.requests) == 3
    assert after.status_code == 200


async def test_failures_in_a_row_rest_a_provider_and_the_next_one_is_asked_first(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500)

    async with serving(yaml({"a": a.url, "b": b.reply().url}, a="retries: 0\ncooldown: {after: 2, base: 30s, max: 1m}")) as running:
        chains = [await chain_of(running) for _ in range(3)]

    assert chains == ["a=500,b=200", "a=500,b=200", "b=200"]


async def test_cutting_streams_rest_a_provider_only_after_some_in_a_row(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("x"))
    b.stream()

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 0\ncooldown: {after: 2, base: 30s, max: 1m}")) as running:
        ends = [await running.events() for _ in range(3)]

    assert [error_of(events)["code"] for events in ends[:2]] == ["stream_interrupted"] * 2
    assert text(ends[2]) == "Hello"


async def test_a_post_that_timed_out_is_sent_once(a: Upstream) -> None:
    a.wire(HANG)

    async with serving(yaml({"a": a.url}, a="retries: 3\ntimeouts: {total: 300ms}")) as running:
        got = await running.chat(None, x_request_id="mine-1")

    assert (got.status_code, got.headers["x-thinkgate-chain"]) == (504, "a=timeout")
    assert [seen.headers["x-request-id"] for seen in a.requests] == ["mine-1"]


async def test_the_calls_of_a_provider_are_the_sdks_tries_times_the_chain(a: Upstream, b: Upstream) -> None:
    for upstream in (a, b):
        upstream.wire(HANG)
    settings = PATIENT + "\ntimeouts: {total: 50ms}"

    async with (
        serving(yaml({"a": a.url, "b": b.url}, a=settings, b=settings)) as running,
        sdk(running, max_retries=1) as client,
    ):
        with pytest.raises(InternalServerError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

    assert caught.value.status_code == 504
    assert (len(a.requests), len(b.requests)) == (2, 2)


@pytest.mark.parametrize(("status", "calls"), [(500, 2), (503, 2), (400, 1), (401, 1), (404, 1)])
async def test_only_outages_are_asked_again(a: Upstream, status: int, calls: int) -> None:
    a.reply({"error": {"message": "no"}}, status=status)

    async with serving(yaml({"a": a.url}, a="retries: 1")) as running:
        got = await running.chat()

    assert len(a.requests) == calls
    assert len(got.json()["error"]["attempts"]) == calls
    assert got.headers["x-thinkgate-attempts"] == str(calls)


async def test_a_short_wait_is_waited_and_a_longer_one_is_not(a: Upstream, b: Upstream) -> None:
    a.reply(slow_down(), status=429, headers={"retry-after-ms": "100"}).reply(completion("a"))
    b.reply(slow_down(), status=429, headers={"retry-after": "3"})

    async with serving(yaml({"a": a.url}, a="retries: 1")) as running:
        assert await chain_of(running) == "a=429,a=200"
    async with serving(yaml({"b": b.url, "a": a.url}, b="retries: 1")) as running:
        assert await chain_of(running) == "b=429,a=200"


async def test_when_all_fail_every_attempt_is_told(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "Request rate increased too quickly", "type": "rate_limit_error", "param": None, "code": "throttle"}}, status=429)
    b.reply({"error": {"message": "Model access denied", "type": "permission_error", "param": None, "code": None}}, status=403)

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat()

    error = got.json()["error"]
    assert got.status_code == 502
    assert shaped(error)
    assert (error["type"], error["code"]) == ("upstream_error", "providers_exhausted")
    assert error["message"] == 'all 2 providers failed, last error: api error 403: "Model access denied" (a: 429 rate_limit; b: 403 auth)'
    assert [(x["provider"], x["model"], x["class"], x["status"], x["message"]) for x in error["attempts"]] == [
        ("a", "a-model", "rate_limit", 429, "Request rate increased too quickly"),
        ("b", "b-model", "auth", 403, "Model access denied"),
    ]
    assert all(isinstance(x["ms"], int) and x["ms"] >= 0 for x in error["attempts"])


async def test_a_long_message_is_clipped_and_a_page_becomes_its_title(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "x" * 5000}}, status=500)
    b.reply(b"<html><head><title>502 Bad Gateway</title></head><body>secret internals</body></html>", status=502)

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        error = (await running.chat()).json()["error"]

    assert [len(x["message"]) <= 300 for x in error["attempts"]] == [True, True]
    assert error["attempts"][1]["message"] == "502 Bad Gateway"
    assert "secret internals" not in str(error)


async def test_a_longer_context_is_looked_for_and_a_shorter_one_is_left_out(a: Upstream, b: Upstream) -> None:
    a.reply(
        {
            "error": {
                "message": "maximum context length is 8192 tokens",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
        status=400,
    )
    b.reply(completion("long"))
    sizes = {"a": "retries: 0\nmodels: {a-model: {context: 8k}}", "b": "retries: 0\nmodels: {b-model: {context: 1M}}"}

    async with serving(yaml({"a": a.url, "b": b.url}, **sizes)) as running:
        assert await chain_of(running) == "a=400,b=200"
    async with serving(yaml({"a": a.url, "b": b.url}, a=sizes["a"])) as running:
        got = await running.chat()

    assert (got.status_code, got.json()["error"]["code"], got.json()["error"]["param"]) == (400, "context_length_exceeded", "messages")
    assert len(b.requests) == 1


async def test_a_repair_starts_from_the_clients_request_and_is_made_once(a: Upstream, b: Upstream) -> None:
    refusal = {
        "error": {
            "message": "Unsupported parameter: 'frequency_penalty' is not supported with this model.",
            "type": "invalid_request_error",
            "param": "frequency_penalty",
            "code": "unsupported_parameter",
        }
    }
    a.reply(refusal, status=400, repeat=2).reply(completion("a"))
    b.reply(completion("b"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat({**CHAT, "frequency_penalty": 1, "top_p": 0.5})

    assert got.headers["x-thinkgate-chain"] == "a=400,a=400,b=200"
    assert [set(seen.json) - set(CHAT) for seen in a.requests] == [{"frequency_penalty", "top_p"}, {"top_p"}]
    assert b.requests[0].json == {**CHAT, "model": "b-model", "frequency_penalty": 1, "top_p": 0.5}


async def test_two_requests_at_once_do_not_mix(a: Upstream) -> None:
    a.call(lambda seen: plain(completion(seen.json["messages"][0]["content"]), delay=0.01))

    async with serving(yaml({"a": a.url})) as running:
        texts = [str(i) for i in range(40)]
        got = await asyncio.gather(*(running.chat({**CHAT, "messages": [{"role": "user", "content": t}]}) for t in texts))

    assert [x.json()["choices"][0]["message"]["content"] for x in got] == texts


async def test_a_streamed_fallback_starts_after_everything_that_the_first_said_was_dropped(a: Upstream, b: Upstream) -> None:
    a.stream(role(id="chatcmpl-a"), {"error": {"message": "overloaded", "type": "overloaded_error"}})
    b.stream(*answer("from b"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat(STREAM)

    assert "chatcmpl-a" not in got.text
    assert got.headers["x-thinkgate-provider"] == "b"
