"""Embeddings, legacy completions, sound and files, and how often the SDKs ask."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import node_scripts
import openai
import pytest
from conforming import COMPLETIONS, HI, conforms
from odd_streams import TEXTS
from running import CHAT, KEY, Running, serving, yaml
from upstream_double import Upstream, answer, completion, delta, finish, plain, role, usage

Json = dict[str, Any]

VECTORS = [[0.5, -1.0, 0.25], [1.0, 0.0, 1.0000000474974513e-03]]
"""Numbers that 32-bit floats hold exactly, so that every way of writing them can be compared."""


def packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def unpacked(text: str) -> list[float]:
    raw = base64.b64decode(text, validate=True)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def embeddings(*vectors: Any) -> Json:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}}


@pytest.mark.parametrize("sent", [VECTORS, [packed(vector) for vector in VECTORS]], ids=["floats", "base64"])
async def test_vectors_come_in_the_form_that_was_asked_for(a: Upstream, running: Running, sent: list[Any]) -> None:
    a.reply(embeddings(*sent))
    given: Any
    for given in ("hi", ["hi", "ho"], [1, 2, 3], [[1, 2, 3], [4]]):
        for form, wanted in (({"encoding_format": "base64"}, str), ({"encoding_format": "float"}, list), ({}, list)):
            got = await running.client.post("/v1/embeddings", json={"model": "m", "input": given, **form})
            found = [item["embedding"] for item in conforms(got.json(), "embeddings")["data"]]
            assert [type(vector) for vector in found] == [wanted, wanted]
            assert [unpacked(vector) if wanted is str else vector for vector in found] == VECTORS
            assert a.requests[-1].json["input"] == given


@pytest.mark.parametrize("sent", [VECTORS, [packed(vector) for vector in VECTORS]], ids=["floats", "base64"])
async def test_the_sdk_for_python_reads_the_vectors(a: Upstream, running: Running, sent: list[Any]) -> None:
    a.reply(embeddings(*sent))
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        own = await client.embeddings.create(model="m", input=["a", "b"])
        numbers = await client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")

    assert a.requests[0].json["encoding_format"] == "base64"  # what it asks for by itself
    assert [item.embedding for item in own.data] == [item.embedding for item in numbers.data] == VECTORS


@pytest.mark.node
@pytest.mark.parametrize("sent", [VECTORS, [packed(vector) for vector in VECTORS]], ids=["floats", "base64"])
async def test_the_sdk_for_node_reads_the_same_vectors(a: Upstream, running: Running, sent: list[Any]) -> None:
    a.reply(embeddings(*sent))

    assert await node_scripts.run(node_scripts.packages(), running, "embeddings", input=["a", "b"]) == [VECTORS, VECTORS]


async def test_a_legacy_completion_conforms(a: Upstream, running: Running) -> None:
    both = completion("one", finish="length")
    both["choices"].append({**both["choices"][0], "index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "stop"})
    a.reply(both)
    got = await running.client.post("/v1/completions", json={**COMPLETIONS, "n": 2})

    said = conforms(got.json(), "completion")
    assert [(choice["text"], choice["finish_reason"]) for choice in said["choices"]] == [("one", "length"), ("two", "stop")]
    assert (said["model"], said["usage"]["total_tokens"]) == ("m", 8)
    assert said["id"].startswith("cmpl-")


@pytest.mark.parametrize("asks", [True, False], ids=["usage asked for", "usage not asked for"])
async def test_every_event_of_a_legacy_stream_conforms(a: Upstream, running: Running, asks: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if asks else {}
    for items in (answer("Hel", "lo", usage_chunk=True), [role(), delta("Hello"), {**finish(), "usage": usage()["usage"]}, "[DONE]"]):
        a.clear()
        a.stream(*items)
        got = await running.client.post("/v1/completions", json={**COMPLETIONS, "stream": True, **more})
        *blocks, rest = got.text.split("\n\n")
        assert (blocks[-1], rest) == ("data: [DONE]", "")
        chunks = [conforms(json.loads(block[6:]), "completion_chunk") for block in blocks[:-1]]
        assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == "Hello"
        assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]] == ["stop"]
        assert [chunk["usage"]["total_tokens"] for chunk in chunks if chunk.get("usage")] == ([8] if asks else [])
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


async def test_the_sdk_reads_legacy_completions(a: Upstream, running: Running) -> None:
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        for items in TEXTS.values():
            a.clear()
            a.stream(*items)
            whole = await client.completions.create(model="m", prompt="hi")
            stream = await client.completions.create(model="m", prompt="hi", stream=True)
            assert whole.choices[0].text == "Hello"
            assert "".join([choice.text async for chunk in stream for choice in chunk.choices]) == "Hello"


SOUND = bytes(range(256)) * 40 + b"\r\n--not-the-boundary\r\n"
ANSWERS = {
    "json": (b'{"text": "hello",  "x": 1.0}', "application/json"),
    "text": (b"hello\r\nthere\n", "text/plain; charset=utf-8"),
    "srt": (b"1\n00:00:00,000 --> 00:00:01,000\nhello\n", "text/plain"),
    "vtt": (b"WEBVTT\n\n00:00.000 --> 00:01.000\nhello\n", "text/vtt"),
}


@pytest.mark.parametrize("form", ANSWERS)
@pytest.mark.parametrize("path", ["audio/transcriptions", "audio/translations"])
async def test_sound_reaches_the_provider_byte_for_byte_and_its_words_come_back_so(a: Upstream, running: Running, path: str, form: str) -> None:
    said, kind = ANSWERS[form]
    a.reply(said, headers={"content-type": kind})
    fields = {"model": "m", "response_format": form, "timestamp_granularities[]": ["word", "segment"]}
    request = running.client.build_request("POST", f"/v1/{path}", data=fields, files={"file": ("a.wav", SOUND, "audio/wav")})
    sent = await request.aread()
    got = await running.client.send(request)

    assert (got.content, got.headers["content-type"]) == (said, kind)
    assert a.requests[0].raw == sent.replace(b'name="model"\r\n\r\nm\r\n', b'name="model"\r\n\r\na-model\r\n')
    assert a.requests[0].headers["content-type"] == request.headers["content-type"]


async def test_a_picture_reaches_the_provider_byte_for_byte(a: Upstream, running: Running) -> None:
    said = b'{"created": 1, "data": [{"b64_json": "AA=="}]}'
    a.reply(said, headers={"content-type": "application/json"})
    files = [("image[]", ("a.png", SOUND, "image/png")), ("image[]", ("b.png", SOUND[::-1], "image/png"))]
    request = running.client.build_request("POST", "/v1/images/edits", data={"prompt": "more", "model": "m"}, files=files)
    sent = await request.aread()
    got = await running.client.send(request)

    assert got.content == said
    assert a.requests[0].raw == sent.replace(b'name="model"\r\n\r\nm\r\n', b'name="model"\r\n\r\na-model\r\n')


async def test_speech_comes_back_as_it_is(a: Upstream, running: Running) -> None:
    a.stream(SOUND[:5000], 0.01, SOUND[5000:], headers={"content-type": "audio/mpeg"})
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        said = await client.audio.speech.create(model="m", input="hi", voice="alloy")

    assert said.content == SOUND


SAYS = {"message": "slow down", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}


@pytest.mark.parametrize(
    ("status", "error", "headers", "asked"),
    [
        (429, SAYS, {"retry-after-ms": "20"}, 3),
        (429, {**SAYS, "message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}, {}, 1),
        (429, SAYS, {"retry-after": "61"}, 1),
        (402, {**SAYS, "message": "Insufficient Balance", "code": None}, {}, 1),
        (401, {**SAYS, "message": "bad key", "type": "authentication_error", "code": "invalid_api_key"}, {}, 1),
        (400, {**SAYS, "message": "bad", "type": "invalid_request_error", "code": None}, {}, 1),
        (500, {**SAYS, "message": "oops", "type": "server_error", "code": None}, {}, 3),
    ],
    ids=["rate", "quota", "rate for long", "balance", "our key", "the caller's fault", "down"],
)
async def test_the_sdk_asks_again_only_where_that_can_help(a: Upstream, status: int, error: Json, headers: dict[str, str], asked: int) -> None:
    a.call(lambda _: plain({"error": error}, status=status, headers=headers))
    sent = []

    async def note(request: Any) -> None:
        sent.append(request.url.path)

    settings = "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 120s}"
    async with serving(yaml({"a": a.url}, a=settings)) as running:
        http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [note]}, trust_env=False)
        async with openai.AsyncOpenAI(base_url=running.url, api_key=KEY, http_client=http) as client:
            with pytest.raises(openai.APIStatusError) as caught:
                await client.chat.completions.create(model="m", messages=HI)

    assert len(sent) == asked
    assert caught.value.response.headers.get("x-should-retry") == ("false" if asked == 1 else None)
    assert error["message"] in caught.value.message


@pytest.mark.parametrize(("headers", "wait"), [({"retry-after": "7"}, 7), ({"retry-after": "60"}, 60), ({"retry-after-ms": "1500"}, 2)])
async def test_a_wait_of_up_to_a_minute_is_passed_on(a: Upstream, headers: dict[str, str], wait: int) -> None:
    a.reply({"error": SAYS}, status=429, headers=headers)
    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat(CHAT)

    assert (got.status_code, int(got.headers["retry-after"])) == (429, wait)
    assert 0 < int(got.headers["retry-after-ms"]) <= wait * 1000
    assert "x-should-retry" not in got.headers
