"""The registry of an agent's tools (H8 to H13, H16, H17, H23, X9)."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, ClassVar

import pytest

from gateway.agent.arguments import BadArguments
from gateway.agent.tools import Context, Observation, Tool, ToolParameter
from gateway.agent.tools.chain import ToolChain
from gateway.agent.tools.function import FunctionTool
from gateway.agent.tools.pool import Pool
from gateway.agent.tools.registry import NO_TOOLS, Registry
from gateway.chat import dumps


class Echo(Tool):
    description = "Say it again"

    def __init__(self, name: str = "echo") -> None:
        self.name = name

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("input", "string", "what")]

    def run(self, params: dict[str, Any]) -> str:
        return f"echo {params['input']}"


class Thinking(Tool):
    name = "sequential_thinking"
    description = "Think"
    aliases: ClassVar[tuple[str, ...]] = ("thinking", "sequentialthinking")
    lenient: ClassVar[bool] = True

    async def call(self, arguments: Any, context: Context) -> Observation:
        return Observation(repr(arguments))


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def test_tools_and_functions_are_told_apart_h10_h11() -> None:
    registry = Registry([Echo(), add])
    assert (registry.is_tool("echo"), registry.is_function("echo")) == (True, False)
    assert (registry.is_tool("add"), registry.is_function("add")) == (False, True)
    assert (registry.is_tool("none"), registry.is_function("none")) == (False, False)
    assert len(registry) == 2
    assert "add" in registry
    assert [tool.name for tool in registry] == ["add", "echo"]
    assert not Registry()


def test_a_taken_name_is_refused_unless_replace_says_so_h10() -> None:
    registry = Registry([Echo()])
    with pytest.raises(ValueError, match='"echo" already; replace=True'):
        registry.add(lambda: None, name="echo")
    assert registry.is_tool("echo")
    registry.add(lambda: None, name="echo", replace=True)
    assert registry.is_function("echo")


def test_a_tool_can_be_taken_out_h12() -> None:
    registry = Registry([Echo(), Thinking()])
    assert registry.unregister("sequential_thinking") is True
    assert registry.unregister("sequential_thinking") is False
    assert registry.find("thinking") is None
    registry.add(Echo("thinking"))
    registry.clear()
    assert len(registry) == 0


async def test_an_unknown_name_is_a_value_error_h11() -> None:
    registry = Registry([Echo(), add])
    with pytest.raises(ValueError, match='there is no tool "ecko"; did you mean "echo"\\? The tools are: add, echo'):
        registry.get("ecko")
    with pytest.raises(ValueError, match='there is no tool "zzzzz"\\. The tools are'):
        await registry.execute("zzzzz", {})
    with pytest.raises(ValueError, match='there is no tool "x": no tools are available'):
        await Registry().execute("x", {})


def test_descriptions_have_a_line_for_each_tool_h13() -> None:
    registry = Registry([Echo(), add])
    assert registry.descriptions() == "- add: Add two numbers.\n- echo: Say it again"
    assert Registry().descriptions() == NO_TOOLS == "No tools are available."


def test_the_manual_says_what_each_tool_takes() -> None:
    def now() -> str:
        """The time."""
        return "12:00"

    assert Registry([Echo(), add, now]).manual() == (
        "- add: Add two numbers. Parameters: a (integer, required), b (integer)\n"
        "- echo: Say it again Parameters: input (string, required: what)\n"
        "- now: The time. No parameters."
    )
    assert Registry().manual() == NO_TOOLS


def test_a_description_of_several_lines_stays_on_one() -> None:
    def f() -> None:
        """One.

        Two.
        """

    assert Registry([f]).descriptions() == "- f: One. Two."


def test_schemas_are_the_same_bytes_in_whatever_order_tools_came_x9() -> None:
    tools = [Echo("b"), Echo("a"), FunctionTool(add), Thinking()]
    payloads = {dumps(Registry(order).schemas()) for order in itertools.permutations(tools)}
    assert len(payloads) == 1
    assert [one["function"]["name"] for one in Registry(tools).schemas()] == ["a", "add", "b", "sequential_thinking"]


def test_a_tool_is_found_under_its_aliases_but_advertised_once_t1() -> None:
    registry = Registry([Thinking()])
    for name in ("sequential_thinking", "thinking", "sequentialthinking", "functions.thinking", "SequentialThinking"):
        assert registry.get(name).name == "sequential_thinking"
    assert [one["function"]["name"] for one in registry.schemas()] == ["sequential_thinking"]


def test_a_name_wins_over_an_alias() -> None:
    registry = Registry([Thinking(), Echo("thinking")])
    assert registry.get("thinking").description == "Say it again"


def test_an_alias_that_another_tool_has_is_refused() -> None:
    other = FunctionTool(add, aliases=("thinking",))
    with pytest.raises(ValueError, match='"thinking" of tool "add" is a name of tool "sequential_thinking"'):
        Registry([Thinking(), other])


def test_a_spelling_that_two_tools_share_is_nobodys() -> None:
    registry = Registry([Echo("web_search"), Echo("websearch")])
    assert registry.get("web_search").name == "web_search"
    assert registry.find("WebSearch") is None


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ü", "x" * 65, "<lambda>"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a tool"):
        Registry([Echo(name)])


def test_what_is_neither_tool_nor_function_is_refused() -> None:
    with pytest.raises(ValueError, match="not a str"):
        Registry(["echo"])  # type: ignore[list-item]


def test_adding_a_function_gives_its_tool_h23() -> None:
    registry = Registry()
    assert len(registry) == 0
    made = registry.add(add, description="sums")
    assert (made.name, made.description) == ("add", "sums")
    assert len(registry) == 1


async def test_execute_takes_objects_json_and_plain_text_h21_h27() -> None:
    registry = Registry([Echo(), add, Thinking()])
    assert (await registry.execute("echo", "hello")).text == "echo hello"
    assert (await registry.execute("echo", {"input": "hello"})).text == "echo hello"
    assert (await registry.execute("add", '{"a": "2"}')).text == "3"
    assert (await registry.execute("add", "a=2, b=3")).text == "5"
    assert (await registry.execute("thinking", {"thoughtNumber": "1"})).text == "{'thoughtNumber': '1'}"
    with pytest.raises(BadArguments, match="missing field"):
        await registry.execute("add")


async def test_what_a_tool_raises_is_raised() -> None:
    def fails() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await Registry([fails]).execute("fails")


# ---- chain and pool ----


async def test_a_chain_gives_each_step_what_the_ones_before_found_h16() -> None:
    chain = ToolChain("twice").step("echo", "{input}!", "first").step("echo", {"input": "{first} and {input}"}, "second")
    assert await chain.execute(Registry([Echo()]), "hi {x}") == "echo echo hi {x}! and hi {x}"


async def test_a_chain_knows_its_faults_before_it_runs_h16() -> None:
    ran: list[str] = []
    chain = ToolChain("c").step("note", "{input}", "a").step("gone", "{a}", "b")
    with pytest.raises(ValueError, match='no tool "gone"'):
        await chain.execute(Registry([FunctionTool(lambda q: ran.append(q), name="note")]), "x")
    assert ran == []
    with pytest.raises(ValueError, match=r'step 2: there is no {frist}; did you mean "first"\?'):
        ToolChain("c").step("echo", "{input}", "first").step("echo", "{frist}", "b")
    with pytest.raises(ValueError, match="has no steps"):
        await ToolChain("c").execute(Registry(), "x")


async def test_values_in_a_json_step_need_no_escapes_h16() -> None:
    chain = ToolChain("c").step("echo", '{"input": "<{input}>"}', "a")
    assert await chain.execute(Registry([Echo()]), 'say "hi"\n') == 'echo <say "hi"\n>'


async def test_a_pool_runs_four_at_a_time_and_keeps_the_order_h17() -> None:
    now, most = 0, 0

    async def counted(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02 if n == 0 else 0.005)
        now -= 1
        return n

    async with Pool(Registry([counted, Echo()])) as pool:
        seen = await pool.execute_all([*(("counted", {"n": n}) for n in range(9)), ("echo", "hi")])
    assert [one.text for one in seen] == [*map(str, range(9)), "echo hi"]
    assert most == 4


async def test_a_pool_refuses_unknown_tools_and_shows_failures_in_their_place_h17() -> None:
    def fails() -> None:
        raise LookupError("no")

    async with Pool(Registry([fails, Echo()])) as pool:
        with pytest.raises(ValueError, match='no tool "gone"'):
            await pool.execute_all([("echo", "x"), ("gone", None)])
        with pytest.raises(ValueError, match='no tool "gone"'):
            await pool.execute("gone")
        with pytest.raises(LookupError):
            await pool.execute("fails")
        seen = await pool.execute_all([("fails", None), ("echo", {}), ("echo", "x")])
    assert [one.ok for one in seen] == [False, False, True]
    assert seen[0].text == "Error: LookupError: no"
    assert seen[1].text.startswith('Error: missing field: "input"')


async def test_a_closed_pool_has_no_call_running_and_takes_none_h17() -> None:
    done: list[int] = []

    async def late() -> None:
        await asyncio.sleep(0.02)
        done.append(1)

    pool = Pool(Registry([late]))
    task = asyncio.create_task(pool.execute("late"))
    await asyncio.sleep(0)
    await pool.close()
    assert done == [1]
    with pytest.raises(RuntimeError, match="closed"):
        await pool.execute("late")
    await task
