"""Endpoints that are passed on: embeddings, images, audio, moderations, rerank."""

from __future__ import annotations

import base64
import struct
from typing import Any

import httpx
import pytest
from running import Running, serving, yaml
from upstream_double import CUT, Upstream

VECTOR = [0.5, -1.0, 0.25]
PACKED = base64.b64encode(struct.pack("<3f", *VECTOR)).decode()


def embeddings(vector: Any) -> dict[str, Any]:
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    return {"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}}


async def post(running: Running, path: str, body: Any) -> httpx.Response:
    return await running.client.post(f"/v1/{path}", json=body)


@pytest.mark.parametrize("sent", [VECTOR, PACKED], ids=["floats", "base64"])
@pytest.mark.parametrize(("wanted", "got"), [("base64", PACKED), ("float", VECTOR), (None, VECTOR)])
async def test_embeddings_come_in_the_form_that_was_asked_for(a: Upstream, sent: Any, wanted: str | None, got: Any) -> None:
    a.reply(embeddings(sent))
    body = {"model": "m", "input": [[1, 2, 3]], **({"encoding_format": wanted} if wanted else {})}
    async with serving(yaml({"a": a.url})) as running:
        answer = await post(running, "embeddings", body)

    assert answer.json()["data"][0]["embedding"] == got
    assert a.requests[0].json == {**body, "model": "a-model"}
    assert a.requests[0].path.endswith("/embeddings")
    assert answer.headers["x-thinkgate-provider"] == "a"


@pytest.mark.parametrize("broken", [{"data": []}, {"error": {"message": "boom"}}, b"<html>"], ids=["empty", "error in 200", "html"])
async def test_a_bad_answer_moves_on(a: Upstream, b: Upstream, broken: Any) -> None:
    a.reply(broken)
    b.reply(embeddings(VECTOR))
    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        answer = await post(running, "embeddings", {"model": "m", "input": "x"})

    assert answer.json()["data"][0]["embedding"] == VECTOR
    assert answer.headers["x-thinkgate-chain"].endswith("b=200")


@pytest.mark.parametrize("path", ["moderations", "images/generations", "rerank"])
async def test_json_endpoints_keep_their_bytes(a: Upstream, path: str) -> None:
    text = b'{ "id": "x", "results": [1.0, 12345678901234567890123], "created": 1 }'
    a.reply(text, headers={"content-type": "application/json"})
    async with serving(yaml({"a": a.url})) as running:
        answer = await post(running, path, {"model": "m", "input": "x", "prompt": "y", "query": "z"})

    assert answer.content == text


async def test_multipart_is_passed_on_byte_for_byte_but_for_the_model(a: Upstream) -> None:
    a.reply(b"hello there", headers={"content-type": "text/plain"})
    sound = bytes(range(256)) * 50 + b"\r\n--not-the-boundary\r\n"
    async with serving(yaml({"a": a.url})) as running:
        files = {"file": ("a.wav", sound, "audio/wav")}
        request = running.client.build_request("POST", "/v1/audio/transcriptions", data={"model": "m", "language": "en"}, files=files)
        raw = await request.aread()
        answer = await running.client.send(request)

    assert answer.content == b"hello there"
    assert answer.headers["content-type"] == "text/plain"
    assert a.requests[0].raw == raw.replace(b'name="model"\r\n\r\nm\r\n', b'name="model"\r\n\r\na-model\r\n')
    assert a.requests[0].headers["content-type"] == request.headers["content-type"]


async def test_speech_streams_through_as_bytes(a: Upstream) -> None:
    a.stream(b"ID3" + bytes(200), 0.02, bytes(100), headers={"content-type": "audio/mpeg"})
    async with serving(yaml({"a": a.url})) as running:
        answer = await post(running, "audio/speech", {"model": "m", "input": "hi", "voice": "v"})

    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.content == b"ID3" + bytes(300)


async def test_sound_that_breaks_off_is_not_ended_cleanly(a: Upstream) -> None:
    a.stream(b"ID3" + bytes(200), 0.02, CUT, headers={"content-type": "audio/mpeg"})
    async with serving(yaml({"a": a.url})) as running:
        with pytest.raises(httpx.RemoteProtocolError):
            await post(running, "audio/speech", {"model": "m", "input": "hi", "voice": "v"})


async def test_events_of_images_stream_through_and_an_error_event_first_moves_on(a: Upstream, b: Upstream) -> None:
    a.stream({"error": {"message": "busy", "type": "server_error"}}, headers={"content-type": "text/event-stream"})
    b.stream(("image_generation.completed", {"type": "image_generation.completed", "b64_json": "AA=="}), headers={"content-type": "text/event-stream"})
    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        answer = await post(running, "images/generations", {"model": "m", "prompt": "x", "stream": True})

    assert answer.text.startswith("event: image_generation.completed\ndata: {")
    assert answer.headers["x-thinkgate-provider"] == "b"


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [("application/json", b'{"input": "x"}', 400), ("text/plain", b"x", 415), ("multipart/form-data; boundary=b", b"--b\r\n\r\n--b--", 400)],
)
async def test_a_request_without_a_model_is_refused(kind: str, body: bytes, status: int) -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        answer = await running.client.post("/v1/images/edits", content=body, headers={"content-type": kind})

    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"
