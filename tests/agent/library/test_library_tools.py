"""Tools, registry, calculator, chain and pool by their public names (H8 to H17)."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

import gateway.agent
from gateway.agent import Calculator, Pool, Registry, SequentialThinking, Tool, ToolChain, ToolParameter, Weather, WebSearch


class Tags(Tool):
    name, description = "tags", "Tags a text."

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("text", "string", "what"), ToolParameter("names", "array", "which", required=False, default="all")]

    def run(self, params: dict[str, Any]) -> str:
        return str(params["text"])


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def test_a_tool_has_name_description_and_parameters() -> None:
    """H8"""
    one, two = Tags().get_parameters()
    assert (one.name, one.type, one.description, one.required, one.default) == ("text", "string", "what", True, None)
    assert (two.required, two.default) == (False, "all")
    assert Tags().run({"text": "x"}) == "x"


def test_its_schema_is_openais() -> None:
    """H9: defaults in the description, array items are strings."""
    schema = Tags().to_openai_schema()
    parameters = schema["function"]["parameters"]
    assert (schema["type"], schema["function"]["name"], parameters["required"]) == ("function", "tags", ["text"])
    assert "all" in parameters["properties"]["names"]["description"]
    assert parameters["properties"]["names"]["items"] == {"type": "string"}


def test_a_registry_holds_tools_and_functions_under_names_of_their_own() -> None:
    """H10, H11"""
    registry = Registry([Tags(), add])
    assert (registry.is_tool("tags"), registry.is_function("tags")) == (True, False)
    assert (registry.is_tool("add"), registry.is_function("add")) == (False, True)
    assert (registry.is_tool("nobody"), registry.is_function("nobody")) == (False, False)
    with pytest.raises(ValueError, match="replace"):
        registry.add(add)
    registry.add(add, replace=True)


@pytest.mark.parametrize("tools", [(), (add,), (Tags(),)])
def test_an_unknown_name_is_a_value_error(tools: Any) -> None:
    """H11"""
    registry = Registry(tools)
    with pytest.raises(ValueError, match="nobody"):
        registry.get("nobody")
    with pytest.raises(ValueError, match="nobody"):
        asyncio.run(registry.execute("nobody", "x"))


def test_tools_can_be_taken_out() -> None:
    """H12"""
    registry = Registry([Tags(), add])
    assert registry.unregister("add")
    assert not registry.unregister("add")
    assert registry.names() == ["tags"]
    registry.add(add)


def test_the_descriptions_are_lines_and_a_fixed_text_without_tools() -> None:
    """H13"""
    assert Registry([Tags(), add]).descriptions() == "- add: Adds.\n- tags: Tags a text."
    assert Registry().descriptions() == Registry().descriptions() != ""


@pytest.mark.parametrize(
    ("expression", "value"),
    [("2 + 3", "5"), ("15 * 8 + 32", "152"), ("sqrt(16)", "4.0"), ("(3 + 5) * 2", "16"), ("100/4+7", "32.0"), ("-3", "-3"), ("2**5", "32")],
)
def test_the_calculator_calculates(expression: str, value: str) -> None:
    """H14"""
    assert asyncio.run(Registry([Calculator()]).execute("calculator", expression)).text == value


@pytest.mark.parametrize("expression", ["", "2 +", "__import__('os')", "unknown + 1", "1/0"])
def test_what_it_cannot_calculate_is_said_and_never_none(expression: str) -> None:
    """H14"""
    seen = asyncio.run(Calculator().call({"expression": expression}, gateway.agent.Context()))
    assert not seen.ok
    assert seen.text
    assert "None" not in seen.text


def test_a_built_in_tool_has_a_plain_form() -> None:
    """H8: `run(params)`, with and without a loop; what it keeps lives as long as the object (T19)."""
    thinking, thought = SequentialThinking(), {"thought": "a", "thought_number": 1, "total_thoughts": 2, "next_thought_needed": True}

    async def inside() -> str:
        return str(Calculator().run({"expression": "2 + 3"}))

    assert Calculator().run({"expression": "2 + 3"}) == asyncio.run(inside()) == "5"
    assert [json.loads(thinking.run(thought))["data"]["thought_history_length"] for _ in range(2)] == [1, 2]
    assert json.loads(SequentialThinking().run(thought))["data"]["thought_history_length"] == 1
    with pytest.raises(NotImplementedError, match="neither run nor call"):
        Tool().run({})


def test_a_search_needs_a_key_and_has_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """H15"""
    for name in ("TAVILY_API_KEY", "SERPAPI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="TAVILY_API_KEY"):
        WebSearch()
    monkeypatch.setenv("SERPAPI_API_KEY", "key")
    assert any(one.name == "query" for one in WebSearch().get_parameters())
    assert all(isinstance(one, ToolParameter) for one in Weather().get_parameters())


def test_a_chain_goes_from_step_to_step() -> None:
    """H16"""
    chain = ToolChain("sum").step("add", {"a": "{input}", "b": 1}, "more").step("tags", {"text": "it is {more}"}, "said")
    assert asyncio.run(chain.execute(Registry([Tags(), add]), "4")) == "it is 5"


async def test_a_pool_keeps_the_order_and_runs_four_at_once() -> None:
    """H17"""
    at_once, most = 0, 0

    def slow(n: int) -> int:
        """Slow."""
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.02)
        at_once -= 1
        return n

    async with Pool(Registry([slow, Tags()])) as pool:
        seen = await pool.execute_all([("slow", {"n": n}) for n in range(8)] + [("tags", {"text": "x"})])
        with pytest.raises(ValueError, match="nobody"):
            await pool.execute_all([("nobody", {})])
    assert [one.text for one in seen] == [*map(str, range(8)), "x"]
    assert most <= 4
    with pytest.raises(RuntimeError, match="closed"):
        await pool.execute("tags", {"text": "x"})


def test_every_public_name_is_there() -> None:
    assert [name for name in gateway.agent.__all__ if getattr(gateway.agent, name, None) is None] == []
    with pytest.raises(AttributeError, match="nobody"):
        gateway.agent.nobody  # noqa: B018 - what it raises
