"""The built-in tools through the registry and the calls of a turn, as a model calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gateway.agent.calls import call_all
from gateway.agent.tools import Context, Observation
from gateway.agent.tools.builtin import build
from gateway.agent.tools.registry import Registry
from gateway.chat import loads
from gateway.config import agents as config


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: Any


def everything() -> Registry:
    registry = Registry()
    for name in config.TOOLS:
        registry.add(build(config.Tool(name), {"TAVILY_API_KEY": "k"}))
    return registry


async def made(*calls: tuple[str, Any], session: dict[str, Any] | None = None) -> list[Observation]:
    state: dict[str, Any] = {} if session is None else session
    wanted = [Call(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    return await call_all(wanted, everything(), lambda call: Context(run_id="r", call_id=call.id, session=state))


async def test_all_three_names_of_the_thinking_tool_lead_to_one_history() -> None:
    """T1, T19, T24"""
    names = ("sequential_thinking", "thinking", "sequentialthinking")
    results = [loads(one.text) for one in await made(*((name, '{"thought": "a"}') for name in names))]
    assert [one["data"]["thought_history_length"] for one in results] == [1, 2, 3]


async def test_what_a_model_writes_reaches_the_thinking_tool_as_it_is() -> None:
    """T6, T30, B139"""
    good = '{"thought": "a", "thoughtNumber": "1", "totalThoughts": "3", "nextThoughtNeeded": "false"}'
    results = [loads(one.text) for one in await made(("thinking", good), ("thinking", '{"thought": "a", "thought_number": 0}'), ("thinking", "!!"))]
    assert [one["success"] for one in results] == [True, False, False]
    assert results[0]["data"]["next_thought_needed"] is False
    assert "thought_number" in results[1]["error"]
    assert "error" in results[2]


async def test_a_turn_may_think_write_its_list_and_calculate_at_once() -> None:
    """T29, X13"""
    session: dict[str, Any] = {}
    calls = [
        ("todo_write", '{"todos": ["a"]}'),
        ("thinking", '{"thought": "b"}'),
        ("calculator", '{"expression": "9**9**9"}'),
        ("calculate", '{"expression": "6*7"}'),
    ]
    seen = await made(*calls, session=session)
    assert [one.ok for one in seen] == [True, True, False, True]
    assert seen[3].text == "42"
    assert session["todo_write"]["todos"] == [{"content": "a", "status": "pending"}]


@pytest.mark.parametrize(
    ("name", "arguments"), [("fetch", '{"url": "http://169.254.169.254/"}'), ("weather", "{}"), ("attractions", '{"town": 1}'), ("web_search", "{")]
)
async def test_a_call_that_cannot_work_is_an_observation(name: str, arguments: str) -> None:
    """H15, B129, B131"""
    (seen,) = await made((name, arguments))
    assert not seen.ok
    assert seen.text.startswith("Error: ")


def test_the_payload_is_sorted_by_name_and_the_same_bytes_every_time() -> None:
    """X9"""
    schemas = everything().schemas()
    assert [one["function"]["name"] for one in schemas] == sorted(config.TOOLS)
    assert schemas == everything().schemas()
