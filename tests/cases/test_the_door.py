"""Who is let in, what a body may be, and the errors that clients get before any provider is asked."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest
import zstandard
from asking import Bare, shaped
from running import CHAT, KEY, serving, yaml
from upstream_double import Upstream

KEYED = f"keys: [{KEY}, other-key-for-tests-9876543210]"
BODY = json.dumps(CHAT).encode()
JSON = {"content-type": "application/json"}

ROUTES = {
    "/v1/chat/completions": "POST",
    "/chat/completions": "POST",
    "/v1/models": "GET",
    "/models": "GET",
    "/v1/models/m": "GET",
    "/healthz": "GET",
    "/readyz": "GET",
    "/metrics": "GET",
    "/": "GET",
    "/console": "GET",
    "/console/api.js": "GET",
    "/v1/nothing": "GET",
}
OPEN = {"/healthz": 200, "/readyz": 200, "/metrics": 200, "/": 307, "/console": 200, "/console/api.js": 200}
CREDENTIALS: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, 401),
    "bearer": ({"authorization": f"Bearer {KEY}"}, 200),
    "bearer in small letters": ({"authorization": f"bearer {KEY}"}, 200),
    "x-api-key": ({"x-api-key": KEY}, 200),
    "the second key": ({"x-api-key": "other-key-for-tests-9876543210"}, 200),
    "both, the same": ({"authorization": f"Bearer {KEY}", "x-api-key": KEY}, 200),
    "both, different": ({"authorization": f"Bearer {KEY}", "x-api-key": "another-key-0123456789"}, 400),
    "wrong": ({"authorization": "Bearer wrong-key-0123456789"}, 401),
    "a part of the key": ({"authorization": f"Bearer {KEY[:-1]}"}, 401),
    "no word behind the scheme": ({"authorization": "Bearer"}, 401),
    "basic": ({"authorization": "Basic dXNlcjpwYXNz"}, 401),
    "the key without a scheme": ({"authorization": KEY}, 401),
}


@pytest.mark.parametrize("credentials", CREDENTIALS)
async def test_every_route_but_the_open_ones_needs_a_key(a: Upstream, credentials: str) -> None:
    headers, status = CREDENTIALS[credentials]

    async with serving(yaml({"a": a.reply().url}, server=KEYED)) as running:
        for path, method in ROUTES.items():
            got = await running.client.request(method, path, headers={**JSON, **headers}, content=BODY if method == "POST" else None)
            wanted = OPEN.get(path) or (404 if (path, status) == ("/v1/nothing", 200) else status)
            assert got.status_code == wanted, path
            if wanted >= 400:
                assert shaped(got.json()["error"])
                assert KEY not in got.text
                assert "wrong-key" not in got.text

    assert len(a.requests) == (2 if status == 200 else 0)


IN_QUERIES = ["api_key", "a=1&key", "access_token", "API-KEY", "api%5Fkey", "x_api_key", "bearer", "Authorization", "apikey", "k%65y"]


@pytest.mark.parametrize("query", [f"{name}={KEY}" for name in IN_QUERIES])
@pytest.mark.parametrize("server", [KEYED, ""], ids=["keys", "no keys"])
async def test_a_credential_in_the_query_is_refused(a: Upstream, query: str, server: str) -> None:
    async with serving(yaml({"a": a.url}, server=server)) as running:
        got = await running.client.post(f"/v1/chat/completions?{query}", content=BODY, headers={**JSON, "x-api-key": KEY})

        opened = [await running.client.get(f"{path}?{query}") for path in ("/healthz", "/", "/console", "/admin/config", "/metrics")]

    for answer in (got, *opened):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "credential_in_query")
        assert KEY not in answer.text
    assert a.requests == []


async def test_a_name_with_a_port_is_one_of_this_machine_with_that_port() -> None:
    async with serving(yaml({"a": "mock://"}, server="hosts: ['gx.local:81', other.local]")) as running:
        found = {host: (await running.client.get("/v1/models", headers={"host": host})).status_code for host in NAMED}

    assert found == NAMED


NAMED = {"gx.local:81": 200, "GX.local:81": 200, "gx.local": 403, "gx.local:82": 403, "other.local": 200, "other.local:9": 200}


@pytest.mark.parametrize(
    ("sent", "status"), [({}, 200), ({"host": "evil.example"}, 403), ({"x-forwarded-for": "203.0.113.9"}, 403), ({"forwarded": "for=x"}, 403)]
)
async def test_an_open_gateway_without_keys_lets_this_machine_administer_it(sent: dict[str, str], status: int) -> None:
    """Not what came through a proxy on this machine: that may be anybody's."""
    async with serving(yaml({"a": "mock://"}, server="open: true")) as running:
        assert (await running.client.get("/admin/config", headers=sent)).status_code == status


