"""LangChain, pydantic-ai, the OpenAI Agents SDK and the Vercel AI SDK: the same scenarios, each on every endpoint that it can use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from children import Worker
from deepseek import deepseek, reasoning_given_back
from openai_client import over
from running import Running, serving
from upstream_double import CUT, Upstream, answer, completion, delta, role, tool_call

CALL = tool_call("get_weather", '{"city":"Paris"}')
TOOLS = ("tools", "tools_stream")
Ask = Callable[[Running, str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Client:
    """`failure` is what its user must catch when no provider answered; `echoes`: the scenarios in which it gives the reasoning back by itself."""

    name: str
    group: str
    script: str
    failure: str
    echoes: tuple[str, ...]


CLIENTS = [
    Client("ChatOpenAI", "langchain", "run_langchain.py", "OpenAIAPIError", echoes=()),
    Client("ChatOpenAI responses", "langchain", "run_langchain.py", "OpenAIAPIError", echoes=TOOLS),
    Client("ChatDeepSeek", "langchain", "run_langchain.py", "OpenAIAPIError", echoes=()),
    Client("pydantic-ai", "agents", "run_pydantic_ai.py", "ModelHTTPError", echoes=TOOLS),
    Client("pydantic-ai responses", "agents", "run_pydantic_ai.py", "ModelHTTPError", echoes=()),
    Client("openai-agents", "agents", "run_openai_agents.py", "InternalServerError", echoes=()),
    Client("openai-agents responses", "agents", "run_openai_agents.py", "InternalServerError", echoes=TOOLS),
    Client("ai openai.chat", "node", "run_vercel.mjs", "APICallError", echoes=()),
    Client("ai openai", "node", "run_vercel.mjs", "APICallError", echoes=TOOLS),
    Client("ai openai-compatible", "node", "run_vercel.mjs", "APICallError", echoes=TOOLS),
    Client("ai deepseek", "node", "run_vercel.mjs", "APICallError", echoes=TOOLS),
    Client("ai anthropic", "node", "run_vercel.mjs", "APICallError", echoes=("tools",)),  # a streamed block without a signature is dropped
]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.fixture
def ask(client: Client, worker: Callable[[str, str], Worker]) -> Ask:
    """`await ask(running, "plain")` runs one scenario with the client."""

    async def asked(running: Running, scenario: str) -> Any:
        return await worker(client.group, client.script).ask(running, client.name, scenario)

    return asked


async def test_a_plain_answer(a: Upstream, client: Client, ask: Ask) -> None:
    async with serving(over(a.reply(completion("Hello")))) as running:
        out = await ask(running, "plain")

    assert (out["pieces"], out["failure"]) == (["Hello"], None)
    assert len(a.requests) == 1


async def test_a_stream_arrives_in_pieces(a: Upstream, client: Client, ask: Ask) -> None:
    a.stream(*answer("Hel", "lo"))

    async with serving(over(a)) as running:
        out = await ask(running, "stream")

    assert (out["pieces"], out["failure"]) == (["Hel", "lo"], None)
    assert a.requests[0].json["stream"] is True


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
@pytest.mark.parametrize("scenario", TOOLS)
async def test_the_second_turn_of_a_tool_round_trip_is_accepted_by_deepseek(a: Upstream, client: Client, ask: Ask, scenario: str, remembered: bool) -> None:
    async with serving(deepseek(a, CALL, streamed=scenario == "tools_stream", remembered=remembered)) as running:
        out = await ask(running, scenario)

    assert (out["failure"], out["pieces"], out["called"]) == (None, ["Sunny"], ["Paris"])
    given = reasoning_given_back(a)
    if remembered or scenario in client.echoes:
        assert given == "I need it"
    else:
        assert given in ("", "I need it"), "some clients give back what they have in time, ai over Anthropic's dialect"


@pytest.mark.parametrize("scenario", ["plain", "stream"])
async def test_when_no_provider_answers_the_clients_own_exception_has_our_message(a: Upstream, b: Upstream, client: Client, ask: Ask, scenario: str) -> None:
    a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)
    b.reply({"error": {"message": "Insufficient Balance"}}, status=402)

    async with serving(over(a, b)) as running:
        out = await ask(running, scenario)

    assert out["failure"]["name"] == client.failure
    assert "all 2 providers failed" in out["failure"]["message"]
    assert (len(a.requests), len(b.requests)) == (1, 1)  # told that asking again is pointless


async def test_a_stream_that_breaks_off_is_never_a_clean_end(a: Upstream, client: Client, ask: Ask) -> None:
    a.stream(role(), delta("Hel"), CUT)

    async with serving(over(a)) as running:
        out = await ask(running, "stream")

    assert "broke off" in out["failure"]["message"]
    assert out["pieces"] == ["Hel"]
