"""Requests as no HTTP library writes them, over raw sockets: answered as one request, or refused; never read as two."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from asking import Bare
from running import CHAT, KEY, STREAM, Running, serving, yaml
from upstream_double import HANG, Upstream, answer, delta, role

BODY = json.dumps(CHAT).encode()


@pytest.fixture
async def running(a: Upstream) -> AsyncIterator[Running]:
    async with serving(yaml({"a": a.reply().url}, server="timeouts: {header: 1s, body: 1s}")) as running:
        yield running


def post(*lines: str, body: bytes = BODY, line: str = "POST /v1/chat/completions HTTP/1.1") -> bytes:
    return "\r\n".join([line, *lines, "", ""]).encode("latin-1") + body


async def say(running: Running, data: bytes) -> bytes:
    """What comes back until the gateway closes the connection."""
    client = await Bare.connect(running.url)
    client.writer.write(data)
    async with asyncio.timeout(3):
        try:
            return await client.reader.read(-1)
        except ConnectionResetError:
            return b""
        finally:
            client.writer.close()


LENGTH = f"content-length: {len(BODY)}"
USUAL = ("host: 127.0.0.1", "content-type: application/json", "connection: close")
REFUSED = {
    "two lengths": post(*USUAL, LENGTH, "content-length: 5"),
    "the same length twice": post(*USUAL, LENGTH, LENGTH),
    "a length and chunks": post(*USUAL, LENGTH, "transfer-encoding: chunked", body=b"0\r\n\r\n"),
    "a negative length": post(*USUAL, "content-length: -1"),
    "a length with a sign": post(*USUAL, f"content-length: +{len(BODY)}"),
    "a hexadecimal length": post(*USUAL, f"content-length: {hex(len(BODY))}"),
    "an endless length": post(*USUAL, "content-length: " + "9" * 40),
    "chunks in another coding": post(*USUAL, "transfer-encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "an unknown coding": post(*USUAL, "transfer-encoding: x", body=b""),
    "chunks of a size that is none": post(*USUAL, "transfer-encoding: chunked", body=b"xyz\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunks beyond 64 bits": post(*USUAL, "transfer-encoding: chunked", body=b"fffffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a blank before the colon": post(*USUAL, f"content-length : {len(BODY)}"),
    "no name before the colon": post(*USUAL, LENGTH, ": x"),
    "a NUL in a header": post(*USUAL, LENGTH, "x: a\x00b"),
    "a folded header": post(*USUAL, LENGTH, "x: a", " b"),
    "no host": post(*USUAL[1:], LENGTH),
    "two hosts": post(*USUAL, "host: evil.example", LENGTH),
    "another machine's host": post("host: evil.example", *USUAL[1:], LENGTH),
    "a path in the host": post("host: 127.0.0.1/?x=", *USUAL[1:], LENGTH),
    "a user in the host": post("host: a@127.0.0.1", *USUAL[1:], LENGTH),
    "HTTP 2 in words": post(*USUAL, LENGTH, line="POST /v1/chat/completions HTTP/2.0"),
    "HTTP 0.9": post(*USUAL, LENGTH, line="POST /v1/chat/completions"),
    "HTTP 9.9": post(*USUAL, LENGTH, line="POST /v1/chat/completions HTTP/9.9"),
    "no HTTP": post(*USUAL, LENGTH, line="POST /v1/chat/completions ICE/1.0"),
    "a blank in the path": post(*USUAL, LENGTH, line="POST /v1/chat/ completions HTTP/1.1"),
    "a path that leaves": post(*USUAL, LENGTH, line="POST /v1/models/../chat/completions HTTP/1.1"),
    "an encoded one": post(*USUAL, LENGTH, line="POST /v1/models/%2e%2e/chat/completions HTTP/1.1"),
    "a NUL in the path": post(*USUAL, LENGTH, line="POST /v1/chat/completions%00 HTTP/1.1"),
    "the preface of HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
}


@pytest.mark.parametrize("request_", REFUSED)
async def test_what_may_be_read_in_two_ways_is_refused(a: Upstream, running: Running, request_: str) -> None:
    began = time.monotonic()
    got = await say(running, REFUSED[request_])

    assert got == b"" or int(got.split(b" ")[1]) in (400, 403, 404, 408, 413, 426), got
    assert b"HTTP/1.1 200" not in got
    assert got.count(b"HTTP/1.1 ") <= 1
    assert a.requests == []
    assert time.monotonic() - began < 2


ANSWERED = {
    "an absolute address, whose host means nothing": post(*USUAL, LENGTH, line="POST http://evil.example/v1/chat/completions HTTP/1.1"),
    "HTTP 1.0": post(*USUAL, LENGTH, line="POST /v1/chat/completions HTTP/1.0"),
    "chunks with extensions and trailers": post(*USUAL, "transfer-encoding: chunked", body=b"%x;a=b\r\n%b\r\n0\r\nhost: evil\r\n\r\n" % (len(BODY), BODY)),
    "chunks in capitals": post(*USUAL, "Transfer-Encoding: Chunked", body=b"%X\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "a query": post(*USUAL, LENGTH, line="POST /v1/chat/completions?api-version=1 HTTP/1.1"),
    "an empty line before it": b"\r\n" + post(*USUAL, LENGTH),
}


@pytest.mark.parametrize("request_", ANSWERED)
async def test_what_is_only_unusual_is_answered(a: Upstream, running: Running, request_: str) -> None:
    got = await say(running, ANSWERED[request_])

    assert got.startswith(b"HTTP/1.1 200"), got
    assert got.count(b"HTTP/1.1 ") == 1
    assert [seen.path for seen in a.requests] == ["/chat/completions"]


async def test_a_trailer_is_no_header(a: Upstream) -> None:
    trailers = f"authorization: Bearer {KEY}\r\nx-thinkgate-provider: b\r\nx-request-id: mine\r\n\r\n".encode()
    data = post(*USUAL, "transfer-encoding: chunked", body=b"%x\r\n%b\r\n0\r\n%b" % (len(BODY), BODY, trailers))

    async with serving(yaml({"a": a.reply().url})) as running:
        open_to_us = await say(running, data)
    async with serving(yaml({"a": a.url}, server=f"keys: [{KEY}]")) as running:
        closed = await say(running, data)

    assert open_to_us.startswith(b"HTTP/1.1 200")
    assert b"x-request-id: mine" not in open_to_us
    assert closed.startswith(b"HTTP/1.1 401")
    assert len(a.requests) == 1


@pytest.mark.parametrize("key", [KEY, "nobodys-key-0123456789"])
@pytest.mark.parametrize("start", [b"0\r\nx: ", b"5;"], ids=["trailer", "chunk extension"])
async def test_a_trailer_without_an_end_is_not_collected(a: Upstream, start: bytes, key: str) -> None:
    async with serving(yaml({"a": a.url}, server=f"keys: [{KEY}]")) as running:
        client = await Bare.connect(running.url)
        client.send("POST", "/v1/chat/completions", start, content_length="", transfer_encoding="chunked", x_api_key=key)
        began, sent = time.monotonic(), 0
        try:
            while sent < 64 << 20:
                client.writer.write(b"a" * 65536)
                await client.writer.drain()
                sent += 65536
        except ConnectionError:
            pass
        took = time.monotonic() - began
        client.writer.transport.abort()

    assert sent < 16 << 20, "what the sockets between us hold"
    assert took < 1
    assert a.requests == []


async def test_five_requests_in_one_write_get_five_answers_in_order(a: Upstream, running: Running) -> None:
    a.clear()
    a.call(
        lambda seen: {**json.loads(BODY), "choices": [{"index": 0, "message": {"role": "assistant", "content": seen.json["user"]}, "finish_reason": "stop"}]}
    )
    bodies = [json.dumps({**CHAT, "user": f"client {n}"}).encode() for n in range(5)]
    data = b"".join(post(*USUAL[:2], f"content-length: {len(body)}", body=body) for body in bodies[:-1])
    got = await say(running, data + post(*USUAL, f"content-length: {len(bodies[-1])}", body=bodies[-1]))

    assert got.count(b"HTTP/1.1 200") == 5
    assert [got.index(b'"content":"client %d"' % n) for n in range(5)] == sorted(got.index(b'"content":"client %d"' % n) for n in range(5))


async def test_who_has_no_key_is_not_asked_for_a_body(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, server=f"keys: [{KEY}]")) as running:
        got = await say(running, post(*USUAL, "expect: 100-continue", "content-length: 1000000", body=b""))

    assert got.startswith(b"HTTP/1.1 401")
    assert b"100 Continue" not in got


async def test_who_asks_before_sending_is_told_to_go_on(a: Upstream, running: Running) -> None:
    client = await Bare.connect(running.url)
    client.writer.write(post(*USUAL, LENGTH, "expect: 100-continue", body=b""))
    await client.until(b"100 Continue\r\n\r\n")
    client.writer.write(BODY)
    await client.until(b"HTTP/1.1 200")
    await client.close()

    assert len(a.requests) == 1


async def test_a_kept_connection_is_closed_after_its_idle_time(a: Upstream) -> None:
    async with serving(yaml({"a": a.reply().url}, server="timeouts: {header: 300ms}")) as running:
        client = await Bare.connect(running.url)
        client.writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        await client.until(b'"ok"}')
        client.writer.write(b"GET /he")  # half of the next one, and no more
        async with asyncio.timeout(2):
            rest = await client.reader.read(-1)
        await client.close()

    assert rest.startswith(b"HTTP/1.1 408")


async def test_a_client_that_closes_its_sending_half_counts_as_gone(a: Upstream) -> None:
    """Half-closed connections look like closed ones here; what was asked is ended at the provider too."""
    a.clear()
    a.stream(role(), delta("x"), HANG)

    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url, STREAM)
        await client.until(b'"content":"x"')
        client.writer.write_eof()
        await a.until(lambda upstream: upstream.disconnected, 1.0)
        await client.close()


async def test_a_stream_over_http_1_0_ends_with_its_connection(a: Upstream, running: Running) -> None:
    a.clear()
    a.stream(*answer("Hel", "lo"))
    body = json.dumps(STREAM).encode()
    got = await say(running, post(*USUAL[:2], f"content-length: {len(body)}", body=body, line="POST /v1/chat/completions HTTP/1.0"))

    assert got.startswith(b"HTTP/1.1 200")
    assert b"data: [DONE]" in got