async def test_who_lists_models_in_anthropics_form_is_refused_in_it() -> None:
    async with serving(yaml({"a": "mock://"}, server=KEYED)) as running:
        got = await running.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})

    assert (got.status_code, got.json()["type"], got.json()["error"]["type"]) == (401, "error", "authentication_error")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "127.1.2.3"}, 200),
        ({"host": "gateway.internal"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "localhost@evil.example"}, 403),
        ({"host": "10.0.0.1"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"authorization": "Bearer whatever"}, 200),
    ],
)
async def test_without_keys_only_names_of_this_machine_are_answered(a: Upstream, headers: dict[str, str], status: int) -> None:
    async with serving(yaml({"a": a.reply().url}, server="hosts: [gateway.internal]")) as running:
        got = await running.client.post("/v1/chat/completions", content=BODY, headers={**JSON, **headers})

    assert got.status_code == status
    assert len(a.requests) == (1 if status == 200 else 0)
    if status == 403:
        assert shaped(got.json()["error"])


async def test_head_of_the_root_is_answered(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, server=KEYED)) as running:
        got = await running.client.head("/")

    assert (got.status_code, got.content) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_url"),
        ("POST", "/v1/chat/completion", 404, "unknown_url"),
        ("POST", "/v1/chat/completions/", 404, "unknown_url"),
        ("GET", "/v2/models", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/chat/completions", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
        ("GET", "/v1/models/..%2F..%2Fetc", 400, None),
        ("GET", "/v1//models", 400, None),
    ],
)
async def test_what_is_not_there_is_told_in_openais_form(a: Upstream, method: str, path: str, status: int, code: str | None) -> None:
    async with serving(yaml({"a": a.url})) as running:
        got = await running.client.request(method, path)

    error = got.json()["error"]
    assert (got.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert shaped(error)
    assert got.headers["content-type"] == "application/json"
    assert got.headers["x-request-id"]
    if status == 405:
        assert "POST" in got.headers["allow"] or "GET" in got.headers["allow"]


DEEP = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"x":' + b"[" * 63 + b"]" * 63 + b"}"
BODIES: dict[str, tuple[bytes, dict[str, str], int, str | None]] = {
    "as deep as allowed": (DEEP, {}, 200, None),
    "one deeper": (DEEP.replace(b"[[", b"[[[", 1).replace(b"]]", b"]]]", 1), {}, 400, "invalid_json"),
    "100,000 deep": (b'{"model":"m","messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {}, 400, "invalid_json"),
    "100,000 deep, objects": (b'{"x":' * 100_000 + b"1" + b"}" * 100_000, {}, 400, "invalid_json"),
    "100,000 unclosed": (b"[" * 100_000, {}, 400, "invalid_json"),
    "as large as allowed": (BODY + b" " * (1_048_576 - len(BODY)), {}, 200, None),
    "one byte larger": (BODY + b" " * (1_048_577 - len(BODY)), {}, 413, "request_too_large"),
    "no JSON": (b"hello", {}, 400, "invalid_json"),
    "half of it": (BODY[:-5], {}, 400, "invalid_json"),
    "nothing": (b"", {}, 400, "invalid_json"),
    "a list": (b"[]", {}, 400, "invalid_json"),
    "a text": (b'"m"', {}, 400, "invalid_json"),
    "not UTF-8": (BODY.replace(b"hi", b"\xff\xfe"), {}, 400, "invalid_json"),
    "NaN": (BODY[:-1] + b',"x":NaN}', {}, 400, "invalid_json"),
    "two values": (BODY + BODY, {}, 400, "invalid_json"),
    "plain text": (BODY, {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    "a form": (b"model=m", {"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    "JSON with a charset": (BODY, {"content-type": "application/json; charset=utf-8"}, 200, None),
    "gzip": (gzip.compress(BODY), {"content-encoding": "gzip"}, 200, None),
    "deflate": (zlib.compress(BODY), {"content-encoding": "deflate"}, 200, None),
    "raw deflate": (zlib.compress(BODY)[2:-4], {"content-encoding": "deflate"}, 200, None),
    "zstd": (zstandard.compress(BODY), {"content-encoding": "zstd"}, 200, None),
    "identity": (BODY, {"content-encoding": "identity"}, 200, None),
    "gzip twice": (gzip.compress(gzip.compress(BODY)), {"content-encoding": "gzip, gzip"}, 200, None),
    "gzip bomb": (gzip.compress(bytes(50 << 20)), {"content-encoding": "gzip"}, 413, "request_too_large"),
    "deflate bomb": (zlib.compress(bytes(50 << 20)), {"content-encoding": "deflate"}, 413, "request_too_large"),
    "zstd bomb": (zstandard.compress(bytes(500 << 20)), {"content-encoding": "zstd"}, 413, "request_too_large"),
    "gzip in gzip bomb": (gzip.compress(gzip.compress(bytes(500 << 20))), {"content-encoding": "gzip, gzip"}, 413, "request_too_large"),
    "cut gzip": (gzip.compress(BODY)[:-9], {"content-encoding": "gzip"}, 400, None),
    "no gzip": (BODY, {"content-encoding": "gzip"}, 400, None),
    "no zstd": (BODY, {"content-encoding": "zstd"}, 400, None),
    "brotli": (BODY, {"content-encoding": "br"}, 415, "unsupported_media_type"),
    "unknown": (BODY, {"content-encoding": "rot13"}, 415, "unsupported_media_type"),
}  # fmt: skip


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("body", BODIES)
async def test_a_body_is_taken_or_refused(a: Upstream, body: str, chunked: bool) -> None:
    content, headers, status, code = BODIES[body]

    async def pieces() -> Any:
        for start in range(0, len(content), 60_000):
            yield content[start : start + 60_000]

    async with serving(yaml({"a": a.reply().url}, server="max_body: 1MiB")) as running:
        began = asyncio.get_running_loop().time()
        got = await running.client.post("/v1/chat/completions", content=pieces() if chunked else content, headers={**JSON, **headers})
        took = asyncio.get_running_loop().time() - began

    assert got.status_code == status, got.text
    assert took < 2
    assert len(a.requests) == (1 if status == 200 else 0)
    if status == 200:
        assert "content-encoding" not in a.requests[0].headers
    else:
        error = got.json()["error"]
        assert shaped(error)
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert got.headers["x-should-retry"] == "false"


async def test_a_body_that_says_that_it_is_too_large_is_refused_before_it_is_sent(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, server="max_body: 64KiB")) as running:
        client = await Bare.connect(running.url)
        client.send("POST", "/v1/chat/completions", content_length="1000000000")
        assert (await client.head(1.0))[0] == 413
        await client.close()


async def test_a_chunked_body_without_an_end_is_refused_at_the_limit(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, server="max_body: 64KiB")) as running:
        client = await Bare.connect(running.url)
        client.send("POST", "/v1/chat/completions", content_length="", transfer_encoding="chunked")
        for _ in range(80):
            client.writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        assert (await client.head(2.0))[0] == 413
        client.reset()


ORIGIN = "https://app.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type,x-thinkgate-provider"}


async def test_pages_of_other_origins_get_nothing_by_default(a: Upstream) -> None:
    async with serving(yaml({"a": a.reply().url}, server=KEYED)) as running:
        headers = {**JSON, "origin": ORIGIN, "x-api-key": KEY}
        got = await running.client.post("/v1/chat/completions", content=BODY, headers=headers)
        preflight = await running.client.options("/v1/chat/completions", headers={"origin": ORIGIN, **PREFLIGHT})

    assert not [name for answer in (got, preflight) for name in answer.headers if name.startswith("access-control-")]
    assert preflight.status_code in (401, 405)


async def test_pages_of_a_configured_origin_may_call(a: Upstream) -> None:
    async with serving(yaml({"a": a.reply().url}, server=f"{KEYED}\ncors: ['{ORIGIN}']")) as running:
        preflight = await running.client.options("/v1/chat/completions", headers={"origin": ORIGIN, **PREFLIGHT})
        got = await running.client.post("/v1/chat/completions", content=BODY, headers={**JSON, "origin": ORIGIN, "x-api-key": KEY})
        refused = await running.client.post("/v1/chat/completions", content=BODY, headers={**JSON, "origin": ORIGIN})
        stream = await running.client.post("/v1/chat/completions", json={**CHAT, "stream": True}, headers={"origin": ORIGIN, "x-api-key": KEY})
        other = await running.client.options("/v1/chat/completions", headers={"origin": "https://evil.example", **PREFLIGHT})
        foreign = await running.client.post("/v1/chat/completions", content=BODY, headers={**JSON, "origin": "https://evil.example", "x-api-key": KEY})

    assert preflight.status_code == 200
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    assert [answer.headers["access-control-allow-origin"] for answer in (preflight, got, refused, stream)] == [ORIGIN] * 4
    assert (got.status_code, refused.status_code) == (200, 401)
    assert "access-control-allow-origin" not in other.headers
    assert "access-control-allow-origin" not in foreign.headers
    assert "access-control-allow-credentials" not in got.headers


async def test_a_page_of_a_configured_origin_may_call_a_gateway_without_keys(a: Upstream) -> None:
    async with serving(yaml({"a": a.reply().url}, server=f"cors: ['{ORIGIN}']\nhosts: [app.example]")) as running:
        got = await running.client.post("/v1/chat/completions", content=BODY, headers={**JSON, "origin": ORIGIN})

    assert (got.status_code, got.headers["access-control-allow-origin"]) == (200, ORIGIN)
