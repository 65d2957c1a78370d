"""An answer means the same however the network cuts it, and no bytes whatever break the parser."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import faults
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.connection import Connection
from gateway.upstream.transport import TransportError

ANSWERS = {
    "length": faults.plain(faults.JSON_BODY, faults.OK, b"X-A:  b \t", b"set-cookie: a", b"set-cookie: b"),
    "chunks": faults.CHUNKED + faults.chunk(b"hello") + faults.chunk(b" world") + b"0\r\nx-trailer: a\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + faults.plain(b"{}"),
    "until close": faults.OK + b"x: y\r\n\r\nhello",
    "no content": b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
    "two": faults.plain(b"one") + faults.plain(b"two"),
    "cut": faults.CHUNKED + faults.chunk(b"hello") + b"5\r\nhel",
    "garbage": faults.CHUNKED + faults.chunk(b"hello") + b"xyz\r\n",
}


class Wire(asyncio.Transport):
    """A socket that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def read(pieces: list[bytes]) -> tuple[object, ...]:
    """Status, headers, body, error kind and whether the connection may be used again, of an answer that came in these pieces."""

    async def run() -> tuple[object, ...]:
        loop, wire = asyncio.get_running_loop(), Wire()
        connection = Connection(loop, "h:80", lambda _: None)
        connection.connection_made(wire)
        connection.send(b"", b"", False)
        for piece in pieces:
            if not wire.aborted:
                connection.data_received(piece)
        ended = connection.done
        kept = ended and not wire.aborted
        if not ended:
            connection.connection_lost(None)
        body, kind = b"", None
        try:
            await connection.head(float("inf"))
            while (piece := await connection.next(float("inf"))) is not None:
                body += piece
        except TransportError as error:
            kind = error.kind
        return connection.status, connection.headers, body, kind, kept and connection.rest()

    return asyncio.run(run())


EXPECTED = {
    "length": (
        200,
        [(b"x-a", b"b"), (b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-type", b"application/json"), (b"content-length", b"225")],
        faults.JSON_BODY,
        None,
        True,
    ),
    "chunks": (200, [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")], b"hello world", None, True),
    "interim": (200, [(b"content-type", b"application/json"), (b"content-length", b"2")], b"{}", None, True),
    "until close": (200, [(b"x", b"y")], b"hello", None, False),
    "no content": (204, [(b"x", b"y")], b"", None, True),
    "two": (200, [(b"content-type", b"application/json"), (b"content-length", b"3")], b"one", None, False),
    "cut": (200, [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")], b"hellohel", "cut", False),
    "garbage": (200, [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")], b"hello", "protocol", False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_meaning_of_an_answer(name):
    assert read([ANSWERS[name]]) == EXPECTED[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_byte_by_byte_it_means_the_same(name):
    raw = ANSWERS[name]
    assert read([raw[at : at + 1] for at in range(len(raw))]) == EXPECTED[name]


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(1, 400), max_size=6))
def test_in_any_pieces_it_means_the_same(name, cuts):
    raw = ANSWERS[name]
    edges = [0, *sorted({min(cut, len(raw)) for cut in cuts}), len(raw)]
    assert read([raw[a:b] for a, b in pairwise(edges) if b > a]) == EXPECTED[name]


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(ANSWERS)), at=st.integers(0, 400), cut=st.integers(0, 5), put=st.binary(max_size=8), split=st.integers(0, 400))
def test_a_damaged_answer_is_an_answer_or_an_error_of_ours(name, at, cut, put, split):
    raw = ANSWERS[name][:at] + put + ANSWERS[name][at + cut :]
    status, _, _, kind, _ = read([piece for piece in (raw[:split], raw[split:]) if piece])
    assert kind in (None, "cut", "protocol")
    assert status == 0 or 200 <= int(str(status)) <= 999


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(["length", "chunks", "interim", "no content"]), keep=st.integers(0, 400))
def test_no_truncated_answer_looks_whole(name, keep):
    raw = ANSWERS[name]
    result = read([raw[:keep]] if keep else [])
    assert result == EXPECTED[name] if keep >= len(raw) else result[3] == "cut"
