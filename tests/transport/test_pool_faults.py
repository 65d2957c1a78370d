"""What the pool makes of every fault of the catalogue."""

from __future__ import annotations

import asyncio
import time

import faults
import pytest
from conftest import Client, read_all, read_until_error, serving

from gateway.upstream.pool import Pool
from gateway.upstream.transport import TransportError, Url

STREAM = b"".join(faults.event(t) for t in ("hel", "lo")) + faults.event("", True) + faults.DONE

WHOLE = {
    "ok": faults.JSON_BODY,
    "ok_stream": STREAM,
    "http10": faults.JSON_BODY,
    "chunk_ext_trailers": b"hello",
    "early_hints_100_103": faults.JSON_BODY,
    "flood_1xx": faults.JSON_BODY,
    "header_latin1": faults.JSON_BODY,
    "header_64k": faults.JSON_BODY,
    "headers_3000": faults.JSON_BODY,
    "bare_lf": faults.JSON_BODY,
    "gzip_ok": faults.JSON_BODY,
    "zstd_unasked": faults.JSON_BODY,
    "deflate_ok": faults.JSON_BODY,
    "deflate_raw": faults.JSON_BODY,
    "status_200_no_reason": faults.JSON_BODY,
    "until_close_no_length": faults.JSON_BODY,
    "content_length_long_body": faults.JSON_BODY,
    "late_extra": faults.JSON_BODY,
    "close_after_answer": faults.JSON_BODY,
    "html_200": faults.HTML,
    "truncated_json_clean": faults.JSON_BODY[:100],
    "empty_200": b"",
    "empty_stream": b"",
    "clean_end_no_done": faults.event("hel"),
    "json_in_200_error": None,
    "error_event_in_sse": None,
    "invalid_utf8": None,
    "utf8_split": faults.event("\N{GRINNING FACE}") + faults.event("", True) + faults.DONE,
}
"""fault -> its whole body (None: any), status 200"""

STATUS = {
    "s204": 204,
    "s204_body": 204,
    "s302_internal": 302,
    "s307_self": 307,
    "status_999": 999,
    "html_502": 502,
    "s429": 429,
    "s429_date": 429,
    "answer_before_body": 413,
}

AT_HEAD = {
    "partial_status": "cut",
    "garbage": "protocol",
    "header_200k": "protocol",
    "header_endless": "protocol",
    "headers_30000": "protocol",
    "dup_content_length_same": "protocol",
    "dup_content_length_diff": "protocol",
    "cl_and_te": "protocol",
    "te_gzip_chunked": "protocol",
    "obs_fold": "protocol",
    "header_nul": "protocol",
    "switch_protocols": "protocol",
    "br_unasked": "protocol",
    "close_before_headers": "cut",
    "rst_before_headers": "cut",
    "slow_headers": "timeout",
    "drip_headers": "timeout",
}
"""fault -> the kind of error that `open` raises"""

IN_BODY = {
    "trailer_endless": ("protocol", b"hello"),
    "chunk_ext_endless": ("protocol", b""),
    "chunk_size_overflow": ("protocol", b""),
    "chunk_bad_terminator": ("protocol", b"hello"),
    "content_length_short": ("cut", faults.JSON_BODY[:50]),
    "close_mid_chunked": ("cut", faults.event("hel") + b"data: {"),
    "close_after_chunk_no_terminator": ("cut", faults.event("hel")),
    "done_then_close_no_terminator": ("cut", faults.event("hel") + faults.event("", True) + faults.DONE),
    "rst_mid_stream": ("cut", faults.event("hel")),
    "until_close_reset": ("cut", faults.JSON_BODY[:50]),
    "gzip_bad": ("protocol", b""),
    "gzip_trunc": ("cut", None),
    "zstd_trunc": ("cut", None),
    "gzip_bomb": ("protocol", None),
    "zstd_bomb": ("protocol", None),
    "slow_first_token": ("timeout", b""),
    "stall_mid_stream": ("timeout", faults.event("hel") + faults.event("lo")),
    "drip_body_forever": ("timeout", None),
}
"""fault -> the kind of error that `read` raises, and what it gave before (None: anything)"""

LARGE = {"one_chunk_64m": 64 << 20, "line_without_newline_64m": (64 << 20) + 6}


def test_every_fault_of_the_server_is_expected_here():
    assert set(faults.FAULTS) == {*WHOLE, *STATUS, *AT_HEAD, *IN_BODY, *LARGE}


@pytest.mark.parametrize("name", WHOLE)
async def test_an_unusual_answer_arrives_whole(client, server, name):
    status, body = await client.fetch(server.url(name))
    assert status == 200
    assert WHOLE[name] is None or body == WHOLE[name]


