"""What users of other gateways had to report as bugs in 2026, by the project and number of the report."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asking import PATIENT, Bare, shaped
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import HANG, Item, Upstream, answer, completion, delta, role, usage

RESPONSES: dict[str, Any] = {"model": "m", "input": "hi", "stream": True}
MESSAGES: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
CREATED: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "model": "x", "output": []}
SPEAKS = "options: {speaks: [responses, messages]}\nretries: 0"


COMPLETED: dict[str, Any] = {**CREATED, "status": "completed"}
COMPLETED["output"] = [
    {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "from b", "annotations": []}]}
]


def named(name: str, **data: Any) -> Item:
    return name, {"type": name, **data}


def failed(code: str, message: str) -> Item:
    return named("response.failed", response={**CREATED, "status": "failed", "error": {"code": code, "message": message}})


def said(text: str) -> list[Item]:
    """A whole stream of Responses."""
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    place: dict[str, Any] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return [
        named("response.created", response=CREATED),
        named("response.output_item.added", output_index=0, item={**item, "status": "in_progress", "content": []}),
        named("response.content_part.added", **place, part={"type": "output_text", "text": "", "annotations": []}),
        named("response.output_text.delta", **place, delta=text),
        named("response.output_text.done", **place, text=text),
        named("response.output_item.done", output_index=0, item=item),
        named("response.completed", response={**CREATED, "status": "completed", "output": [item]}),
    ]


async def post(running: Running, path: str, body: dict[str, Any]) -> Any:
    return await running.client.post(f"/v1/{path}", json=body)


@pytest.mark.parametrize("end", ["failed", "error event"])
async def test_a_quota_error_behind_response_created_moves_on(a: Upstream, b: Upstream, end: str) -> None:
    """bifrost#5395: the first event was taken for an answer, and the fallback never fired."""
    broken = (
        failed("insufficient_quota", "You exceeded your current quota") if end == "failed" else named("error", code="rate_limit_exceeded", message="slow down")
    )
    a.stream(named("response.created", response=CREATED), named("response.in_progress", response=CREATED), broken)
    b.stream(*said("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a=SPEAKS, b=SPEAKS)) as running:
        got = await post(running, "responses", RESPONSES)

    assert got.headers["x-thinkgate-provider"] == "b"
    assert got.text.count("response.created") == 2  # the name and the type of one event
    assert "from b" in got.text
    assert "quota" not in got.text


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_a_failed_response_is_no_empty_success(a: Upstream, b: Upstream, stream: bool) -> None:
    """litellm#36768: `response.failed` became 200 with an empty answer that had stopped."""
    if stream:
        a.stream(named("response.created", response=CREATED), failed("server_error", "it broke"))
        b.stream(*said("from b"))
    else:
        a.reply({**CREATED, "status": "failed", "error": {"code": "server_error", "message": "it broke"}})
        b.reply(COMPLETED)

    async with serving(yaml({"a": a.url, "b": b.url}, a=SPEAKS, b=SPEAKS)) as running:
        got = await post(running, "responses", {**RESPONSES, "stream": stream})
        alone = await post(running, "responses", {**RESPONSES, "model": "a/x", "stream": stream})

    assert got.headers["x-thinkgate-provider"] == "b"
    assert alone.status_code == 502
    assert shaped(alone.json()["error"])


async def test_where_both_fail_no_half_begun_message_went_out(a: Upstream, b: Upstream) -> None:
    """litellm#38610: the client had 200 and `message_start` before it learned that nobody answers."""
    begun = named("message_start", message={"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [], "usage": {"input_tokens": 1}})
    busy = named("error", error={"type": "overloaded_error", "message": "Overloaded"})
    a.stream(begun, named("ping"), busy)
    b.stream(begun, busy)

    async with serving(yaml({"a": a.url, "b": b.url}, a=SPEAKS, b=SPEAKS)) as running:
        got = await post(running, "messages", MESSAGES)

    assert got.status_code == 529
    assert got.json()["type"] == "error"
    assert got.json()["error"]["type"] == "overloaded_error"
    assert "message_start" not in got.text


async def test_each_provider_gets_the_request_in_its_own_dialect(a: Upstream, b: Upstream) -> None:
    """claude-code-router#1615: the next provider was sent the untranslated body, and refused it."""
    a.reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, status=529)
    b.reply(completion("from b"))
    body = {**MESSAGES, "stream": False, "system": "Be brief", "stop_sequences": ["END"]}

    async with serving(yaml({"a": a.url, "b": b.url}, a=SPEAKS)) as running:
        got = await post(running, "messages", body)

    assert got.json()["content"][0]["text"] == "from b"
    assert a.requests[0].json == {**body, "model": "a-model"}
    assert b.requests[0].json["messages"] == [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hi"}]
    assert b.requests[0].json["stop"] == ["END"]
    assert {"system", "stop_sequences"}.isdisjoint(b.requests[0].json)


ODD: dict[str, Any] = {
    "a word": "rate_limit",
    "a number as text": "429",
    "a fraction": 429.5,
    "a list": [429],
    "an object": {},
    "true": True,
    "null": None,
    "a big one": 10**30,
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("field", ["code", "status", "type", "status_code"])
@pytest.mark.parametrize("value", ODD)
async def test_an_error_whose_code_is_of_any_kind_moves_on(a: Upstream, b: Upstream, field: str, value: str, stream: bool) -> None:
    """litellm#26925: a status that was no integer broke the fallback itself."""
    a.reply({"error": {"message": "boom", field: ODD[value]}})
    a.reply({"error": {"message": "boom", field: ODD[value]}}, status=500)
    b.stream(*answer("from b"), repeat=2)

    async with serving(yaml({"a": a.url, "b": b.url}, a=PATIENT)) as running:
        for _ in range(2):
            got = await running.chat({**CHAT, "stream": stream})
            assert got.headers["x-thinkgate-provider"] == "b"
            await asyncio.sleep(0.002)
    assert len(a.requests) == 2


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_streams_and_plain_answers_take_the_same_chain(a: Upstream, b: Upstream, stream: bool) -> None:
    """litellm#25843, #29808: fallbacks and retries held for plain requests only."""
    a.reply({"error": {"message": "down"}}, status=500)
    b.stream(*answer("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 2")) as running:
        got = await running.chat({**CHAT, "stream": stream})

    assert got.headers["x-thinkgate-chain"] == "a=500,a=500,a=500,b=200"


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        ([role(), {"error": {"message": "flagged by our content policy", "code": "content_policy_violation"}}], "content_filter"),
        ([role(), "[DONE]"], "protocol"),
    ],
    ids=["content policy inside a stream", "a stream without a token"],
)
async def test_a_failure_inside_a_stream_is_counted_as_one(a: Upstream, items: list[Item], kind: str) -> None:
    """new-api#4139, #4060: logged and billed as successes."""
    a.stream(*items)

    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat(STREAM)
        metrics = (await running.client.get("/metrics")).text

    assert got.status_code in (400, 502)
    assert f'thinkgate_attempts_total{{class="{kind}",provider="a"}} 1.0' in metrics
    assert 'class="ok"' not in metrics
    assert "thinkgate_tokens_total{" not in metrics


async def test_what_a_client_that_left_had_cost_is_counted(a: Upstream) -> None:
    """litellm#30630: the usage so far was lost when the client cancelled."""
    counted = {**delta("Hel"), "usage": usage(7, 2)["usage"]}
    a.stream(role(), counted, HANG)

    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url, STREAM)
        await client.until(b"Hel")
        await client.close()
        await a.until(lambda upstream: upstream.disconnected)
        async with asyncio.timeout(2):
            while "thinkgate_in_flight 0.0" not in (metrics := (await running.client.get("/metrics")).text):  # noqa: ASYNC110 - the gateway's own word
                await asyncio.sleep(0.01)

    assert 'thinkgate_tokens_total{kind="prompt",provider="a"} 7.0' in metrics


async def test_thinking_counts_as_a_first_token_of_the_last_provider_too(a: Upstream, b: Upstream) -> None:
    """otari#237: a slow but valid last attempt was killed while it was thinking."""
    a.reply({"error": {"message": "down"}}, status=500)
    thinking = [
        piece for n in range(6) for piece in (0.1, {**delta(""), "choices": [{"index": 0, "delta": {"reasoning_content": f"{n} "}, "finish_reason": None}]})
    ]
    b.stream(role(), *thinking, *answer("at last")[1:])

    async with serving(yaml({"a": a.url, "b": b.url}, b="timeouts: {first_token: 300ms}", model="deadline: 400ms")) as running:
        events = await running.events()

    assert events[-1] == "[DONE]"
    assert "at last" in "".join(events)


async def test_a_new_config_is_used_without_a_restart(a: Upstream, b: Upstream, tmp_path: Any) -> None:
    """litellm#20409: every change of the config needed a restart."""
    file = tmp_path / "thinkgate.yaml"
    file.write_text(yaml({"a": a.reply().url}))
    async with serving(file) as running:
        before = await running.chat()
        file.write_text(yaml({"b": b.reply().url}))
        reloaded = await running.client.post("/admin/reload")
        after = await running.chat()

    assert reloaded.status_code == 200
    assert [got.headers["x-thinkgate-provider"] for got in (before, after)] == ["a", "b"]


async def test_an_opening_of_20000_events_without_content_is_not_an_answer(a: Upstream, b: Upstream) -> None:
    """What comes before the content is held back, and dropped with the provider that said it."""
    a.stream(*([json.dumps(role())] * 20_000), HANG)
    b.stream(*answer("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="timeouts: {first_token: 1500ms}\nretries: 0")) as running:
        got = await running.chat(STREAM)

    assert got.headers["x-thinkgate-chain"] == "a=protocol,b=200"
    assert got.text.count("data: ") <= 5
