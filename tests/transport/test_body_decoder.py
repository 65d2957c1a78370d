"""Decoding: what was packed comes out, however it is cut up; what is broken or grows too much is noticed."""

from __future__ import annotations

import contextlib
import random
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.decode import PIECE, Decoder, decoder
from gateway.upstream.transport import TransportError


def deflate(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, wbits)
    return packer.compress(data) + packer.flush()


PACK = {
    b"gzip": lambda data: deflate(data, 31),
    b"X-Gzip ": lambda data: deflate(data, 31),
    b"deflate": zlib.compress,
    b"Deflate": lambda data: deflate(data, -15),
    b"zstd": zstandard.ZstdCompressor().compress,
}


def unpack(encoding: bytes, packed: bytes, cuts: list[int] = []) -> bytes:  # noqa: B006
    made = decoder(encoding)
    assert made is not None
    out, at = [], 0
    for end in [*sorted(cut % (len(packed) + 1) for cut in cuts), len(packed)]:
        if end > at:
            made.feed(packed[at:end])
            at = end
        while piece := made.take():
            out.append(piece)
    made.finish()
    return b"".join(out)


def drained(made: Decoder) -> int:
    """How much comes out now, until there is no more or it is refused."""
    size = 0
    with contextlib.suppress(TransportError):
        while piece := made.take():
            assert len(piece) <= PIECE + (2 << 20)
            size += len(piece)
    return size


@settings(max_examples=60, deadline=None)
@given(encoding=st.sampled_from(sorted(PACK)), data=st.binary(max_size=5000), times=st.integers(1, 200), cuts=st.lists(st.integers(0, 10_000), max_size=8))
def test_what_was_packed_comes_out_however_it_is_cut(encoding, data, times, cuts):
    body = (data * times)[:600_000]
    assert unpack(encoding, PACK[encoding](body), cuts) == body


@settings(max_examples=60, deadline=None)
@given(encoding=st.sampled_from(sorted(PACK)), data=st.binary(min_size=1, max_size=500), drop=st.integers(1, 50))
def test_every_truncation_is_noticed(encoding, data, drop):
    packed = PACK[encoding](data)
    short = packed[: max(1, len(packed) - drop)]
    with pytest.raises(TransportError) as caught:
        unpack(encoding, short)
    assert caught.value.kind in ("cut", "protocol")


@settings(max_examples=100, deadline=None)
@given(encoding=st.sampled_from(sorted(PACK)), data=st.binary(max_size=300))
def test_garbage_is_an_error_of_ours_or_data(encoding, data):
    with contextlib.suppress(TransportError):
        assert isinstance(unpack(encoding, data), bytes)


@pytest.mark.parametrize("encoding", [b"gzip", b"zstd"])
def test_members_one_behind_the_other_are_one_body(encoding):
    assert unpack(encoding, PACK[encoding](b"one ") + PACK[encoding](b"two")) == b"one two"


@pytest.mark.parametrize("encoding", sorted(PACK))
def test_bytes_behind_the_end_are_no_body(encoding):
    with pytest.raises(TransportError) as caught:
        unpack(encoding, PACK[encoding](b"one") + b"\xff\xffgarbage")
    assert caught.value.kind == "protocol"


def test_each_event_comes_out_when_its_sender_flushed_it():
    packer, made = zlib.compressobj(6, zlib.DEFLATED, 31), decoder(b"gzip")
    assert made is not None
    for number in range(20):
        text = b"data: %d\n\n" % number
        made.feed(packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH))
        assert made.take() == text
        assert made.take() == b""


@pytest.mark.parametrize("encoding", sorted(PACK))
def test_growth_beyond_100_times_is_refused_early(encoding):
    made = decoder(encoding)
    assert made is not None
    made.feed(PACK[encoding](bytes(64 << 20)))
    assert drained(made) < 16 << 20
    with pytest.raises(TransportError, match="beyond measure") as caught:
        made.take()
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize("encoding", sorted(PACK))
def test_the_first_mib_may_be_as_dense_as_it_likes(encoding):
    assert unpack(encoding, PACK[encoding](bytes(1 << 20))) == bytes(1 << 20)


def test_no_body_grows_beyond_256_mib():
    made = decoder(b"gzip")
    assert made is not None
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    block = random.Random(1).randbytes(1 << 20)
    first, again = (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))  # after a full flush a block always packs to the same bytes
    made.feed(first)
    for _ in range(255):
        assert drained(made) == 1 << 20
        made.feed(again)
    assert drained(made) <= 1 << 20
    made.feed(again)
    with pytest.raises(TransportError, match="beyond measure"):
        made.take()


@pytest.mark.parametrize("encoding", [b"", b"identity", b" Identity "])
def test_identity_needs_no_decoder(encoding):
    assert decoder(encoding) is None


@pytest.mark.parametrize("encoding", [b"br", b"compress", b"gzip, gzip", b"gzip,br", b"\xff\x00"])
def test_other_encodings_are_refused_by_name(encoding):
    with pytest.raises(TransportError, match="not asked for") as caught:
        decoder(encoding)
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize("encoding", sorted(PACK))
def test_an_empty_body_is_whole(encoding):
    assert unpack(encoding, b"") == b""
