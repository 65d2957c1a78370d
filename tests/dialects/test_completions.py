"""The legacy completions dialect from and to chat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.chat import Accumulator
from gateway.dialects import completions
from gateway.errors import InvalidRequest, Skipped, UpstreamError

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def outbound(*turns: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    return completions.request_from_chat({"model": "m", "messages": [{"role": role, "content": text} for role, text in turns], **fields})


def to_client(body: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The completions answer, if the SDK's type takes it."""
    out = completions.answer_from_chat(body, {"prompt": "p", **request})
    Completion.model_validate(out)
    return out


def to_chat(body: dict[str, Any]) -> dict[str, Any]:
    out = completions.answer_to_chat(body)
    ChatCompletion.model_validate(out)
    return out


def answer(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"id": "cmpl-1", "object": "text_completion", "created": 5, "model": "up", "choices": list(choices), "usage": USAGE, "system_fingerprint": "fp"}


def completion(text: str | None = "x", finish: str = "stop", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": "up",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}],
    }


# --- requests


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_a_prompt_becomes_the_users_message_and_other_fields_stay(prompt):
    body = {"model": "m", "prompt": prompt, "max_tokens": 5, "stop": ["\n"], "n": 2, "best_of": 2, "echo": True, "x_vendor": {"a": None}, "stream": True}

    assert completions.request_to_chat(body) == {
        "model": "m",
        "max_tokens": 5,
        "stop": ["\n"],
        "n": 2,
        "x_vendor": {"a": None},
        "stream": True,
        "messages": [{"role": "user", "content": "Once"}],
    }


def test_logprobs_is_a_number_here_and_two_fields_there():
    assert completions.request_to_chat({"prompt": "x", "logprobs": 3}) == {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 3}
    assert outbound(("user", "x"), logprobs=True, top_logprobs=3)["logprobs"] == 3
    assert outbound(("user", "x"), logprobs=True)["logprobs"] == 0
    assert "logprobs" not in outbound(("user", "x"), logprobs=False)


@pytest.mark.parametrize("fields", [{"prompt": ["a", "b"]}, {"prompt": [1, 2]}, {"prompt": [[1, 2]]}, {"prompt": "a", "suffix": "b"}])
def test_what_only_a_completions_host_can_do_leaves_the_provider_out(fields):
    with pytest.raises(Skipped):
        completions.request_to_chat({"model": "m", **fields})


@pytest.mark.parametrize("fields", [{}, {"prompt": None}, {"prompt": {}}, {"prompt": []}])
def test_a_prompt_is_required(fields):
    with pytest.raises(InvalidRequest) as caught:
        completions.request_to_chat({"model": "m", **fields})
    assert caught.value.param == "prompt"


def test_one_question_is_the_prompt_itself():
    assert outbound(("user", "Once"))["prompt"] == "Once"
    assert outbound(("system", "Be brief."), ("user", [{"type": "text", "text": "On"}, {"type": "text", "text": "ce"}]))["prompt"] == "Be brief.\n\nOnce"


def test_a_conversation_is_a_transcript():
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]

    assert outbound(*turns)["prompt"] == "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"


def test_a_prefill_is_gone_on_with():
    assert outbound(("user", "Hi"), ("assistant", "Hel"))["prompt"] == "User: Hi\n\nAssistant: Hel"


def test_chat_only_fields_go_and_the_limit_is_renamed():
    body = outbound(("user", "x"), max_completion_tokens=5, response_format={"type": "json_object"}, tool_choice="auto", tools=[], temperature=0, top_k=4)

    assert body == {"model": "m", "prompt": "x", "max_tokens": 5, "temperature": 0, "top_k": 4}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ],
)
def test_tools_and_images_leave_the_provider_out(body):
    with pytest.raises(Skipped):
        completions.request_from_chat(body)