@pytest.mark.parametrize("name", STATUS)
async def test_any_status_is_an_answer(client, server, name):
    status, _ = await client.fetch(server.url(name))
    assert status == STATUS[name]
    assert len(server.requests) == 1, "a redirect was followed or a request repeated"


@pytest.mark.parametrize("name", AT_HEAD)
async def test_a_bad_head_is_an_error_of_its_kind(client, server, name):
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        await client.open(server.url(name), seconds=0.2)
    assert caught.value.kind == AT_HEAD[name]
    assert str(caught.value)
    assert caught.value.sent
    assert not caught.value.reused
    assert time.monotonic() - began < 0.6
    assert len(server.requests) == 1, "repeated on a fresh connection"


@pytest.mark.parametrize("name", IN_BODY)
async def test_a_bad_body_gives_what_came_and_then_the_error(client, server, name):
    kind, before = IN_BODY[name]
    exchange = await client.open(server.url(name))
    error, got = await read_until_error(exchange, 0.2 if kind == "timeout" else 2)
    await exchange.aclose()
    assert error.kind == kind
    assert str(error)
    assert before is None or b"".join(got) == before
    assert len(server.requests) == 1


async def test_a_bomb_is_noticed_before_it_is_in_memory(client, server):
    for name in ("gzip_bomb", "zstd_bomb"):
        exchange = await client.open(server.url(name))
        error, got = await read_until_error(exchange)
        await exchange.aclose()
        assert "beyond measure" in str(error)
        assert max(map(len, got), default=0) <= 4 << 20
        assert sum(map(len, got)) < 32 << 20


@pytest.mark.parametrize("name", LARGE)
async def test_64_mib_pass_in_pieces(client, server, name):
    exchange = await client.open(server.url(name))
    size = 0
    while (piece := await exchange.read(asyncio.get_running_loop().time() + 10)) is not None:
        size += len(piece)
        assert len(piece) <= 1 << 20
    await exchange.aclose()
    assert size == LARGE[name]


async def test_a_refused_connection_says_so(client):
    with pytest.raises(TransportError, match="connection refused") as caught:
        await client.open(faults.refused())
    assert caught.value.kind == "connect"
    assert not caught.value.sent


async def test_a_server_that_never_accepts_ends_at_the_connect_deadline(client):
    with faults.backlog_full() as url:
        began = time.monotonic()
        with pytest.raises(TransportError, match="no connection within") as caught:
            await client.open(url, connect=0.2, seconds=5)
        assert caught.value.kind == "connect"
        assert 0.15 < time.monotonic() - began < 0.6


@pytest.mark.parametrize("name", faults.UNRESOLVED)
async def test_a_name_without_address_is_a_connect_error(client, name):
    with pytest.raises(TransportError, match=r"does not resolve|not resolved") as caught:
        await client.open(faults.UNRESOLVED[name], connect=1)
    assert caught.value.kind == "connect"


@pytest.mark.parametrize("name", faults.INVALID)
def test_what_is_no_url_is_refused_without_being_repeated(name):
    with pytest.raises(ValueError, match="URL") as caught:
        Url.parse(faults.INVALID[name])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["ok", "ok_stream", "chunk_ext_trailers", "early_hints_100_103", "s204", "s307_self", "gzip_ok", "bare_lf", "status_999"])
async def test_a_sound_answer_leaves_a_connection_for_the_next_request(client, server, name):
    for _ in range(5):
        await client.fetch(server.url(name))
    assert (server.connections, len(server.requests)) == (1, 5)


@pytest.mark.parametrize("name", ["http10", "until_close_no_length", "content_length_long_body", "s204_body", "close_after_answer", "late_extra"])
async def test_a_doubtful_answer_leaves_none(client, server, name):
    for _ in range(3):
        await client.fetch(server.url(name))
        await asyncio.sleep(0.05)
    assert (server.connections, len(server.requests)) == (3, 3)


async def test_bytes_behind_an_answer_are_never_the_next_answer():
    """An answer that somebody smuggled behind another one must not reach the next request."""
    evil = faults.plain(b'{"evil":1}')

    async def serve(reader, writer):
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(faults.plain(b'{"good":1}') + evil)
        await reader.read()

    pool = Pool()
    async with serving(serve) as url:
        for _ in range(3):
            assert await Client(pool).fetch(url) == (200, b'{"good":1}')
        await pool.aclose()


async def test_a_large_body_that_nobody_reads_still_brings_the_early_answer(client, server):
    exchange = await client.open(server.url("answer_before_body"), b"x" * 300_000)
    assert exchange.status == 413
    assert await read_all(exchange) == b'{"error":{"message":"too large"}}'
    await exchange.aclose()
