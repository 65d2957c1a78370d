"""Amazon's binary event stream."""

from __future__ import annotations

import itertools
import json
import struct
import zlib

import pytest
from frames import frame, header, raw, text_header
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.eventstream import Frames
from gateway.sse import LINE_CAP, Event

STREAM = b"".join(
    (
        frame("messageStart", {"role": "assistant"}),
        frame("contentBlockDelta", {"delta": {"text": "日本 é"}, "contentBlockIndex": 0}),
        frame("metadata", b""),
        frame("throttlingException", {"message": "slow down"}, "exception"),
    )
)
EVENTS = [
    Event(b'{"role": "assistant"}', "messageStart"),
    Event('{"delta": {"text": "日本 é"}, "contentBlockIndex": 0}'.encode(), "contentBlockDelta"),
    Event(b"", "metadata"),
    Event(b'{"message": "slow down"}', "throttlingException"),
]


def test_frames_become_events_with_their_types_as_names():
    frames = Frames()

    assert frames.feed(STREAM) == EVENTS
    assert frames.close() == []


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_a_cut_anywhere_changes_nothing(cut):
    frames = Frames()

    assert frames.feed(STREAM[:cut]) + frames.feed(STREAM[cut:]) + frames.close() == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_any_cuts_give_the_same_events(cuts):
    frames, edges = Frames(), [0, *sorted(cuts), len(STREAM)]

    assert [event for start, end in itertools.pairwise(edges) for event in frames.feed(STREAM[start:end])] == EVENTS


@given(st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=40)), max_size=6))
def test_any_payload_comes_through(items):
    stream = b"".join(frame(name, body) for name, body in items)

    assert Frames().feed(stream) == [Event(body, name) for name, body in items]


def test_one_byte_at_a_time_gives_the_same_events():
    frames = Frames()

    assert [event for at in range(len(STREAM)) for event in frames.feed(STREAM[at : at + 1])] == EVENTS


def test_an_error_frame_tells_its_message_as_json():
    stream = frame("InternalError", b"", "error", **{":error-message": 'it "broke"'})

    (event,) = Frames().feed(stream)

    assert event.name == "InternalError"
    assert json.loads(event.data) == {"message": 'it "broke"'}


def test_headers_of_all_types_are_skipped_over():
    others = [(0, b""), (1, b""), (2, b"x"), (3, b"xx"), (4, b"x" * 4), (5, b"x" * 8), (6, b"\0\3abc"), (8, b"x" * 8), (9, b"x" * 16)]
    headers = b"".join(header(f"h{kind}", kind, value) for kind, value in others) + text_header(":event-type", "e")

    assert Frames().feed(raw(headers, b"{}")) == [Event(b"{}", "e")]


def test_a_frame_without_a_type_has_no_name():
    assert Frames().feed(raw(b"", b"{}")) == [Event(b"{}", None)]


def test_half_a_frame_at_the_end_is_not_given():
    frames = Frames()

    assert frames.feed(STREAM[:-1]) == EVENTS[:-1]
    assert frames.close() == []


@pytest.mark.parametrize("at", range(len(frame("e", {"a": 1}))))
def test_a_changed_byte_is_found(at):
    good = frame("e", {"a": 1})
    bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]

    with pytest.raises(ValueError, match="frame of the event stream"):
        Frames().feed(bad)


@pytest.mark.parametrize("headers", [b"\x01a\x0a", b"\x09abc", b"\x01a\x07\x00\x09abc", header("a", 4, b"xx"), b"\x01"])
def test_broken_headers_are_refused(headers):
    with pytest.raises(ValueError, match="header"):
        Frames().feed(raw(headers, b"{}"))


@pytest.mark.parametrize("total", [0, 15, LINE_CAP + 1])
def test_a_length_that_cannot_be_is_refused_at_once(total):
    prelude = struct.pack(">II", total, 0)

    with pytest.raises(ValueError, match=r"longer|shorter"):
        Frames().feed(prelude + struct.pack(">I", zlib.crc32(prelude)))
