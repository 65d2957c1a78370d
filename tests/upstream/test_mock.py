from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.upstream.mock import Knobs, Mock, MockExchange, check
from gateway.upstream.transport import TransportError, Url

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "say one two three"}], "thinking": {"type": "disabled"}}
FAST = "gap=0&reply=one%20two%20three"


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def ask(
    knobs: str | Mock, path: str = "/v1/chat/completions", body: Any = None, *, within: float = 5.0, method: bytes = b"POST", **more: Any
) -> MockExchange:
    mock = Mock(f"mock://?{knobs}") if isinstance(knobs, str) else knobs
    raw = body if isinstance(body, bytes) else json.dumps((CHAT if body is None else body) | more).encode()
    return await mock.open(method, Url.parse(f"http://mock{path}"), [], raw, connect=soon(), deadline=soon(within))


async def read(exchange: MockExchange, within: float = 5.0) -> bytes:
    out = b""
    while (piece := await exchange.read(soon(within))) is not None:
        out += piece
    return out


async def broken(exchange: MockExchange, kind: str, within: float = 0.05) -> bytes:
    """What came before the exchange failed with that kind."""
    out = b""
    try:
        while (piece := await exchange.read(soon(within))) is not None:
            out += piece
        ended = "clean"
    except TransportError as error:
        ended = error.kind
    assert ended == kind
    return out


def events(raw: bytes) -> list[Any]:
    texts = [part.removeprefix("data: ") for part in raw.decode().split("\n\n") if part]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def texts(raw: bytes) -> list[str]:
    return [c["delta"]["content"] for e in events(raw) if e != "[DONE]" for c in e.get("choices", []) if c["delta"].get("content")]


async def test_a_stream_is_an_ordinary_event_stream_with_a_clean_end() -> None:
    exchange = await ask(FAST, stream=True)

    raw = await read(exchange)

    assert exchange.status == 200
    assert (exchange.header(b"content-type") or b"").startswith(b"text/event-stream")
    assert texts(raw) == ["one", " two", " three"]
    assert events(raw)[-1] == "[DONE]"
    assert "usage" not in events(raw)[0]


async def test_a_plain_answer_is_json_with_usage() -> None:
    exchange = await ask(FAST)

    answer = json.loads(await read(exchange))

    assert exchange.header(b"content-type") == b"application/json"
    assert answer["choices"][0]["message"]["content"] == "one two three"
    assert answer["usage"]["completion_tokens"] == 4


async def test_without_knobs_the_demo_model_answers_with_reasoning() -> None:
    answer = json.loads(await read(await ask("", body={"model": "demo", "messages": [{"role": "user", "content": "hi"}]})))

    assert "demo model" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["message"]["reasoning_content"]


async def test_usage_off_leaves_usage_out_even_where_it_was_asked_for() -> None:
    plain = json.loads(await read(await ask(f"{FAST}&usage=off")))
    streamed = events(await read(await ask(f"{FAST}&usage=off", stream=True, stream_options={"include_usage": True})))

    assert "usage" not in plain
    assert all("usage" not in event for event in streamed if event != "[DONE]")


@pytest.mark.parametrize("status", [400, 401, 402, 404, 429, 500, 503, 529])
async def test_a_status_comes_with_an_error_body_of_the_usual_form(status: int) -> None:
    exchange = await ask(f"status={status}&retry_after=3", stream=True)

    error = json.loads(await read(exchange))["error"]

    assert exchange.status == status
    assert exchange.header(b"retry-after") == b"3"
    assert sorted(error) == ["code", "message", "param", "type"]


async def test_html_is_a_page_of_a_bad_gateway() -> None:
    exchange = await ask("html")
    with_status = await ask("html&status=200")

    assert exchange.status == 502
    assert (await read(exchange)).startswith(b"<!DOCTYPE html>")
    assert with_status.status == 200


