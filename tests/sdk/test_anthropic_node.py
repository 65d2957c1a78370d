"""The newest `@anthropic-ai/sdk` for Node against a gateway over a provider that speaks chat."""

from __future__ import annotations

import pytest
from node_scripts import Node
from openai_client import over, strict_deepseek
from running import serving
from upstream_double import CUT, Upstream, answer, chunk, completion, delta, events, finish, plain, role, thought, tool_call

pytestmark = pytest.mark.node

TOOL = {"name": "get_weather", "description": "The weather in a city", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = tool_call("get_weather", '{"city":"Paris"}')


async def test_a_plain_answer_and_a_stream_in_pieces(a: Upstream, node: Node) -> None:
    a.reply(completion("Hello")).stream(*answer("Hel", "lo", usage_chunk=True))

    async with serving(over(a)) as running:
        whole = await node(running, "anthropic")
        streamed = await node(running, "anthropic", stream=True)

    for out in (whole, streamed):
        assert (out["failure"], out["content"][-1]["text"]) == (None, "Hello")
        assert (out["usage"]["input_tokens"], out["usage"]["output_tokens"]) == (5, 3)
    assert streamed["pieces"] == ["Hel", "lo"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("lost", [False, True], ids=["with thinking", "lost"])
async def test_deepseek_accepts_the_second_turn(a: Upstream, node: Node, stream: bool, lost: bool) -> None:
    whole = [plain(completion(None, calls=[CALL], reasoning_content="I need it")), plain(completion("Sunny"))]
    pieces = [events(role(), thought("I need it"), chunk({"tool_calls": [CALL]}), finish("tool_calls"), "[DONE]"), events(*answer("Sunny"))]
    a.call(strict_deepseek(pieces if stream else whole))

    async with serving(over(a, adapter="deepseek")) as running:
        out = await node(running, "anthropic", stream=stream, lost=lost, tools=[TOOL])

    assert (out["failure"], out["content"][0]["text"], len(a.requests)) == (None, "Sunny", 2)
    assert a.requests[1].json["messages"][1]["reasoning_content"] == "I need it"


async def test_when_no_provider_answers_the_error_has_our_message(a: Upstream, node: Node) -> None:
    a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)

    async with serving(over(a)) as running:
        out = await node(running, "anthropic")

    assert (out["failure"]["name"], out["failure"]["status"], len(a.requests)) == ("InternalServerError", 502, 1)
    assert "all 1 providers failed" in out["failure"]["message"]
    assert out["failure"]["requestID"].startswith("req_")


async def test_a_stream_that_breaks_off_is_an_error_with_our_message(a: Upstream, node: Node) -> None:
    a.stream(role(), delta("Hel"), CUT)

    async with serving(over(a)) as running:
        out = await node(running, "anthropic", stream=True)

    assert out["failure"]["name"] == "APIError"
    assert "the answer of a broke off" in out["failure"]["message"]
    assert out["pieces"] == ["Hel"]
