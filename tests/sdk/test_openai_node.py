"""The newest `openai` for Node against a gateway: each scenario is a script of the folder node/."""

from __future__ import annotations

from typing import Any

import pytest
from node_scripts import Node
from odd_streams import ARGUMENTS, CALLS, TEXTS
from openai_client import HI, KEYED, WEATHER_TOOL, over, strict_deepseek
from running import serving, yaml
from upstream_double import CUT, Upstream, answer, chunk, completion, delta, events, finish, plain, role, thought, tool_call

pytestmark = pytest.mark.node

CALL = tool_call("get_weather", ARGUMENTS)


def refused(message: str, status: int, code: str | None = None) -> Any:
    return plain({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}, status=status)


class TestAnswers:
    async def test_a_plain_answer_and_its_headers(self, a: Upstream, b: Upstream, node: Node) -> None:
        a.reply({"error": {"message": "down"}}, status=500)
        b.reply(completion("Hello", reasoning_content="so"))

        async with serving(over(a, b)) as running:
            out = await node(running, "plain", body={"made_up": {"x": None}}, headers={"X-Request-ID": "mine-1"})

        message = out["data"]["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"], out["data"]["usage"]["total_tokens"]) == ("Hello", "so", 8)
        assert out["request_id"] == out["_request_id"] == "mine-1"
        assert (out["headers"]["x-thinkgate-chain"], out["headers"]["x-thinkgate-provider"]) == ("a=500,b=200", "b")
        assert b.requests[0].json == {"model": "b-model", "messages": HI, "made_up": {"x": None}}

    async def test_a_stream_with_reasoning_and_usage(self, a: Upstream, node: Node) -> None:
        a.stream(role(), thought("so"), *answer("Hel", "lo", usage_chunk=True)[1:])

        async with serving(over(a)) as running:
            chunks = await node(running, "stream", body={"stream_options": {"include_usage": True}})

        deltas = [choice["delta"] for one in chunks for choice in one["choices"]]
        assert "".join(part.get("content") or "" for part in deltas) == "Hello"
        assert "".join(part.get("reasoning_content") or "" for part in deltas) == "so"
        assert [one["usage"]["total_tokens"] for one in chunks if one.get("usage")] == [8]

    async def test_two_choices_stream(self, a: Upstream, node: Node) -> None:
        a.stream(role(), role(index=1), delta("one"), delta("two", index=1), finish(), finish(index=1), "[DONE]")

        async with serving(over(a)) as running:
            chunks = await node(running, "stream", body={"n": 2})

        texts = {0: "", 1: ""}
        for piece in (choice for one in chunks for choice in one["choices"]):
            texts[piece["index"]] += piece["delta"].get("content") or ""
        assert texts == {0: "one", 1: "two"}

    async def test_leaving_a_stream_ends_the_upstreams_answer(self, a: Upstream, node: Node) -> None:
        a.stream(role(), delta("Hel"), 5.0, delta("lo"))

        async with serving(over(a)) as running:
            out = await node(running, "leave")
            await a.until(lambda upstream: upstream.disconnected)

        assert out == {"text": "Hel", "aborted": True}

    async def test_models(self, a: Upstream, node: Node) -> None:
        async with serving(over(a)) as running:
            out = await node(running, "models", names=["m", "a/anything"])

        assert "m" in out["names"]
        assert [(one["id"], one["object"]) for one in out["single"]] == [("m", "model"), ("a/anything", "model")]

    async def test_a_zod_form_is_parsed_plain_and_streamed(self, a: Upstream, node: Node) -> None:
        a.reply(completion(ARGUMENTS)).stream(*answer(*ARGUMENTS))

        async with serving(over(a)) as running:
            assert await node(running, "form") == [{"city": "Paris"}] * 2

        assert [seen.json["response_format"]["type"] for seen in a.requests] == ["json_schema"] * 2


