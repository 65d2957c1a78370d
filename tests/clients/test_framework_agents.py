"""The same frameworks in front of an agent: to them it is a model like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from children import Worker
from openai_client import over
from running import Running, serving
from test_frameworks import CLIENTS, TOOLS, Client
from upstream_double import Upstream, completion, tool_call

AGENTS = """
agents:
  calc: {pattern: simple, model: m, tools: [calculator]}
"""
SUM = tool_call("calculator", '{"expression": "2+3"}', id="c1")
WEATHER = tool_call("get_weather", '{"city": "Paris"}', id="c2", index=1)
Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.fixture
async def world(a: Upstream) -> AsyncIterator[Running]:
    async with serving(over(a, more=AGENTS)) as running:
        yield running


@pytest.fixture
def ask(world: Running, client: Client, worker: Callable[[str, str], Worker]) -> Ask:
    """`await ask("plain", **headers)` runs one scenario with the client."""

    async def asked(scenario: str, **headers: str) -> Any:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await worker(client.group, client.script).ask(world, client.name, scenario, "agent/calc", given)

    return asked


@pytest.mark.parametrize("headers", [{}, {"x_agent_events": "v1"}], ids=["ordinary", "with events"])
@pytest.mark.parametrize("scenario", ["plain", "stream"])
async def test_what_the_agent_does_itself_disturbs_nobody(a: Upstream, ask: Ask, scenario: str, headers: dict[str, str]) -> None:
    a.reply(completion(None, calls=[SUM], reasoning_content="I add them.")).reply(completion("It is 5."))
    out = await ask(scenario, **headers)
    assert ("".join(out["pieces"]), out["failure"], out["called"]) == ("It is 5.", None, [])


@pytest.mark.parametrize("scenario", TOOLS)
async def test_a_tool_of_the_client_goes_there_and_back_beside_the_agents_own(a: Upstream, ask: Ask, scenario: str) -> None:
    a.reply(completion(None, calls=[SUM, WEATHER], reasoning_content="Both.")).reply(completion("Sunny, and 5."))
    out = await ask(scenario)
    assert ("".join(out["pieces"]), out["failure"], out["called"]) == ("Sunny, and 5.", None, ["Paris"])
    assert [m["content"] for m in a.requests[1].json["messages"] if m["role"] == "tool"] == ["5", "sunny"]


@pytest.mark.parametrize("scenario", ["plain", "stream"])
async def test_when_no_provider_answers_the_client_raises_and_has_our_message(a: Upstream, client: Client, ask: Ask, scenario: str) -> None:
    a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)
    out = await ask(scenario)
    assert scenario == "stream" or out["failure"]["name"] == client.failure
    assert "all 1 providers failed" in out["failure"]["message"]
    assert out["pieces"] == []
