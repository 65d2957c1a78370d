"""A faulty upstream: an asyncio server on loopback whose every path misbehaves in its own way.

    async with FaultServer() as server:
        url = server.url("gzip_bomb")                 # http://127.0.0.1:PORT/gzip_bomb
        url = server.url("stall_mid_stream", "/v1/chat/completions")

The first segment of the path names the fault (`FAULTS` lists them). `connections`, `requests`
and `gone` tell what the server saw. `refused`, `backlog_full`, `UNRESOLVED` and `INVALID` are
the faults that need no server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import zlib
from email.utils import formatdate
from typing import Any

import zstandard

from gateway.drill import server
from gateway.drill.server import HTML, OK, Call, Handler, chunk, plain

CHUNKED = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
JSON_BODY = b'{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'  # noqa: E501
DONE = b"data: [DONE]\n\n"


def event(text: str, finish: bool = False) -> bytes:
    """One chunk of a chat stream with this text, or its last one."""
    delta, reason = ("{}", '"stop"') if finish else (f'{{"content":"{text}"}}', "null")
    choice = f'{{"index":0,"delta":{delta},"finish_reason":{reason}}}'
    return f'data: {{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{choice}]}}\n\n'.encode()


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def _bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    return b"".join(packer.compress(zeros) for _ in range(size >> 20)) + packer.flush()


FAULTS: dict[str, Handler] = {}
"""name -> handler; a handler that returns leaves the connection open, ConnectionError closes it"""


def fault(handler: Handler) -> Handler:
    FAULTS[handler.__name__] = handler  # type: ignore[attr-defined]
    return handler


def _bytes(name: str, data: bytes, close: bool = False) -> None:
    """A fault that is nothing but these bytes; `close`: and then the end of the connection."""

    async def handler(call: Call) -> None:
        await call.write(data)
        if close:
            raise ConnectionAbortedError

    FAULTS[name] = handler


# Sound answers, for comparison
_bytes("ok", plain(JSON_BODY))
_bytes("ok_stream", CHUNKED + chunk(event("hel")) + chunk(event("lo")) + chunk(event("", True)) + chunk(DONE) + b"0\r\n\r\n")
_bytes("http10", plain(JSON_BODY, b"HTTP/1.0 200 OK\r\n"), close=True)
_bytes("chunk_ext_trailers", CHUNKED + b"5;ext=1\r\nhello\r\n0\r\nx-trailer: a\r\ncontent-encoding: gzip\r\n\r\n")
_bytes("early_hints_100_103", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + plain(JSON_BODY))
_bytes("flood_1xx", b"HTTP/1.1 102 Processing\r\n\r\n" * 20_000 + plain(JSON_BODY))
_bytes("header_latin1", plain(JSON_BODY, OK, b"x-name: caf\xe9"))
_bytes("header_64k", plain(JSON_BODY, OK, b"x-big: " + b"a" * 65_000))
_bytes("headers_3000", plain(JSON_BODY, OK, *(b"x-h%d: v" % n for n in range(3000))))
_bytes("bare_lf", plain(JSON_BODY).replace(b"\r\n", b"\n"))
_bytes("gzip_ok", plain(_gzip(JSON_BODY), OK, b"content-encoding: gzip"))
_bytes("zstd_unasked", plain(zstandard.compress(JSON_BODY), OK, b"content-encoding: zstd"))
_bytes("deflate_ok", plain(zlib.compress(JSON_BODY), OK, b"content-encoding: deflate"))
_bytes("deflate_raw", plain(zlib.compress(JSON_BODY)[2:-4], OK, b"content-encoding: deflate"))
_bytes("s204", b"HTTP/1.1 204 No Content\r\n\r\n")
_bytes("s204_body", b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nbody")
_bytes("s302_internal", b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/admin\r\ncontent-length: 0\r\n\r\n")
_bytes("s307_self", b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /s307_self\r\ncontent-length: 0\r\n\r\n")
_bytes("status_999", plain(JSON_BODY, b"HTTP/1.1 999 Odd\r\n"))
_bytes("status_200_no_reason", plain(JSON_BODY, b"HTTP/1.1 200\r\n"))
_bytes("until_close_no_length", OK + b"\r\n" + JSON_BODY, close=True)
_bytes("content_length_long_body", plain(JSON_BODY) + b"extra bytes after the body")

# Answers that are HTTP but no answer
_bytes("html_502", plain(HTML, b"HTTP/1.1 502 Bad Gateway\r\n", kind=b"text/html"))
_bytes("html_200", plain(HTML, kind=b"text/html"))
_bytes("json_in_200_error", plain(b'{"error":{"message":"upstream is overloaded","type":"server_error","code":null}}'))
_bytes("error_event_in_sse", CHUNKED + chunk(b'data: {"error":{"message":"boom","type":"server_error"}}\n\n') + b"0\r\n\r\n")
_bytes("truncated_json_clean", plain(JSON_BODY[:100]))
_bytes("empty_200", plain(b""))
_bytes("empty_stream", CHUNKED + b"0\r\n\r\n")
_bytes("s429", plain(b'{"error":{"message":"slow down","type":"rate_limit_error"}}', b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\n"))
_bytes("clean_end_no_done", CHUNKED + chunk(event("hel")) + b"0\r\n\r\n")
_bytes("invalid_utf8", CHUNKED + chunk(event("a").replace(b'"a"', b'"\xff\xfe"')) + chunk(DONE) + b"0\r\n\r\n")

# Bytes that are no HTTP, or not all of it
_bytes("partial_status", b"HTTP/1.1 20", close=True)
_bytes("garbage", b"\x00\x01\x02 this is not HTTP\r\n\r\n")
_bytes("header_200k", plain(JSON_BODY, OK, b"x-big: " + b"a" * 200_000))
_bytes("header_endless", OK + b"x-big: " + b"a" * 1_000_000)
_bytes("headers_30000", plain(JSON_BODY, OK, *(b"a: b" for _ in range(20_000))))
_bytes("trailer_endless", CHUNKED + chunk(b"hello") + b"0\r\nx: " + b"a" * 1_000_000)
_bytes("chunk_ext_endless", CHUNKED + b"5;" + b"a" * 1_000_000)
_bytes("chunk_size_overflow", CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n")
_bytes("chunk_bad_terminator", CHUNKED + b"5\r\nhelloXX0\r\n\r\n")
_bytes("dup_content_length_same", OK + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello")
_bytes("dup_content_length_diff", OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!")
_bytes("cl_and_te", OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"hello") + b"0\r\n\r\n")
_bytes("te_gzip_chunked", OK + b"transfer-encoding: gzip, chunked\r\n\r\n" + chunk(_gzip(b"hello")) + b"0\r\n\r\n")
_bytes("obs_fold", OK + b"x-a: b\r\n c\r\ncontent-length: 5\r\n\r\nhello")
_bytes("header_nul", OK + b"x-a: b\x00c\r\ncontent-length: 5\r\n\r\nhello")
_bytes("switch_protocols", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
_bytes("content_length_short", OK + b"content-length: 1000\r\n\r\n" + JSON_BODY[:50], close=True)
_bytes("close_mid_chunked", CHUNKED + chunk(event("hel")) + b"40\r\ndata: {", close=True)
_bytes("close_after_chunk_no_terminator", CHUNKED + chunk(event("hel")), close=True)
_bytes("done_then_close_no_terminator", CHUNKED + chunk(event("hel")) + chunk(event("", True)) + chunk(DONE), close=True)
_bytes("gzip_bad", plain(b"this is not gzip", OK, b"content-encoding: gzip"))
_bytes("gzip_trunc", plain(_gzip(JSON_BODY)[:-12], OK, b"content-encoding: gzip"))
_bytes("zstd_trunc", plain(zstandard.compress(JSON_BODY)[:-4], OK, b"content-encoding: zstd"))
_bytes("gzip_bomb", plain(_bomb(200 << 20), OK, b"content-encoding: gzip"))
_bytes("zstd_bomb", plain(zstandard.compress(bytes(200 << 20)), OK, b"content-encoding: zstd"))
_bytes("br_unasked", plain(b"\x0b\x02\x80hello\x03", OK, b"content-encoding: br"))


@fault
async def close_before_headers(call: Call) -> None:
    raise ConnectionAbortedError


@fault
async def rst_before_headers(call: Call) -> None:
    call.reset()
    raise ConnectionResetError


@fault
async def rst_mid_stream(call: Call) -> None:
    await call.write(CHUNKED + chunk(event("hel")))
    await asyncio.sleep(0.02)
    call.reset()
    raise ConnectionResetError


@fault
async def slow_headers(call: Call) -> None:
    """Silence until the other side goes."""
    await call.until_gone()


@fault
async def drip_headers(call: Call) -> None:
    await call.write(OK)
    while True:
        await call.write(b"x: y\r\n")
        await asyncio.sleep(0.02)


@fault
async def slow_first_token(call: Call) -> None:
    await call.write(CHUNKED)
    await call.until_gone()


@fault
async def stall_mid_stream(call: Call) -> None:
    await call.write(CHUNKED + chunk(event("hel")) + chunk(event("lo")))
    await call.until_gone()


@fault
async def drip_body_forever(call: Call) -> None:
    """Comments for ever: never silent, never content."""
    await call.write(CHUNKED)
    while True:
        await call.write(chunk(b": keep-alive\n\n"))
        await asyncio.sleep(0.02)


@fault
async def until_close_reset(call: Call) -> None:
    await call.write(OK + b"\r\n" + JSON_BODY[:50])
    await asyncio.sleep(0.02)
    call.reset()
    raise ConnectionResetError


@fault
async def one_chunk_64m(call: Call) -> None:
    size = 64 << 20
    await call.write(CHUNKED + b"%x\r\n" % size)
    for _ in range(64):
        await call.write(b"a" * (1 << 20))
    await call.write(b"\r\n0\r\n\r\n")


@fault
async def line_without_newline_64m(call: Call) -> None:
    await call.write(CHUNKED + chunk(b"data: "))
    for _ in range(64):
        await call.write(chunk(b"a" * (1 << 20)))
    await call.write(b"0\r\n\r\n")


@fault
async def utf8_split(call: Call) -> None:
    """Every byte of a stream with a four-byte character in its own chunk."""
    await call.write(CHUNKED)
    for byte in event("\N{GRINNING FACE}") + event("", True) + DONE:
        await call.write(chunk(bytes([byte])))
    await call.write(b"0\r\n\r\n")


@fault
async def answer_before_body(call: Call) -> None:
    """413 before the body was read, and the end: the client is still sending."""
    await call.write(plain(b'{"error":{"message":"too large"}}', b"HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\n"))
    raise ConnectionAbortedError


@fault
async def s429_date(call: Call) -> None:
    when = formatdate(time.time() + 30, usegmt=True).encode()
    await call.write(plain(b'{"error":{"message":"slow down"}}', b"HTTP/1.1 429 Too Many Requests\r\nretry-after: " + when + b"\r\n"))


@fault
async def late_extra(call: Call) -> None:
    """A sound answer, and a moment later bytes that nobody asked for."""
    await call.write(plain(JSON_BODY))
    await asyncio.sleep(0.02)
    await call.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")


@fault
async def close_after_answer(call: Call) -> None:
    """A sound answer that promises to keep the connection, which then is closed."""
    await call.write(plain(JSON_BODY))
    raise ConnectionAbortedError


class FaultServer(server.FaultServer):
    """The server of all these faults."""

    def __init__(self, **options: Any) -> None:
        super().__init__(FAULTS, unread=frozenset({"answer_before_body"}), **options)


def refused() -> str:
    """A URL on loopback where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/refused"


@contextlib.contextmanager
def backlog_full():
    """A URL whose server never accepts and whose queue is full: SYNs go unanswered."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/backlog_full"


UNRESOLVED = {
    "dns_fail": "http://no-such-host.invalid/",
    "long_label": f"http://{'a' * 64}.example/",
}
"""URLs whose host has no address"""

INVALID = {
    "bad_scheme": "ftp://127.0.0.1/",
    "no_scheme": "127.0.0.1/v1",
    "bad_port": "http://127.0.0.1:99999/",
    "word_port": "http://127.0.0.1:http/",
    "empty_host": "http:///v1",
    "blank": "http://127.0.0.1/a b",
    "line_break": "http://127.0.0.1/a\r\nx: y",
    "userinfo": "http://user:secret@127.0.0.1/",
}
"""texts that are no URL of a provider"""