class TestOddStreams:
    async def test_texts_arrive_raw_and_through_the_helper(self, a: Upstream, node: Node) -> None:
        for items in TEXTS.values():
            a.stream(*items, repeat=2)

        async with serving(over(a)) as running:
            out = await node(running, "streams", count=len(TEXTS))

        got = {name: (one["raw"], one["choice"]["message"]["content"], one["choice"]["finish_reason"]) for name, one in zip(TEXTS, out, strict=True)}
        assert got == dict.fromkeys(TEXTS, ("Hello", "Hello", "stop"))

    async def test_tool_calls_arrive_through_the_helper(self, a: Upstream, node: Node) -> None:
        for items in CALLS.values():
            a.stream(*items, repeat=2)

        loose = {**WEATHER_TOOL, "function": {**WEATHER_TOOL["function"], "strict": False}}

        async with serving(over(a)) as running:
            out = await node(running, "streams", count=len(CALLS), body={"tools": [loose]})

        for name, one in zip(CALLS, out, strict=True):
            calls = one["choice"]["message"]["tool_calls"]
            assert [(call["id"], call["type"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
                ("call_1", "function", "get_weather", ARGUMENTS)
            ], name
            assert one["choice"]["finish_reason"] == "tool_calls", name


class TestTools:
    async def test_the_stream_helper_reads_two_calls(self, a: Upstream, node: Node) -> None:
        other = tool_call("get_weather", '{"city":"Rome"}', id="call_2", index=1)
        a.stream(role(), chunk({"tool_calls": [CALL]}), chunk({"tool_calls": [other]}), finish("tool_calls"), "[DONE]")

        async with serving(over(a)) as running:
            out = await node(running, "tools_stream", tools=[WEATHER_TOOL])

        assert out["done"] == [[0, "get_weather", ARGUMENTS], [1, "get_weather", '{"city":"Rome"}']]
        assert [call["id"] for call in out["choice"]["message"]["tool_calls"]] == ["call_1", "call_2"]

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_run_tools_goes_through_deepseek(self, a: Upstream, node: Node, stream: bool) -> None:
        a.call(strict_deepseek(_weather(stream)))

        async with serving(over(a, adapter="deepseek")) as running:
            out = await node(running, "run_tools", stream=stream)

        assert out == {"content": "Sunny", "called": ["Paris"], "roles": ["user", "assistant", "tool", "assistant"]}
        assert len(a.requests) == 2

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_a_second_turn_that_lost_the_reasoning_is_accepted_by_deepseek(self, a: Upstream, node: Node, stream: bool) -> None:
        a.call(strict_deepseek(_weather(stream)))

        async with serving(over(a, adapter="deepseek")) as running:
            out = await node(running, "lost_reasoning", stream=stream, tools=[WEATHER_TOOL])

        assert out == {"reasoning": "I need it", "content": "Sunny"}
        assert len(a.requests) == 2
        assert a.requests[1].json["messages"][1]["reasoning_content"] == "I need it"  # remembered by the id of the call


def _weather(stream: bool) -> list[Any]:
    """DeepSeek asks for the weather, then tells it."""
    if stream:
        return [events(role(), thought("I need it"), chunk({"tool_calls": [CALL]}), finish("tool_calls"), "[DONE]"), events(*answer("Sunny"))]
    return [plain(completion(None, calls=[CALL], reasoning_content="I need it")), plain(completion("Sunny"))]


REFUSALS: dict[str, tuple[Any, str, str, int]] = {
    "refused": (refused("Invalid value: 'wizard'.", 400, "invalid_value"), "BadRequestError", "Invalid value: 'wizard'", 1),
    "rate-limit": (refused("slow down", 429), "RateLimitError", "slow down", 3),
    "no-balance": (refused("Insufficient Balance", 402), "RateLimitError", "Insufficient Balance", 1),
    "wrong-key": (refused("Incorrect API key provided", 401), "InternalServerError", "Incorrect API key", 1),
    "500": (refused("boom", 500), "InternalServerError", "boom", 3),
    "error-in-a-200": (plain({"error": {"message": "boom", "code": 500}}), "InternalServerError", "boom", 3),
    "html": (plain("<html>hello</html>"), "InternalServerError", "the answer is an HTML page", 3),
}
"""By the model that is asked for: what the provider says; the error's class, words and number of requests."""


class TestFailures:
    async def test_the_class_the_words_and_the_number_of_requests(self, a: Upstream, node: Node) -> None:
        a.call(lambda seen: REFUSALS[seen.json["model"]][0])

        async with serving(over(a)) as running:
            out = await node(running, "failure", runs=[{"body": {"model": f"a/{name}"}} for name in REFUSALS])

        for (name, (_, error, says, requests)), one in zip(REFUSALS.items(), out, strict=True):
            assert one["failure"]["name"] == error, name
            assert says in one["failure"]["message"], name
            assert one["sent"] == requests, name
            assert len([seen for seen in a.requests if seen.json["model"] == name]) == requests, name

    async def test_a_wrong_key_and_an_unknown_model(self, a: Upstream, node: Node) -> None:
        runs: list[Any] = [{"options": {"apiKey": "wrong-key-123456"}}, {"body": {"model": "nothing-of-that-name"}}]
        async with serving(over(a)) as running:
            key, model = await node(running, "failure", runs=runs)

        assert (key["failure"]["name"], key["failure"]["status"], key["failure"]["code"], key["sent"]) == ("AuthenticationError", 401, "invalid_api_key", 1)
        assert key["failure"]["requestID"].startswith("req_")
        assert "wrong-key" not in str(key)
        assert (model["failure"]["name"], model["failure"]["code"], model["failure"]["param"], model["sent"]) == (
            "NotFoundError",
            "model_not_found",
            "model",
            1,
        )
        assert a.requests == []

    async def test_a_stream_that_breaks_off_is_an_api_error_with_our_message(self, a: Upstream, b: Upstream, node: Node) -> None:
        a.stream(role(), delta("Hel"), CUT)

        async with serving(over(a, b)) as running:
            [out] = await node(running, "failure", runs=[{"body": {"stream": True}}])

        failure = out["failure"]
        assert (failure["name"], failure["code"], failure["type"]) == ("APIError", "stream_interrupted", "upstream_error")
        assert "the answer of a broke off" in failure["message"]
        assert (out["text"], out["sent"], b.requests) == ("Hel", 1, [])

    async def test_a_failure_after_a_keep_alive_comment_is_an_event(self, a: Upstream, node: Node) -> None:
        a.reply({"error": {"message": "boom"}}, status=500, delay=0.3)

        async with serving(yaml({"a": a.url}, server=f"{KEYED}\nkeepalive: 50ms")) as running:
            [out] = await node(running, "failure", runs=[{"body": {"stream": True}}])

        failure = out["failure"]
        assert (failure["name"], failure["code"], out["sent"]) == ("APIError", "providers_exhausted", 1)
        assert [attempt["provider"] for attempt in failure["attempts"]] == ["a"]
