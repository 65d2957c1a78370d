"""The splitters give the same events however the network cuts the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import sse
from gateway.sse import Event, Events, Lines


def read(pieces: list[bytes], splitter: type[Events] | type[Lines] = Events) -> list[Event]:
    reader = splitter()
    out = [event for piece in pieces for event in reader.feed(piece)]
    return out + reader.close()


def data_of(text: bytes) -> list[bytes]:
    return [event.data for event in read([text])]


def cut(text: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


VECTOR_34 = (
    b"\xef\xbb\xbf: keep-alive\r\n\r\n"
    b'data:{"choices":[{"index":0,"delta":{"content":"\xc3\xa9"}}]}\r\n\r\n'
    b": OPENROUTER PROCESSING\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
)
VECTOR_34_DATA = [
    b'{"choices":[{"index":0,"delta":{"content":"\xc3\xa9"}}]}',
    b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
]


def test_bom_comments_crlf_and_a_missing_last_blank_line_give_the_same_two_events_at_every_cut() -> None:
    for at in range(len(VECTOR_34) + 1):
        assert [e.data for e in read([VECTOR_34[:at], VECTOR_34[at:]])] == VECTOR_34_DATA


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    assert [e.data for e in read([VECTOR_34[i : i + 1] for i in range(len(VECTOR_34))])] == VECTOR_34_DATA


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_separate_events(end: bytes) -> None:
    assert data_of(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_line_ends_may_be_mixed_in_one_stream() -> None:
    assert data_of(b"data: a\r\n\ndata: b\r\rdata: c\n\r\ndata: d\n\n") == [b"a", b"b", b"c", b"d"]


def test_a_crlf_cut_in_its_middle_is_one_line_end() -> None:
    assert [e.data for e in read([b"data: a\r", b"\ndata: b\r\n", b"\r", b"\ndata: c\n\n"])] == [b"a\nb", b"c"]


def test_an_event_that_ends_with_cr_is_given_without_waiting_for_a_following_lf() -> None:
    assert Events().feed(b"data: a\r\r") == [Event(b"a")]


def test_one_space_after_the_colon_is_dropped_and_no_more() -> None:
    assert data_of(b"data:a\n\ndata: b\n\ndata:  c\n\n") == [b"a", b"b", b" c"]


def test_several_data_lines_are_one_event() -> None:
    assert data_of(b'data: {"a":\ndata: 1}\n\n') == [b'{"a":\n1}']


def test_names_belong_to_their_own_event_only() -> None:
    assert read([b"event: ping\ndata: {}\n\ndata: x\n\nevent: lost\n\ndata: y\n\n"]) == [Event(b"{}", "ping"), Event(b"x"), Event(b"y")]


def test_id_retry_and_unknown_fields_are_ignored() -> None:
    assert read([b"id: 7\nretry: 3000\nfoo: bar\nbaz\ndata: x\n\n"]) == [Event(b"x")]


def test_empty_data_is_an_event_and_a_bare_name_is_none() -> None:
    assert read([b"data:\n\ndata\n\nevent: a\n\n\n\n"]) == [Event(b""), Event(b"")]


def test_comments_are_counted_and_never_data() -> None:
    reader = Events()
    assert reader.feed(b": OPENROUTER PROCESSING\n\n: x\n\ndata: a\n\n") == [Event(b"a")]
    assert reader.comments == 2


def test_a_bom_is_dropped_at_the_start_only() -> None:
    assert data_of(b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n") == [b"a", b"\xef\xbb\xbfb"]


def test_invalid_utf8_and_line_separators_inside_data_come_through_untouched() -> None:
    assert data_of("data: a\u2028b\x85c\n\n".encode() + b"data: \xff\xfe\n\n") == ["a\u2028b\x85c".encode(), b"\xff\xfe"]


def test_a_three_megabyte_line_passes() -> None:
    text = b"data: " + b"x" * 3_000_000 + b"\n\n"
    assert [len(e.data) for e in read([text[i : i + 65536] for i in range(0, len(text), 65536)])] == [3_000_000]


@pytest.mark.parametrize("splitter", [Events, Lines])
def test_a_line_that_never_ends_is_refused(splitter: type[Events] | type[Lines]) -> None:
    with pytest.raises(ValueError, match="longer than"):
        read([b"x" * 1024 * 1024] * 20, splitter)


def test_data_lines_that_never_end_in_a_blank_line_are_refused() -> None:
    with pytest.raises(ValueError, match="longer than"):
        read([b"data: " + b"x" * 1024 * 1024 + b"\n"] * 20)


def test_nothing_comes_out_of_an_empty_stream() -> None:
    assert read([]) == read([b""]) == read([b"\xef\xbb"]) == read([b"\xef\xbb\xbf\n\n"]) == []


def test_ndjson_lines_come_one_by_one_and_blank_ones_not_at_all() -> None:
    assert [e.data for e in read([b'\xef\xbb\xbf{"a":1}\r\n\n{"b"', b':2}\n{"c":3}'], Lines)] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_a_written_event_is_read_back() -> None:
    assert sse.event(b"{}") == b"data: {}\n\n"
    assert sse.event(b"{}", "ping") == b"event: ping\ndata: {}\n\n"
    assert sse.event(b"") == b"data: \n\n"
    assert read([sse.event(b"a\nb"), sse.COMMENT, sse.DONE]) == [Event(b"a\nb"), Event(b"[DONE]")]


FIELDS = st.sampled_from([b"data: ", b"data:", b"event: ", b": ", b"id: ", b"x: ", b"", b"data", b"\xef\xbb\xbf"])
TEXTS = st.sampled_from([b"", b"a", b" b", '{"x":"é😀"}'.encode(), b"[DONE]", b"\xff", b":"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r", b""])
STREAMS = st.lists(st.tuples(FIELDS, TEXTS, ENDS), max_size=12).map(lambda lines: b"".join(b"".join(line) for line in lines))
CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@given(STREAMS, CUTS)
def test_any_cut_gives_the_same_events(text: bytes, places: list[int]) -> None:
    whole, pieces = Events(), Events()
    expected = whole.feed(text) + whole.close()
    got = [event for piece in cut(text, places) for event in pieces.feed(piece)] + pieces.close()
    assert got == expected
    assert pieces.comments == whole.comments


@given(STREAMS, CUTS)
def test_any_cut_gives_the_same_ndjson_lines(text: bytes, places: list[int]) -> None:
    assert read(cut(text, places), Lines) == read([text], Lines)


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\r" not in b and b"\n" not in b), max_size=8), CUTS)
def test_what_is_written_is_read_back_at_any_cut(datas: list[bytes], places: list[int]) -> None:
    assert [e.data for e in read(cut(b"".join(map(sse.event, datas)), places))] == datas
