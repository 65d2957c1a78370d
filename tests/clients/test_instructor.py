"""instructor: forms as the arguments of a forced tool and as JSON schemas, and its second request when a form was filled in wrongly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from children import Worker
from deepseek import memory, reasoning_given_back
from openai_client import over, strict_deepseek
from running import Running, serving
from upstream_double import CUT, Upstream, answer, chunk, completion, finish, plain, role, tool_call

TOOLS, JSON = "instructor tools", "instructor json"
Ask = Callable[[Running, str, str], Awaitable[Any]]


def weather_in(city: str) -> Any:
    return tool_call("Weather", f'{{"city":"{city}"}}')


@pytest.fixture
def ask(worker: Callable[[str, str], Worker]) -> Ask:
    return lambda running, client, scenario: worker("agents", "run_instructor.py").ask(running, client, scenario)


async def test_a_form_is_the_arguments_of_a_tool(a: Upstream, ask: Ask) -> None:
    a.reply(completion(None, calls=[weather_in("Paris")]))

    async with serving(over(a)) as running:
        out = await ask(running, TOOLS, "plain")

    assert (out["failure"], out["pieces"]) == (None, ["Paris"])
    assert a.requests[0].json["tool_choice"] == {"type": "function", "function": {"name": "Weather"}}


async def test_a_form_is_a_schema_for_the_text(a: Upstream, ask: Ask) -> None:
    a.reply(completion('{"city":"Paris"}'))

    async with serving(over(a)) as running:
        out = await ask(running, JSON, "plain")

    assert (out["failure"], out["pieces"]) == (None, ["Paris"])
    assert a.requests[0].json["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("client", [TOOLS, JSON])
async def test_a_form_is_filled_in_while_it_streams(a: Upstream, ask: Ask, client: str) -> None:
    rest = chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'is"}'}}]})
    call = chunk({"tool_calls": [tool_call("Weather", '{"city":"Par')]})
    a.stream(*([role(), call, rest, finish("tool_calls"), "[DONE]"] if client == TOOLS else answer('{"city":"Par', 'is"}')))

    async with serving(over(a)) as running:
        out = await ask(running, client, "stream")

    assert out["failure"] is None
    assert out["pieces"][-1] == "Paris"


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
async def test_a_wrong_form_is_asked_for_again_and_deepseek_takes_the_turn_without_its_reasoning(a: Upstream, ask: Ask, remembered: bool) -> None:
    first = plain(completion(None, calls=[weather_in("Rome")], reasoning_content="I need it"))
    a.call(strict_deepseek([first, plain(completion(None, calls=[weather_in("Paris")], reasoning_content="Ah"))]))

    async with serving(over(a, adapter="deepseek" + memory(remembered))) as running:
        out = await ask(running, TOOLS, "plain")

    assert (out["failure"], out["pieces"], out["called"]) == (None, ["Paris"], ["Rome", "Paris"])
    assert [seen.json["tool_choice"] for seen in a.requests] == ["auto"] * 2  # thinking, DeepSeek refuses a forced one
    assert reasoning_given_back(a) == ("I need it" if remembered else "")


@pytest.mark.parametrize("client", [TOOLS, JSON])
async def test_when_no_provider_answers_the_exception_has_our_message(a: Upstream, ask: Ask, client: str) -> None:
    a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)

    async with serving(over(a)) as running:
        out = await ask(running, client, "plain")

    assert out["failure"]["name"] == "InstructorRetryException"
    assert "all 1 providers failed" in out["failure"]["message"]


async def test_a_stream_that_breaks_off_is_an_error(a: Upstream, ask: Ask) -> None:
    a.stream(role(), chunk({"tool_calls": [tool_call("Weather", '{"city":"Paris"')]}), CUT)

    async with serving(over(a)) as running:
        out = await ask(running, TOOLS, "stream")

    assert "broke off" in out["failure"]["message"]