async def test_a_body_is_given_as_it_is_with_its_kind() -> None:
    exchange = await ask("status=400&body=%7B%22detail%22:%22no%22%7D")
    stream = await ask("body=data:%20%7B%7D%0A%0A")

    assert (exchange.status, await read(exchange)) == (400, b'{"detail":"no"}')
    assert exchange.header(b"content-type") == b"application/json"
    assert (stream.header(b"content-type") or b"").startswith(b"text/event-stream")


async def test_refuse_is_a_connect_error() -> None:
    with pytest.raises(TransportError) as caught:
        await ask("refuse")

    assert caught.value.kind == "connect"


async def test_empty_is_a_stream_of_nothing_and_a_plain_answer_without_text() -> None:
    stream = await read(await ask("empty&gap=0", stream=True))
    plain = json.loads(await read(await ask("empty")))

    assert stream == b"data: [DONE]\n\n"
    assert plain["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}


async def test_error_after_role_is_an_error_inside_a_200() -> None:
    exchange = await ask("error_after_role&gap=0", stream=True)
    plain = await ask("error_after_role")

    first, second = events(await read(exchange))

    assert exchange.status == 200
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert second["error"]["type"] == "server_error"
    assert plain.status == 200
    assert "error" in json.loads(await read(plain))


async def test_bad_json_stands_where_it_was_asked_for_and_the_stream_goes_on() -> None:
    parts = [part for part in (await read(await ask(f"{FAST}&bad_json_at=2", stream=True))).split(b"\n\n") if part]

    bad = [position for position, part in enumerate(parts) if part != b"data: [DONE]" and not _is_json(part)]

    assert bad == [2]
    assert parts[-1] == b"data: [DONE]"


async def test_a_plain_answer_with_bad_json_ends_properly() -> None:
    assert not _is_json(await read(await ask(f"{FAST}&bad_json_at=1")))


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw.removeprefix(b"data: "))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("after", "seen"), [(0, []), (2, ["one", " two"]), (99, ["one", " two", " three"])])
async def test_a_stream_is_cut_after_so_many_content_events_and_never_ends_cleanly(after: int, seen: list[str]) -> None:
    raw = await broken(await ask(f"{FAST}&cut_after={after}", stream=True), "cut")

    assert texts(raw) == seen
    assert b"[DONE]" not in raw
    assert events(raw)[0]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize(("after", "seen"), [(0, []), (2, ["one", " two"]), (99, ["one", " two", " three"])])
async def test_a_stream_stalls_after_so_many_content_events(after: int, seen: list[str]) -> None:
    raw = await broken(await ask(f"{FAST}&stall_after={after}", stream=True), "timeout")

    assert texts(raw) == seen


@pytest.mark.parametrize(("knob", "kind"), [("cut_after=1", "cut"), ("stall_after=1", "timeout")])
async def test_a_plain_answer_breaks_half_way(knob: str, kind: str) -> None:
    raw = await broken(await ask(f"{FAST}&{knob}"), kind)

    assert raw.startswith(b'{"id"')
    assert not _is_json(raw)


@pytest.mark.parametrize("knob", ["slow_headers=50ms", "latency=0.05"])
async def test_slow_headers_are_silence_before_the_status(knob: str) -> None:
    start = soon(0)
    await ask(knob)
    waited = soon(0) - start

    with pytest.raises(TransportError) as caught:
        await ask(knob, within=0.01)

    assert waited >= 0.05
    assert caught.value.kind == "timeout"


async def test_the_first_token_is_slow_and_a_read_after_a_timeout_goes_on_waiting() -> None:
    exchange = await ask(f"{FAST}&slow_ttft=60ms", stream=True)
    start = soon(0)

    assert await broken(exchange, "timeout", within=0.01) == b""
    raw = await read(exchange)

    assert soon(0) - start >= 0.06
    assert texts(raw) == ["one", " two", " three"]


@pytest.mark.parametrize("knob", ["gap=20ms", "tokens_per_second=50"])
async def test_the_pace_is_between_content_events(knob: str) -> None:
    start = soon(0)
    await read(await ask(f"reply=one%20two%20three&{knob}", stream=True))

    assert 0.04 <= soon(0) - start < 0.4