@pytest.mark.parametrize(
    "junk", [None, 1, "x", [], ["x"], [[]], {}, [{}], [{"text": 1, "index": [], "logprobs": {"tokens": [1], "top_logprobs": [1]}, "finish_reason": []}]]
)
def test_senseless_bodies_break_nothing(junk):
    data = json.dumps({"choices": junk, "usage": junk, "id": junk, "model": junk}).encode()

    completions.answer_to_chat({"choices": junk})
    completions.answer_from_chat({"choices": junk}, {})
    completions.Reader("m").feed(None, data)
    completions.Native().look(None, data)
    completions.Writer({}).feed({"choices": junk})
    json.dumps(completions.request_from_chat({"messages": junk}))


@given(st.text(min_size=1))
def test_a_prompt_means_the_same_after_there_and_back(prompt):
    body = {"model": "m", "prompt": prompt, "max_tokens": 3}

    assert completions.request_from_chat(completions.request_to_chat(body)) == body


# --- answers


def test_a_text_becomes_a_completion_and_back():
    body = answer({"text": " upon", "index": 0, "logprobs": None, "finish_reason": "length"})

    chat = to_chat(body)

    assert chat["id"] == "chatcmpl-1"
    assert chat["choices"] == [{"index": 0, "message": {"role": "assistant", "content": " upon", "refusal": None}, "logprobs": None, "finish_reason": "length"}]
    assert chat["usage"] == USAGE
    assert to_client(chat) == body


def test_every_choice_is_kept():
    body = answer({"text": "a", "index": 0, "logprobs": None, "finish_reason": "stop"}, {"text": "b", "index": 1, "logprobs": None, "finish_reason": "stop"})

    assert to_client(to_chat(body)) == body


def test_echo_puts_the_prompt_before_the_text():
    assert to_client(completion(" upon"), prompt="Once", echo=True)["choices"][0]["text"] == "Once upon"


@pytest.mark.parametrize(("finish", "expected"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("tool_calls", "stop")])
def test_finish_reasons_are_legal(finish, expected):
    assert to_client(completion("x", finish))["choices"][0]["finish_reason"] == expected


def test_logprobs_change_their_form_both_ways():
    old = {"tokens": ["a", "ö"], "token_logprobs": [-0.5, -1.0], "top_logprobs": [{"a": -0.5, "b": -2.0}, {}], "text_offset": [0, 1]}

    chat = to_chat(answer({"text": "aö", "index": 0, "logprobs": old, "finish_reason": "stop"}))

    assert chat["choices"][0]["logprobs"]["content"][1] == {"token": "ö", "logprob": -1.0, "bytes": [195, 182], "top_logprobs": []}
    assert to_client(chat)["choices"][0]["logprobs"] == old


def test_offsets_count_from_the_echoed_prompt():
    logprobs = {"content": [{"token": "x", "logprob": -1.0, "bytes": None, "top_logprobs": []}]}

    assert to_client(completion("x", logprobs=logprobs), prompt="Once", echo=True)["choices"][0]["logprobs"]["text_offset"] == [4]


def test_native_content():
    assert completions.native_content(answer({"text": "x"}))
    assert not completions.native_content(answer({"text": ""}))
    assert not completions.native_content({"choices": None})


def test_the_error_envelope_is_openais():
    assert completions.error_body({"message": "m"}, 400, "r") == {"error": {"message": "m"}}


# --- streams


def event(text: str = "", finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 5,
        "model": "up",
        "choices": [{"text": text, "index": index, "logprobs": None, "finish_reason": finish}],
        **fields,
    }


def read(*events: Any) -> tuple[list[dict[str, Any]], completions.Reader]:
    reader = completions.Reader("asked")
    chunks = [chunk for one in events for chunk in reader.feed(None, one if isinstance(one, bytes) else json.dumps(one).encode())]
    chunks += reader.finish()
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    return chunks, reader


