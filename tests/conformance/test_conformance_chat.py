"""Plain chat completions: what a client gets whatever the provider's answer looks like, and what the provider gets."""

from __future__ import annotations

import copy
import json
from typing import Any

import openai
import pytest
from conforming import HI, TOOL, WEATHER, conforms, refused
from pydantic import BaseModel, ConfigDict
from running import CHAT, Running, serving, yaml
from upstream_double import Upstream, answer, completion, tool_call

PATIENT = "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}"
GONE = object()


def changed(body: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with one field replaced, or taken out."""
    made = at = copy.deepcopy(body)
    for key in place[:-1]:
        at = at[key]
    if value is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return made


async def asked(a: Upstream, running: Running, body: Any, **more: Any) -> dict[str, Any]:
    """What the client gets when the provider answers with this body; it conforms."""
    a.clear()
    a.reply(body)
    got = await running.chat({**CHAT, **more})
    assert got.status_code == 200, got.text
    found: dict[str, Any] = conforms(got.json(), "chat_completion")
    return found


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}], ids=["absent", "false", "null"])
async def test_who_does_not_ask_for_a_stream_gets_json(a: Upstream, running: Running, stream: dict[str, Any]) -> None:
    a.reply(completion("Hello")).stream(*answer("Hello"))
    for _ in range(2):  # a provider that does as it is told, and one that streams all the same
        got = await running.chat({**CHAT, **stream})
        assert (got.status_code, got.headers["content-type"]) == (200, "application/json")
        assert conforms(got.json(), "chat_completion")["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.parametrize("value", [GONE, None, ""], ids=["gone", "null", "empty"])
async def test_the_head_of_an_answer_is_filled_in_where_the_provider_left_it_out(a: Upstream, running: Running, value: Any) -> None:
    for field in ("id", "object", "created", "model"):
        said = await asked(a, running, changed(completion("x"), (field,), value))
        assert said["id"].startswith("chatcmpl-"), field

    bare = {name: part for name, part in completion("x").items() if name == "choices"}
    assert (await asked(a, running, bare))["choices"][0]["message"]["content"] == "x"


async def test_choices_are_numbered_where_the_provider_did_not(a: Upstream, running: Running) -> None:
    two = completion("one")
    two["choices"].append({**two["choices"][0], "index": 1})
    for choices in (two["choices"], [{k: v for k, v in choice.items() if k != "index"} for choice in two["choices"]]):
        said = await asked(a, running, {**two, "choices": choices}, n=2)
        assert [choice["index"] for choice in said["choices"]] == [0, 1]


@pytest.mark.parametrize("choices", [None, [], {}, "x", [None], GONE], ids=["null", "empty", "object", "text", "list of null", "gone"])
async def test_an_answer_without_choices_is_a_failure_and_moves_on(a: Upstream, b: Upstream, choices: Any) -> None:
    broken = changed(completion("x"), ("choices",), choices)
    a.reply(broken)
    b.reply(broken, repeat=1).reply(completion("from b"))
    async with serving(yaml({"a": a.url, "b": b.url}, a=PATIENT, b=PATIENT)) as running:
        error = refused(await running.chat(), 502)
        said = await running.chat()

    assert error["code"] == "providers_exhausted"
    assert said.json()["choices"][0]["message"]["content"] == "from b"


@pytest.mark.parametrize(
    ("said", "legal"),
    [
        *[(word, word) for word in ("stop", "length", "content_filter")],
        *[(word, "stop") for word in ("eos", "end_turn", "STOP", "stop_sequence", "whatever")],
        *[("max_tokens", "length"), ("guardrail_intervened", "content_filter"), ("SAFETY", "content_filter"), (None, "stop"), (GONE, "stop")],
    ],
)
async def test_the_finish_reason_is_one_of_five(a: Upstream, running: Running, said: Any, legal: str) -> None:
    got = await asked(a, running, changed(completion("x"), ("choices", 0, "finish_reason"), said))

    assert got["choices"][0]["finish_reason"] == legal


async def test_an_answer_that_ended_in_an_error_is_none(a: Upstream, running: Running) -> None:
    a.reply(completion("half of it", finish="error"))

    assert refused(await running.chat(), 502)["code"] == "providers_exhausted"


@pytest.mark.parametrize("said", ["stop", "tool_calls", "tool_use", "end_turn", "function_call", None])
async def test_with_tool_calls_the_finish_reason_is_tool_calls(a: Upstream, running: Running, said: Any) -> None:
    got = await asked(a, running, changed(completion(None, calls=[tool_call("f", "{}")]), ("choices", 0, "finish_reason"), said), tools=[TOOL])

    assert got["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("said", "given"),
    [('{"city":"Paris"}', '{"city":"Paris"}'), ({"city": "Paris"}, '{"city":"Paris"}'), ({}, "{}"), (None, "{}"), ("", "{}"), (GONE, "{}")],
    ids=["text", "object", "empty object", "null", "empty text", "gone"],
)
async def test_the_arguments_of_a_call_are_a_text(a: Upstream, running: Running, said: Any, given: str) -> None:
    called = changed(completion(None, calls=[tool_call("get_weather", "")]), ("choices", 0, "message", "tool_calls", 0, "function", "arguments"), said)
    (call,) = (await asked(a, running, called, tools=[TOOL]))["choices"][0]["message"]["tool_calls"]

    assert json.loads(call["function"]["arguments"]) == json.loads(given)


@pytest.mark.parametrize("value", [GONE, None, ""], ids=["gone", "null", "empty"])
async def test_a_call_has_an_id_and_a_type(a: Upstream, running: Running, value: Any) -> None:
    for field in ("id", "type"):
        called = changed(completion(None, calls=[tool_call("f", "{}")]), ("choices", 0, "message", "tool_calls", 0, field), value)
        (call,) = (await asked(a, running, called, tools=[TOOL]))["choices"][0]["message"]["tool_calls"]
        assert call["type"] == "function"
        assert call["id"]


@pytest.mark.parametrize("value", [None, GONE], ids=["null", "gone"])
async def test_usage_that_the_provider_does_not_tell_is_not_invented(a: Upstream, running: Running, value: Any) -> None:
    assert (await asked(a, running, changed(completion("x"), ("usage",), value))).get("usage") is None


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "boom", "code": 500}},
        {"error": "boom"},
        {**completion("x"), "error": {"message": "boom"}},
        b"<html>boom</html>",
        b'{"id":"x","choices":[{"ind',
    ],
    ids=["error", "error as text", "error beside an answer", "html", "cut"],
)
async def test_a_200_that_holds_no_answer_is_not_passed_on_as_one(a: Upstream, running: Running, body: Any) -> None:
    for kind in ("application/json", "text/html"):
        a.clear()
        a.reply(body, headers={"content-type": kind})
        got = await running.chat()
        assert refused(got, got.status_code)["code"] in ("providers_exhausted", "no_target_available")
        assert got.status_code in (502, 503)
        assert "<html>" not in got.text


async def test_fields_that_the_gateway_does_not_know_reach_the_provider(a: Upstream, running: Running) -> None:
    more = {"client_metadata": {"x": None, "y": []}, "reasoning_effort": "low", "extra": 1.0, "service_tier": "flex", "seed": 12345678901234567890}
    await asked(a, running, completion("x"), **more)

    assert a.requests[0].json == {**CHAT, **more, "model": "a-model"}


async def test_reasoning_is_kept_and_comes_back_to_a_provider_that_needs_it(a: Upstream) -> None:
    a.reply(completion(None, calls=[tool_call("f", "{}")], reasoning_content="so")).reply(completion("done"))
    async with serving(yaml({"a": a.url}, a=f"adapter: deepseek\n{PATIENT}")) as running:
        first = conforms((await running.chat({**CHAT, "tools": [TOOL]})).json(), "chat_completion")["choices"][0]["message"]
        turn = {name: value for name, value in first.items() if name != "reasoning_content"}  # as langchain-deepseek 1.1.1 sends it
        await running.chat({**CHAT, "tools": [TOOL], "messages": [*HI, turn, {"role": "tool", "tool_call_id": "call_1", "content": "1"}]})
        await running.chat({**CHAT, "tools": [TOOL], "messages": [*HI, {"role": "assistant", "content": "older"}, *HI]})

    assert first["reasoning_content"] == "so"
    assert a.requests[1].json["messages"][1]["reasoning_content"] == "so"
    assert a.requests[2].json["messages"][1]["reasoning_content"] == ""


async def test_only_the_adapters_rules_rename_or_drop_parameters(a: Upstream, b: Upstream) -> None:
    asked = {
        **CHAT,
        "messages": [{"role": "developer", "content": "Be brief"}, *HI],
        "max_completion_tokens": 9,
        "store": False,
        "parallel_tool_calls": False,
        "tools": [TOOL],
    }
    a.reply(completion("x"))
    b.reply(completion("x"))
    async with serving(yaml({"a": a.url, "b": b.url}, b=f"adapter: deepseek\n{PATIENT}")) as running:
        for name in ("a", "b"):
            await running.chat(asked, x_thinkgate_provider=name)

    ours, theirs = a.requests[0].json, b.requests[0].json
    assert ours == {**asked, "model": "a-model"}
    assert theirs["messages"][0] == {"role": "system", "content": "Be brief"}
    assert (theirs["max_tokens"], "max_completion_tokens" in theirs) == (9, False)
    assert (theirs["store"], theirs["parallel_tool_calls"]) == (False, False)  # deepseek has no rule for these


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")

    city: str


async def test_a_form_is_passed_on_and_parsed_by_the_sdk(a: Upstream, running: Running) -> None:
    a.reply(completion('{"city":"Paris"}'))
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        said = await client.chat.completions.parse(model="m", messages=HI, response_format=City)

    assert said.choices[0].message.parsed == City(city="Paris")
    sent = a.requests[0].json["response_format"]
    assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["schema"]["required"]) == ("json_schema", "City", WEATHER["required"])
