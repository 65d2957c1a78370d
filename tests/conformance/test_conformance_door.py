"""Models, keys, ids, routes, bodies and headers, as clients of OpenAI's and Anthropic's interfaces expect them."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest
from asking import Bare
from conforming import ENDPOINTS, HI, MESSAGES, conforms, refused
from running import CHAT, KEY, STREAM, Running, serving, yaml
from upstream_double import Upstream, answer, completion, delta, events, finish, plain

KEYED = f"keys: [{KEY}]"
DOWN = {"error": {"message": "down", "type": "server_error", "param": None, "code": None}}


@pytest.mark.parametrize("headers", [{}, {"authorization": f"Bearer {KEY}"}], ids=["no key set", "bearer"])
async def test_the_models_are_listed_with_v1_and_without(a: Upstream, headers: dict[str, str]) -> None:
    async with serving(yaml({"a": a.url}, server=KEYED if headers else "")) as running:
        listed = await running.client.get("/v1/models", headers=headers)
        short = await running.client.get("/models", headers=headers)

    assert (listed.status_code, listed.headers["content-type"]) == (200, "application/json")
    assert [model["id"] for model in conforms(listed.json(), "models")["data"]] == ["m"]
    assert short.json() == listed.json()
    assert listed.json()["models"] == listed.json()["data"]  # Codex reads `models`


async def test_a_model_is_shown_or_not_found(running: Running) -> None:
    known = await running.client.get("/v1/models/m")
    unknown = await running.client.get("/v1/models/nope")

    assert conforms(known.json(), "model")["id"] == "m"
    assert refused(unknown, 404)["code"] == "model_not_found"


async def test_the_sdks_list_the_models(running: Running) -> None:
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["m"]
        assert (await client.models.retrieve("m")).owned_by == "thinkgate"
    async with anthropic.AsyncAnthropic(base_url=running.url.removesuffix("/v1"), api_key="none", max_retries=0) as claude:
        assert [model.id async for model in claude.models.list()] == ["m"]
        assert (await claude.models.retrieve("m")).type == "model"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong-0123456789"}, {"x-api-key": "wrong-0123456789"}], ids=["none", "bearer", "x-api-key"])
async def test_without_the_key_every_endpoint_refuses(a: Upstream, headers: dict[str, str]) -> None:
    async with serving(yaml({"a": a.url}, server=KEYED)) as running:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/responses/input_tokens"):
            error = refused(await running.client.post(path, json={"model": "m"}, headers=headers), 401)
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key"), path
        claude = await running.client.post("/v1/messages", json=MESSAGES, headers=headers)

    assert (claude.status_code, claude.json()["type"], claude.json()["error"]["type"]) == (401, "error", "authentication_error")
    assert a.requests == []


@pytest.mark.parametrize("headers", [{"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}], ids=["bearer", "x-api-key"])
async def test_both_ways_to_send_the_key_open_every_endpoint(a: Upstream, headers: dict[str, str]) -> None:
    a.reply(completion("Hello"))
    async with serving(yaml({"a": a.url}, server=KEYED)) as running:
        for path, body in ENDPOINTS.items():
            for at in (path, path.removeprefix("/v1")):
                got = await running.client.post(at, json=body, headers=headers)
                assert got.status_code == 200, f"{at}: {got.text}"


async def test_every_answer_has_its_id_in_the_header_that_the_sdk_reads(a: Upstream) -> None:
    a.call(lambda seen: plain(DOWN, status=500) if b'"fail"' in seen.raw else events(*answer("x")) if seen.json.get("stream") else plain(completion()))
    fails = {"messages": [{"role": "user", "content": "fail"}], "input": "fail", "prompt": "fail"}
    settings = "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}"
    async with serving(yaml({"a": a.url}, a=settings)) as running:
        for path, body in ENDPOINTS.items():
            forms: list[tuple[Any, int]] = [
                (body, 200),
                ({**body, "stream": True}, 200),
                ({**body, **{k: fails[k] for k in fails if k in body}}, 502),
                ({}, 400),
            ]
            for given, status in forms:
                got = await running.client.post(path, json=given, headers={"x-request-id": "mine-1"})
                assert (got.status_code, got.headers["x-request-id"]) == (status, "mine-1"), path
                assert got.headers.get("request-id") == ("mine-1" if "messages" in path else None), path


async def test_the_sdks_find_the_id(a: Upstream) -> None:
    a.reply(completion("x"), repeat=2).reply(DOWN, status=500)
    async with serving(yaml({"a": a.url}, a="retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}")) as running:
        async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
            raw = await client.chat.completions.with_raw_response.create(model="m", messages=HI)
        async with anthropic.AsyncAnthropic(base_url=running.url.removesuffix("/v1"), api_key="none", max_retries=0) as claude:
            message = await claude.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
            with pytest.raises(anthropic.APIStatusError) as caught:
                await claude.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}])

    assert raw.parse()._request_id == raw.headers["x-request-id"]
    assert str(message._request_id).startswith("req_")
    assert caught.value.request_id == caught.value.response.headers["request-id"]
    assert caught.value.body["request_id"] == caught.value.request_id  # type: ignore[index]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_an_unknown_route_is_named(running: Running, method: str) -> None:
    error = refused(await running.client.request(method, "/v1/nothing/here"), 404)

    assert error["message"] == f"Invalid URL ({method} /v1/nothing/here)"
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/responses", "POST"), ("DELETE", "/v1/models", "GET")]
)
async def test_a_wrong_method_is_told_the_right_one(running: Running, method: str, path: str, allowed: str) -> None:
    got = await running.client.request(method, path)

    assert refused(got, 405)["code"] == "method_not_allowed"
    assert allowed in got.headers["allow"]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("body", [b"hello", b'{"model": "m"', b"[]", b'"m"', b"null", b"7"])
async def test_a_body_that_is_no_object_is_refused(running: Running, path: str, body: bytes) -> None:
    got = await running.client.post(path, content=body, headers={"content-type": "application/json"})

    assert got.status_code == 400
    if path == "/v1/messages":
        assert (got.json()["type"], got.json()["error"]["type"]) == ("error", "invalid_request_error")
    else:
        assert refused(got, 400)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "field"), [*((path, "model") for path in ENDPOINTS), *zip(ENDPOINTS, ("messages", "input", "messages", "prompt"), strict=True)]
)
async def test_the_field_that_is_missing_is_named(a: Upstream, running: Running, path: str, field: str) -> None:
    body = {name: value for name, value in ENDPOINTS[path].items() if name != field}
    got = await running.client.post(path, json=body)

    assert got.status_code == 400
    assert field in got.json()["error"]["message"]
    if path != "/v1/messages":
        assert refused(got, 400)["param"] == field
    assert a.requests == []


@pytest.mark.parametrize(("path", "kind"), [("/v1/chat/completions", "invalid_request_error"), ("/v1/messages", "request_too_large")])
async def test_a_body_over_the_limit_gets_its_answer_before_the_connection_ends(a: Upstream, path: str, kind: str) -> None:
    async with serving(yaml({"a": a.url}, server="max_body: 256KiB")) as running:
        client = await Bare.connect(running.url)
        body = json.dumps({**MESSAGES, "padding": "x" * 3_000_000}).encode()
        client.send("POST", path, body)  # ten times the limit, all of it sent before the answer is read
        status, headers = await client.head()
        await client.until(b'"error"')
        await client.close()

    assert (status, headers["content-type"]) == (413, "application/json")
    assert kind.encode() in client.got
    assert a.requests == []


async def test_an_encoding_that_only_the_client_knows_never_reaches_it(a: Upstream) -> None:
    def packed(seen: Any) -> Any:
        kind = seen.headers.get("accept-encoding", "identity")
        body = json.dumps(completion("Hello")).encode()
        assert not {"br", "zstd"} & {word.strip() for word in kind.split(",")}
        return plain(gzip.compress(body), headers={"content-encoding": "gzip", "content-type": "application/json"}) if "gzip" in kind else plain(body)

    a.call(packed)
    async with serving(yaml({"a": a.url})) as running:
        for wanted in ("br, zstd", "zstd,gzip", "br", "*", "gzip, deflate, br, zstd"):
            client = await Bare.ask(running.url, CHAT, accept_encoding=wanted, connection="close")
            whole = await client.until(b"}]") + await client.reader.read()
            await client.close()
            assert b"content-encoding" not in whole.lower()
            assert json.loads(whole.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] == "Hello"


async def test_what_the_provider_tells_about_itself_survives_and_what_belongs_to_its_connection_does_not(a: Upstream) -> None:
    told = {"openai-processing-ms": "17", "x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-tokens": "6m0s"}
    own = {"connection": "keep-alive", "keep-alive": "timeout=5", "proxy-authenticate": "Basic", "trailer": "x-t", "upgrade": "h2c", "te": "trailers"}
    a.call(lambda seen: events(*answer("x"), headers={**told, **own}) if seen.json.get("stream") else plain(completion(), headers={**told, **own}))
    async with serving(yaml({"a": a.url})) as running:
        for body in (CHAT, STREAM):
            got = await running.chat(body)
            assert {name: got.headers.get(name) for name in told} == told
            assert not {"keep-alive", "proxy-authenticate", "trailer", "upgrade", "te"} & set(got.headers)


async def test_a_query_does_not_hide_the_route(a: Upstream) -> None:
    a.reply(completion("x"))
    async with serving(yaml({"a": a.url})) as running:
        for path, body in ENDPOINTS.items():
            assert (await running.client.post(f"{path}?beta=true", json=body)).status_code == 200, path
        counted = await running.client.post("/v1/messages/count_tokens?beta=true", json={"model": "m", "messages": HI})
        assert counted.status_code == 200


async def test_a_websocket_to_responses_is_told_to_use_http_at_once(running: Running) -> None:
    client = await Bare.connect(running.url)
    upgrade: Any = {"connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13", "sec_websocket_key": "x3JJHMbDL1EzLkh9GBhXDw=="}
    began = asyncio.get_running_loop().time()
    client.send("GET", "/v1/responses", content_type="", content_length="", openai_beta="responses_websockets=2026-02-06", **upgrade)
    status, _ = await client.head()
    await client.close()

    assert status == 426
    assert asyncio.get_running_loop().time() - began < 0.5


async def test_each_event_is_passed_on_when_it_comes(a: Upstream) -> None:
    loop = asyncio.get_running_loop()
    texts = [f"<{number}>" for number in range(8)]
    sent: dict[str, float] = {}

    class Timed(list[Any]):
        """The items of the stream; when each was written stands in `sent`."""

        def __iter__(self) -> Any:
            for text in texts:
                sent[text] = loop.time()
                yield delta(text)
                yield 0.03
            yield from (finish(), "[DONE]")

    a.call(lambda _: replace(events(), items=Timed()))
    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url, STREAM)
        late = []
        for text in texts:
            await client.until(text.encode())
            late.append(loop.time() - sent[text])
        await client.close()

    assert sorted(late)[len(late) // 2] < 0.05, late
