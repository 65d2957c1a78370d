"""A running gateway whose provider is Bedrock: signed requests, binary streams, plain answers, refusals."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from frames import frame
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from running import CHAT, STREAM, serving, yaml
from upstream_double import CUT, Upstream

from gateway.chat import Accumulator

ACCESS, SECRET = "AKIDEXAMPLE0000000", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
HEADERS = {"content-type": "application/vnd.amazon.eventstream"}
USAGE = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
START = frame("messageStart", {"role": "assistant"})
HELLO = frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello"}})
END = frame("contentBlockStop", {"contentBlockIndex": 0}) + frame("messageStop", {"stopReason": "end_turn"}) + frame("metadata", {"usage": USAGE})


def config(a: Upstream, key: str = "bedrock-api-key-0123456789") -> str:
    return yaml({"a": a.url}, a=f"adapter: bedrock\nretries: 0\napi_key: '{key}'\noptions: {{region: eu-west-1}}")


def said(events: list[str]) -> dict[str, Any]:
    into = Accumulator()
    for event in events:
        if event != "[DONE]":
            ChatCompletionChunk.model_validate(json.loads(event))
            into.add(json.loads(event))
    return into.completion()


async def test_a_binary_stream_reaches_a_chat_client(a: Upstream) -> None:
    a.stream(START + HELLO[:20], 0.02, HELLO[20:], END, headers=HEADERS)

    async with serving(config(a)) as running:
        events = await running.events({**STREAM, "stream_options": {"include_usage": True}})

    choice = said(events)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"], events[-1]) == ("Hello", "stop", "[DONE]")
    assert json.loads(events[-2])["usage"]["total_tokens"] == 15
    sent = a.requests[0]
    assert sent.path.endswith("/model/a-model/converse-stream")
    assert sent.headers["accept"] == "application/vnd.amazon.eventstream"
    assert sent.headers["authorization"] == "Bearer bedrock-api-key-0123456789"
    assert sent.json == {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


async def test_a_plain_answer_reaches_a_chat_client(a: Upstream) -> None:
    a.reply({"output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}}, "stopReason": "end_turn", "usage": USAGE})

    async with serving(config(a)) as running:
        got = (await running.chat(CHAT)).json()

    ChatCompletion.model_validate(got)
    assert (got["model"], got["choices"][0]["message"]["content"], got["usage"]["total_tokens"]) == ("a-model", "Hello", 15)
    assert a.requests[0].path.endswith("/model/a-model/converse")


@pytest.mark.parametrize("session", [None, "FwoGZXIvYXdzE:with/odd+characters=="])
async def test_a_request_is_signed_for_the_bytes_host_and_path_that_arrive(a: Upstream, session: str | None) -> None:
    a.stream(START, HELLO, END, headers=HEADERS)

    async with serving(config(a, f"{ACCESS}:{SECRET}" + (f":{session}" if session else ""))) as running:
        await running.events({**STREAM, "model": "a/us.anthropic.claude-v1:0", "messages": [{"role": "user", "content": "é 日本"}]})

    sent = a.requests[0]
    names = "host;x-amz-date" + (";x-amz-security-token" if session else "")
    lines = "".join(f"{name}:{sent.headers[name]}\n" for name in names.split(";"))
    path = sent.path.replace("%", "%25")
    assert path == "/model/us.anthropic.claude-v1%253A0/converse-stream"
    canonical = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(sent.raw).hexdigest()}"
    stamp = sent.headers["x-amz-date"]
    scope = f"{stamp[:8]}/eu-west-1/bedrock/aws4_request"
    key = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}".encode(), "sha256").hex()
    assert sent.headers["authorization"] == f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}"


@pytest.mark.parametrize("first", [b"", HELLO])
async def test_an_exception_in_the_stream_is_an_error(a: Upstream, first: bytes) -> None:
    a.stream(START + first, 0.05, frame("throttlingException", {"message": "slow down"}, "exception"), headers=HEADERS)

    async with serving(config(a)) as running:
        got = await running.chat(STREAM)

    assert "slow down" in got.text
    assert "[DONE]" not in got.text
    assert got.status_code == (200 if first else 429)


@pytest.mark.parametrize("cut", [b"", END[:-7]])
async def test_a_stream_that_breaks_off_is_no_clean_end(a: Upstream, cut: bytes) -> None:
    a.stream(START, HELLO, 0.02, frame("contentBlockStop", {"contentBlockIndex": 0}) + (cut and b"\0\0"), CUT, headers=HEADERS)

    async with serving(config(a)) as running:
        events = await running.events()

    assert json.loads(events[-1])["error"]["code"] == "stream_interrupted"


async def test_a_damaged_stream_is_a_protocol_failure(a: Upstream) -> None:
    a.stream(START[:30] + b"x" + START[31:], headers=HEADERS)

    async with serving(config(a)) as running:
        got = await running.chat(STREAM)

    assert got.headers["x-thinkgate-chain"] == "a=protocol"


async def test_a_refusal_is_known_by_its_header_and_the_secret_stays_hidden(a: Upstream) -> None:
    a.reply({"message": f"bad {SECRET}"}, status=424, headers={"x-amzn-errortype": "ModelErrorException:http://internal.amazon.com/"})

    async with serving(config(a, f"{ACCESS}:{SECRET}")) as running:
        got = await running.chat(CHAT)

    assert got.json()["error"]["attempts"][0]["class"] == "server"
    assert SECRET not in got.text