async def test_only_the_first_requests_fail() -> None:
    mock = Mock(f"mock://?fail_first=2&status=429&{FAST}")

    statuses = [(await ask(mock)).status for _ in range(4)]

    assert statuses == [429, 429, 200, 200]
    assert mock.requests == 4


async def test_the_first_requests_fail_with_500_where_no_fault_is_named() -> None:
    mock = Mock(f"mock://?fail_first=1&{FAST}")

    assert [(await ask(mock)).status for _ in range(2)] == [500, 200]


async def test_a_fault_without_a_status_goes_away_too() -> None:
    mock = Mock(f"mock://?fail_first=1&cut_after=0&{FAST}")

    await broken(await ask(mock, stream=True), "cut")

    assert texts(await read(await ask(mock, stream=True))) == ["one", " two", " three"]


async def test_legacy_completions_answer_in_their_own_form() -> None:
    body = {"model": "demo", "prompt": "say hello world"}
    plain = json.loads(await read(await ask("gap=0", "/v1/completions", body)))
    streamed = events(await read(await ask("gap=0", "/completions", body, stream=True)))

    assert plain["object"] == "text_completion"
    assert plain["choices"][0]["text"] == "hello world"
    assert "".join(c["text"] for event in streamed[:-1] for c in event["choices"]) == "hello world"


async def test_models_embeddings_and_what_is_not_served() -> None:
    models = json.loads(await read(await ask("", "/v1/models", b"", method=b"GET")))
    vectors = json.loads(await read(await ask("", "/v1/embeddings", {"model": "e", "input": ["a", "b"], "dimensions": 8})))
    unknown = await ask("", "/v1/images/generations")

    assert models["data"][0]["id"] == "demo"
    assert [len(item["embedding"]) for item in vectors["data"]] == [8, 8]
    assert unknown.status == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        ({"model": "demo", "messages": []}, "messages"),
        ({"model": "demo", "messages": ["hi"]}, "messages"),
        ({"messages": [{"role": "user"}], "n": 0}, "n"),
        ({"messages": [{"role": "user"}], "max_tokens": "9"}, "max_tokens"),
        ({"messages": [{"role": "user"}], "stop": [1]}, "stop"),
    ],
)
async def test_a_request_that_no_provider_takes_is_refused(body: Any, param: str) -> None:
    exchange = await ask("", body=body)

    assert exchange.status == 400
    assert json.loads(await read(exchange))["error"]["param"] == param


async def test_a_closed_exchange_says_no_more() -> None:
    exchange = await ask(FAST, stream=True)
    await exchange.read(soon())

    await exchange.aclose()
    await exchange.aclose()

    assert await exchange.read(soon()) is None


def test_every_fault_of_a_url_is_reported_and_a_similar_name_suggested() -> None:
    faults = check("mock://?stauts=429&cut_after=x&status=99&slow_ttft=soon&empty=maybe&gap=1s&tokens_per_second=3&reply=a&reply=b&retry_after=%C3%A9")

    assert faults[0].startswith('unknown knob "stauts"; known: status, retry_after,')
    assert faults[0].endswith('; did you mean "status"?')
    assert [fault.split(":")[0] for fault in faults[1:]] == ["cut_after", "status", "slow_ttft", "empty", "reply", "retry_after", "tokens_per_second"]
    with pytest.raises(ValueError, match="unknown knob"):
        Mock("mock://?stauts=429")


@pytest.mark.parametrize(
    "url", ["mock://", "mock://name/v1", "mock://?empty", "mock://a/v1?status=429&retry_after=3", "mock://?slow_ttft=12s&usage=off&html=off"]
)
def test_good_urls_have_no_fault(url: str) -> None:
    assert check(url) == []


def test_times_are_durations_or_bare_seconds() -> None:
    assert [Knobs.parse(f"mock://?slow_ttft={text}").slow_ttft for text in ("500ms", "3s", "2", "0.5", "0")] == [0.5, 3.0, 2.0, 0.5, 0.0]