def accumulated(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    into = Accumulator()
    for chunk in chunks:
        into.add(chunk)
    return into.completion()


def chunk(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "up",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }


def write(*chunks: dict[str, Any], **request: Any) -> list[dict[str, Any]]:
    writer = completions.Writer({"prompt": "p", **request})
    return [data for one in chunks for name, data in writer.feed(one)] + [data for _, data in writer.finish()]


@given(st.lists(st.text(max_size=5), max_size=6))
def test_a_stream_accumulates_to_the_plain_answer(texts):
    chunks, reader = read(*(event(text) for text in texts), event(finish="stop"), {**event(), "choices": [], "usage": USAGE}, b"[DONE]")

    streamed, plain = accumulated(chunks), to_chat({**answer({"text": "".join(texts), "index": 0, "logprobs": None, "finish_reason": "stop"})})
    assert streamed["choices"][0]["message"] == {"role": "assistant", "content": plain["choices"][0]["message"]["content"]}
    assert (streamed["id"], streamed["usage"], streamed["choices"][0]["finish_reason"]) == (plain["id"], USAGE, "stop")
    assert reader.done


def test_the_role_comes_first_and_once_for_each_choice():
    chunks, _ = read(event("a"), event("b", index=1), event("c"))

    assert [one["choices"][0]["delta"].get("role") for one in chunks] == ["assistant", "assistant", None]


def test_a_stream_is_done_when_every_choice_is():
    _, half = read(event("a"), event("b", index=1), event(finish="stop"))
    _, whole = read(event("a"), event("b", index=1), event(finish="stop"), event(finish="stop", index=1))

    assert not half.done
    assert whole.done


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"nonsense", b"{}", b'{"choices":null}', b'{"choices":[]}', b'{"choices":["x"]}'])
def test_what_is_no_event_is_passed_over(data):
    assert read(data)[0] == []
    assert completions.Native().look(None, data) is False


def test_an_error_event_is_raised():
    error = b'{"error":{"message":"overloaded","type":"overloaded_error"}}'

    with pytest.raises(UpstreamError):
        read(error)
    with pytest.raises(UpstreamError):
        completions.Native().look(None, error)


def test_chat_chunks_become_text_events():
    events = write(
        chunk(role="assistant", content=""),
        chunk(reasoning_content="hm"),
        chunk(content="a"),
        chunk(content="b"),
        chunk("tool_calls"),
        {**chunk(), "choices": [], "usage": USAGE},
    )

    for one in events:
        assert one["id"] == "cmpl-1"
        assert one["object"] == "text_completion"
        assert "usage" not in one
    assert [(one["choices"][0]["text"], one["choices"][0]["finish_reason"]) for one in events] == [("a", None), ("b", None), ("", "stop")]


def test_usage_is_told_to_those_who_asked():
    events = write(chunk(content="a"), chunk("stop"), {**chunk(), "choices": [], "usage": USAGE}, stream_options={"include_usage": True})

    assert [one["usage"] for one in events] == [None, None, USAGE]
    assert events[-1]["choices"] == []


def test_echo_comes_before_the_first_text_of_each_choice():
    events = write(chunk(content="a"), chunk(content="b"), chunk(content="c", index=1), echo=True)

    assert [one["choices"][0]["text"] for one in events] == ["pa", "b", "pc"]


def test_a_failure_is_openais_error_event():
    assert completions.Writer({}).fail({"message": "m"}) == [(None, {"error": {"message": "m"}})]


def test_native_sees_text_usage_and_the_end():
    native = completions.Native()

    assert not native.look(None, json.dumps(event()).encode())
    assert native.look(None, json.dumps(event("a")).encode())
    assert native.has_content
    assert not native.done
    native.look(None, json.dumps({**event(finish="stop"), "usage": USAGE}).encode())
    assert native.done
    assert native.usage == USAGE


def test_native_takes_done_for_the_end():
    native = completions.Native()

    assert not native.look(None, b"[DONE]")
    assert native.done
