"""What a strict client sees of the odd streams that providers send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import calls, deltas, finishes, parsed, sdk, text
from running import STREAM, Running, serving, yaml
from upstream_double import DONE, Item, Upstream, chunk, delta, finish, role, usage

END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
BARE: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def bare(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk as small as some providers send it: no logprobs, no finish_reason where there is none."""
    choice = {"index": 0, "delta": delta or {}, **({"finish_reason": reason} if reason else {})}
    return {**BARE, "choices": [choice], **more}


def part(name: str | None = None, arguments: str | None = None, *, index: int | None = 0, id: str | None = None) -> dict[str, Any]:
    """A delta with one piece of a tool call; what is None is not there."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call = {"index": index, "id": id, "type": "function" if id else None, "function": function}
    return bare({"tool_calls": [{key: value for key, value in call.items() if value is not None}]})


async def events_of(a: Upstream, *items: Item, body: dict[str, Any] = STREAM) -> list[str]:
    a.stream(*items)
    async with serving(yaml({"a": a.url})) as running:
        return await running.events(body)


async def sdk_text(running: Running) -> str:
    async with sdk(running) as client:
        stream = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        return "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])


async def test_reasoning_under_another_name_is_all_there(a: Upstream) -> None:
    events = await events_of(
        a, bare({"role": "assistant", "content": "", "reasoning": "A"}), *(bare({"reasoning": t}) for t in "BC"), bare({"content": "x"}), bare({}, "stop"), DONE
    )

    assert (text(events, "reasoning_content"), text(events, "reasoning"), text(events)) == ("ABC", "ABC", "x")


async def test_a_delta_with_reasoning_and_text_keeps_both(a: Upstream) -> None:
    events = await events_of(
        a,
        bare({"role": "assistant", "content": ""}),
        bare({"reasoning_content": "think"}),
        bare({"reasoning_content": "ing.", "content": "Hel"}),
        bare({"content": "lo"}),
        bare({}, "stop"),
        DONE,
    )

    assert (text(events, "reasoning_content"), text(events)) == ("thinking.", "Hello")


async def test_the_pieces_of_parallel_calls_stay_apart(a: Upstream) -> None:
    events = await events_of(
        a,
        part("f1", "", id="c0"),
        part("f2", "", index=1, id="c1"),
        part(arguments='{"a":'),
        part(arguments='{"b":', index=1),
        part(arguments="1}"),
        part(arguments="2}", index=1),
        bare({}, "tool_calls"),
        DONE,
    )

    assert calls(events) == [("c0", "f1", '{"a":1}'), ("c1", "f2", '{"b":2}')]
    assert finishes(events) == ["tool_calls"]


async def test_calls_without_an_index_are_told_apart(a: Upstream) -> None:
    events = await events_of(
        a,
        part("get_weather", '{"city":"P"}', index=None, id="c0"),
        part("get_time", '{"tz"', index=None, id="c1"),
        part(arguments=':"J"}', index=None),
        bare({}, "tool_calls"),
        DONE,
    )

    assert calls(events) == [("c0", "get_weather", '{"city":"P"}'), ("c1", "get_time", '{"tz":"J"}')]


async def test_pieces_with_and_without_an_index_may_be_mixed(a: Upstream) -> None:
    events = await events_of(
        a,
        part("f1", '{"a":', id="c0"),
        part(arguments="1}", index=None),
        part("f2", "{", index=None, id="c1"),
        part(arguments="}", index=1),
        bare({}, "stop"),
        DONE,
    )

    assert calls(events) == [("c0", "f1", '{"a":1}'), ("c1", "f2", "{}")]
    assert finishes(events) == ["tool_calls"]  # calls were sent, whatever the provider says


async def test_a_repeated_id_and_name_are_not_joined(a: Upstream) -> None:
    events = await events_of(
        a,
        part("f", "", id="t-aa62"),
        part("f", '{"q"', id="t-aa62"),
        part("f", ':"x"}', id="t-aa62"),
        bare({}, "tool_calls"),
        DONE,
    )

    assert calls(events) == [("t-aa62", "f", '{"q":"x"}')]
    joined = [call for delta in deltas(events) for call in delta.get("tool_calls", [])]
    assert "".join(call.get("id", "") for call in joined) == "t-aa62"  # also for clients that join whatever comes
    assert "".join(call["function"].get("name", "") for call in joined) == "f"


async def test_arguments_cut_inside_an_escape_come_byte_for_byte_and_at_once(a: Upstream) -> None:
    pieces = ['{"q":"\\u5', "317\\ud83d\\u", 'de00"}']
    events = await events_of(a, part("f", pieces[0], id="c0"), *(part(arguments=piece) for piece in pieces[1:]), bare({}, "tool_calls"), DONE)

    assert calls(events) == [("c0", "f", "".join(pieces))]
    assert json.loads(calls(events)[0][2]) == {"q": "北😀"}
    assert [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas(events) if "tool_calls" in delta] == pieces


@pytest.mark.parametrize("size", [1, 3, 10_000], ids=["byte by byte", "three by three", "cut twice"])
async def test_a_character_that_the_network_cut_is_whole_again(a: Upstream, size: int) -> None:
    raw = b'data: {"choices":[{"index":0,"delta":{"content":"\xe5\x8c\x97\xe4\xba\xac\xf0\x9f\x98\x80"}}]}\n\n' + END
    cuts = [raw[i : i + size] for i in range(0, len(raw), size)] if size < len(raw) else [raw[:51], raw[51:58], raw[58:]]
    spread: list[Item] = [item for cut in cuts for item in (cut, 0)]
    events = await events_of(a, *spread)

    assert text(events) == "北京😀"


async def test_comments_are_not_sent_on_as_data(a: Upstream) -> None:
    a.stream(b": OPENROUTER PROCESSING\n\n", b": OPENROUTER PROCESSING\n\n", delta("a"), finish(), DONE, repeat=2)

    async with serving(yaml({"a": a.url})) as running:
        raw = (await running.chat(STREAM)).text
        assert await sdk_text(running) == "a"

    assert "data: :" not in raw
    assert text([line[6:] for line in raw.split("\n") if line.startswith("data: ")]) == "a"


async def test_an_event_of_two_data_lines_is_one_event(a: Upstream) -> None:
    events = await events_of(a, b'data: {"id":"x",\ndata: "choices":[{"index":0,"delta":{"content":"z"}}]}\n\n', bare({}, "stop"), DONE)

    assert text(events) == "z"
    assert all(json.loads(event) for event in events[:-1])


@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"], ids=["CRLF", "CR", "LF"])
async def test_every_kind_of_line_end_is_understood(a: Upstream, end: bytes) -> None:
    raw = b'\xef\xbb\xbfdata:{"choices":[{"delta":{"content":"a b"}}]}\n\nevent: x\nid: 1\nretry: 5\n' + END
    events = await events_of(a, raw.replace(b"\n", end))

    assert (text(events), finishes(events), events[-1]) == ("a b", ["stop"], DONE)


@pytest.mark.parametrize("extra", [{}, {"choices": []}, {"choices": None}], ids=["no choices", "empty choices", "null choices"])
async def test_a_chunk_with_nothing_but_usage_is_given_in_openais_form(a: Upstream, extra: dict[str, Any]) -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    body = {**STREAM, "stream_options": {"include_usage": True}}
    a.stream(bare({"content": "a"}), bare({}, "stop"), {**BARE, **extra, "usage": counts}, DONE)

    async with serving(yaml({"a": a.url})) as running:
        events = await running.events(body)
        metrics = (await running.client.get("/metrics")).text

    last = parsed(events)[-1]
    assert (text(events), last["choices"], last["usage"]["total_tokens"]) == ("a", [], 4)
    assert 'thinkgate_tokens_total{kind="prompt",provider="a"} 3.0' in metrics
    assert 'thinkgate_tokens_total{kind="completion",provider="a"} 1.0' in metrics


async def test_usage_that_was_not_asked_for_stays_away_but_is_counted(a: Upstream) -> None:
    a.stream(role(), delta("a"), finish(), usage(3, 1), DONE)

    async with serving(yaml({"a": a.url})) as running:
        events = await running.events()
        metrics = (await running.client.get("/metrics")).text

    assert all(chunk["choices"] and not chunk.get("usage") for chunk in parsed(events))
    assert 'thinkgate_tokens_total{kind="prompt",provider="a"} 3.0' in metrics


async def test_the_opening_delta_arrives_as_it_is_and_no_chunk_is_added(a: Upstream) -> None:
    events = await events_of(a, bare({"role": "assistant", "content": "", "refusal": None}), bare({"content": "a"}), bare({}, "stop"), DONE)

    assert deltas(events)[0] == {"role": "assistant", "content": "", "refusal": None}
    assert len(events) == 4


async def test_the_role_comes_first_where_the_provider_forgets_it(a: Upstream) -> None:
    events = await events_of(a, bare({"content": "a"}), bare({"content": "b"}), bare({}, "stop"), DONE)

    assert deltas(events)[0]["role"] == "assistant"
    assert text(events) == "ab"


async def test_every_chunk_has_what_strict_clients_insist_on(a: Upstream) -> None:
    events = await events_of(
        a, {"choices": [{"delta": {"content": "a"}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}], "id": "other", "created": 1.5}, DONE
    )

    chunks = parsed(events)
    assert len({(c["id"], c["object"], c["created"], c["model"]) for c in chunks}) == 1
    assert all(c["id"] and c["object"] == "chat.completion.chunk" and isinstance(c["created"], int) and c["model"] for c in chunks)
    assert all(set(choice) >= {"index", "delta", "finish_reason"} for c in chunks for choice in c["choices"])


async def test_a_finish_on_every_chunk_is_one_finish_at_the_end(a: Upstream) -> None:
    events = await events_of(a, bare({"content": "a"}, "stop"), bare({"content": "b"}, "stop"), bare({}, "stop"), DONE)

    assert (text(events), finishes(events)) == ("ab", ["stop"])
    assert parsed(events)[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_three_megabyte_event_passes_whole(a: Upstream) -> None:
    long = "x" * 3_000_000
    events = await events_of(a, role(), delta(long), finish(), DONE)

    assert text(events) == long


async def test_garbage_between_sound_events_is_left_out(a: Upstream) -> None:
    events = await events_of(a, role(), delta("a"), "not json", b"data\n\n", "null", chunk({"content": "b"}), finish(), DONE)

    assert text(events) == "ab"
    assert all(isinstance(json.loads(event), dict) for event in events[:-1])
