"""What the drill's providers say is what the dialects read."""

from __future__ import annotations

import pytest

from gateway.chat import Accumulator, Json, loads
from gateway.dialects import chat, dialect
from gateway.dialects.eventstream import Frames
from gateway.drill.voices import TEXT, Voice
from gateway.errors import UpstreamError
from gateway.sse import Event, Events, Lines

VOICES = [Voice(name, "sse") for name in ("chat", "responses", "messages", "completions", "gemini")] + [
    Voice("converse", "eventstream"),
    Voice("chat", "ndjson"),
]
FRAMINGS = {"sse": Events, "ndjson": Lines, "eventstream": Frames}

pytestmark = pytest.mark.parametrize("voice", VOICES, ids=lambda voice: f"{voice.dialect} {voice.framing}")


def read(voice: Voice, data: bytes) -> tuple[list[Json], bool]:
    """The healed chat chunks of a stream's bytes, and whether it has come to its end."""
    framing = FRAMINGS[voice.framing]()
    events: list[Event] = [*framing.feed(data), *framing.close()]
    healer = chat.ChatStream("m", include_usage=True)
    if voice.dialect == "chat":
        chunks = [chunk for event in events for chunk in healer.feed(event.data, event.name)]
    else:
        reader = dialect(voice.dialect).Reader("m")
        values = [value for event in events for value in reader.feed(event.name, event.data)]
        chunks = [chunk for value in [*values, *reader.finish()] for chunk in healer.chunk(value)]
    return [chunk.json() for chunk in [*chunks, *healer.finish()]], healer.finished


def test_its_stream_is_a_whole_answer(voice: Voice) -> None:
    pieces = voice.pieces()
    chunks, finished = read(voice, pieces.opening + b"".join(pieces.content) + pieces.closing)
    answer = Accumulator()
    for chunk in chunks:
        answer.add(chunk)

    assert answer.completion()["choices"][0]["message"]["content"] == TEXT
    assert finished
    assert answer.completion()["usage"]["total_tokens"] == 9


def test_its_opening_has_no_content_and_each_piece_has(voice: Voice) -> None:
    pieces = voice.pieces()

    assert not any(choice["delta"].get("content") for chunk in read(voice, pieces.opening)[0] for choice in chunk["choices"])
    assert len(pieces.content) == 2
    assert any(choice["delta"].get("content") for chunk in read(voice, pieces.opening + pieces.content[0])[0] for choice in chunk["choices"])


def test_a_stream_without_its_closing_is_not_finished(voice: Voice) -> None:
    pieces = voice.pieces()

    assert not read(voice, pieces.opening + b"".join(pieces.content))[1]


def test_its_empty_stream_ends_well_and_says_nothing(voice: Voice) -> None:
    chunks, finished = read(voice, voice.empty())

    assert finished
    assert not any(choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"])


def test_its_plain_answer_says_the_same(voice: Voice) -> None:
    body = loads(voice.whole())
    value = body if voice.dialect == "chat" else dialect(voice.dialect).answer_to_chat(body)

    assert value["choices"][0]["message"]["content"] == TEXT


def test_an_error_in_its_stream_is_one(voice: Voice) -> None:
    with pytest.raises(UpstreamError, match="overloaded") as caught:
        read(voice, voice.pieces().opening + voice.error_event(503, "the server is overloaded"))

    assert caught.value.kind == "overload"


def test_a_broken_event_is_a_failure(voice: Voice) -> None:
    with pytest.raises(UpstreamError) as caught:
        read(voice, voice.pieces().opening + voice.broken_event())

    assert caught.value.kind == "protocol"


def test_a_pulse_says_nothing(voice: Voice) -> None:
    chunks, finished = read(voice, voice.pieces().opening + voice.pulse())

    assert not finished
    assert not any(choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"])
