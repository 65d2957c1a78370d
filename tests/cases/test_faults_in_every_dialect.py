"""What clients of the other dialects see when providers fail: the same chain, and errors in their own form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import PATIENT
from running import serving, yaml
from upstream_double import CUT, HANG, RESET, Item, Upstream, answer, completion, delta, finish, role

TURN = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 9, "messages": TURN},
    "completions": {"model": "m", "prompt": "hi"},
}
BOOM: dict[str, Any] = {"error": {"message": "boom", "type": "server_error"}}
ENDS: dict[str, list[Item]] = {
    "cut": [0.02, CUT],
    "reset": [0.02, RESET],
    "without finish": [],
    "error event": [0.03, BOOM],
    "silence": [HANG],
    "garbage": ["{", CUT],
}
FAST = f"{PATIENT}\ntimeouts: {{first_token: 200ms, idle: 200ms}}"

endpoints = pytest.mark.parametrize("endpoint", BODIES)


def stream_of(text: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of a stream's events, and their data without [DONE]."""
    names = [line[7:] for line in text.split("\n") if line.startswith("event: ")]
    return names, [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


@endpoints
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("end", ENDS)
async def test_before_the_first_content_the_next_provider_answers(a: Upstream, b: Upstream, endpoint: str, stream: bool, end: str) -> None:
    a.stream(role(), *ENDS[end])
    b.stream(*answer("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a=FAST)) as running:
        got = await running.client.post(f"/v1/{endpoint}", json={**BODIES[endpoint], "stream": stream})

    assert got.status_code == 200
    assert got.headers["x-thinkgate-provider"] == "b"
    assert "from b" in got.text
    assert "error" not in stream_of(got.text)[0]


@endpoints
@pytest.mark.parametrize("end", ENDS)
async def test_after_it_the_stream_ends_with_the_dialects_own_error(a: Upstream, b: Upstream, endpoint: str, end: str) -> None:
    a.stream(role(), delta("Hello"), *ENDS[end])

    async with serving(yaml({"a": a.url, "b": b.url}, a=FAST)) as running:
        got = await running.client.post(f"/v1/{endpoint}", json={**BODIES[endpoint], "stream": True})

    names, events = stream_of(got.text)
    assert got.text.count("Hello") == 1
    assert "[DONE]" not in got.text
    assert b.requests == []
    match endpoint:
        case "responses":
            assert names[-2:] == ["error", "response.failed"]
            assert events[-1]["response"]["status"] == "failed"
            assert set(events[-1]["response"]["error"]) == {"code", "message"}
            assert "response.completed" not in names
        case "messages":
            assert names[-1] == "error"
            assert set(events[-1]) >= {"type", "error"}
            assert not {"message_stop", "message_delta"} & set(names)
        case "completions":
            assert events[-1]["error"]["code"] == "stream_interrupted"
            assert not any(choice["finish_reason"] for event in events[:-1] for choice in event["choices"])


@endpoints
@pytest.mark.parametrize("end", ENDS)
async def test_a_plain_answer_is_whole_or_comes_from_the_next_provider(a: Upstream, b: Upstream, endpoint: str, end: str) -> None:
    a.stream(role(), delta("Hello"), *ENDS[end])
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a=FAST)) as running:
        got = await running.client.post(f"/v1/{endpoint}", json=BODIES[endpoint])

    assert got.headers["x-thinkgate-provider"] == "b"
    assert "from b" in got.text
    assert "Hello" not in got.text


@endpoints
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_where_nobody_answers_the_error_is_a_status_in_the_dialects_form(a: Upstream, b: Upstream, endpoint: str, stream: bool) -> None:
    a.stream(role(), BOOM)
    b.stream(role(), finish("stop"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.client.post(f"/v1/{endpoint}", json={**BODIES[endpoint], "stream": stream})

    body = got.json()
    assert got.status_code == 502
    assert got.headers["x-thinkgate-chain"] == "a=server,b=protocol"
    if endpoint == "messages":
        assert body["type"] == "error"
        assert body["error"]["type"] == "api_error"
        assert body["request_id"] == got.headers["request-id"]
    else:
        assert [attempt["class"] for attempt in body["error"]["attempts"]] == ["server", "protocol"]


@endpoints
async def test_the_callers_fault_is_told_in_the_providers_words(a: Upstream, b: Upstream, endpoint: str) -> None:
    a.reply({"error": {"message": "that picture is too large", "type": "invalid_request_error", "param": "messages", "code": "too_large"}}, status=400)

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.client.post(f"/v1/{endpoint}", json=BODIES[endpoint])

    assert got.status_code == 400
    assert got.json()["error"]["message"] == "that picture is too large"
    assert got.json()["error"]["type"] == "invalid_request_error"
    assert got.headers["x-should-retry"] == "false"
    assert b.requests == []
