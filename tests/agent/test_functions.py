"""Plain functions as tools: schema from type hints, words from the docstring (H8, H9, H23)."""

from __future__ import annotations

import asyncio
import enum
import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from gateway.agent.arguments import BadArguments
from gateway.agent.tools import Context, Observation, Tool, ToolParameter
from gateway.agent.tools.docstring import parse
from gateway.agent.tools.function import FunctionTool, load, tool
from gateway.errors import ConfigError, Overloaded


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    city: str
    zip: int | None = None


@dataclass
class Size:
    width: int


def book(city: str, nights: int = 1, *, colour: Literal["red", "blue"] = "red", tags: list[str] | None = None) -> str:
    """Book a room.

    Any day of the year.

    Args:
        city: where,
            as written on a map
        nights (int): how many nights

    Returns:
        what was booked
    """
    return f"{city} {nights} {colour} {tags}"


async def called(tool: Tool, /, **arguments: Any) -> str:
    return (await tool.call(arguments, Context())).text


# ---- schema ----


def test_the_schema_comes_from_hints_and_docstring_h9() -> None:
    made = FunctionTool(book)
    assert made.to_openai_schema() == {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book a room.\n\nAny day of the year.\n\nReturns:\n    what was booked",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "where, as written on a map"},
                    "nights": {"type": "integer", "default": 1, "description": "how many nights"},
                    "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
                },
                "required": ["city"],
            },
        },
    }


def test_a_tool_object_says_its_parameters_itself_h8_h9() -> None:
    class Old(Tool):
        name, description = "old", "An old tool"

        def get_parameters(self) -> list[ToolParameter]:
            return [ToolParameter("q", "string", "words"), ToolParameter("tags", "array", "labels", required=False, default="none")]

        def run(self, params: dict[str, Any]) -> str:
            return params["q"]

    assert Old().to_openai_schema()["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "q": {"type": "string", "description": "words"},
            "tags": {"type": "array", "description": "labels (default: none)", "items": {"type": "string"}},
        },
        "required": ["q"],
    }
    assert ToolParameter("a", "string", "b").required is True
    assert ToolParameter("a", "string", "b").default is None


def test_names_that_a_model_class_has_itself_can_be_arguments() -> None:
    def odd(schema: str, model_config: int, json: str, _private: bool, copy: str = "") -> str:
        return f"{schema}{model_config}{json}{_private}{copy}"

    made = FunctionTool(odd)
    assert list(made.parameters["properties"]) == ["schema", "model_config", "json", "_private", "copy"]
    assert made.run({"schema": "a", "model_config": 1, "json": "b", "_private": True}) == "a1bTrue"


def test_name_and_description_of_a_function_h23() -> None:
    def bare() -> None: ...

    assert FunctionTool(bare).name == "bare"
    assert FunctionTool(bare).description == "The function bare."
    assert FunctionTool(bare, name="other", description="does it").description == "does it"
    assert FunctionTool(functools.partial(book, nights=3)).description.startswith("Book a room.")


def test_hints_of_an_argument_win_over_the_docstring() -> None:
    def f(a: Annotated[int, "how many"], b: Annotated[str, Field(description="which", max_length=3)]) -> None:
        """Do.

        :param a: something else
        """

    assert FunctionTool(f).parameters["properties"] == {
        "a": {"type": "integer", "description": "how many"},
        "b": {"type": "string", "description": "which", "maxLength": 3},
    }


def test_functions_of_which_no_tool_can_be_made_say_why() -> None:
    def stars(*values: int) -> None: ...
    def odd(lock: threading.Lock) -> None: ...
    def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    for function, told in ((stars, r"\*values"), (odd, "no schema"), (unknown, "Nowhere")):
        with pytest.raises(ValueError, match=told):
            FunctionTool(function)
    with pytest.raises(ValueError, match="repeat is one of safe, never, ask"):
        FunctionTool(book, repeat="often")


# ---- calls ----


async def test_arguments_become_what_the_hints_say() -> None:
    def f(day: date, place: Place, size: Size, colour: Colour, unique: set[int]) -> str:
        assert isinstance(place, Place)
        return f"{day.year} {place.city} {size.width} {colour.name} {sorted(unique)}"

    given = {"day": "2026-11-30", "place": {"city": "Rome"}, "size": {"width": 3}, "colour": "red", "unique": [2, 1, 2]}
    assert await called(FunctionTool(f), **given) == "2026 Rome 3 RED [1, 2]"


async def test_defaults_are_the_functions_own() -> None:
    mark: list[int] = []

    def f(a: int, b: Any = mark, c: list[int] = mark) -> str:
        return f"{a} {b is mark and c is mark}"

    assert await called(FunctionTool(f), a=1) == "1 True"
    no_json = object()
    opaque = FunctionTool(lambda b=no_json: "x", name="f")
    assert opaque.parameters["properties"] == {"b": {}}


async def test_what_the_hints_do_not_take_is_bad_arguments() -> None:
    def f(day: date) -> str:
        return str(day)

    with pytest.raises(BadArguments, match='field "day"'):
        await called(FunctionTool(f), day="soon")


async def test_the_context_is_given_and_is_no_argument() -> None:
    def f(a: int, context: Context) -> str:
        return f"{a} {context.run_id}"

    def g(a: int, *, ctx: Context | None = None) -> str:
        return f"{a} {ctx.run_id if ctx else None}"

    for function in (f, g):
        made = FunctionTool(function)
        assert list(made.parameters["properties"]) == ["a"]
        assert (await made.call({"a": 1}, Context(run_id="run_1"))).text == "1 run_1"


async def test_positional_only_and_open_arguments() -> None:
    def f(a: int, b: int = 2, /, c: int = 3, **more: Any) -> str:
        return f"{a} {b} {c} {more}"

    made = FunctionTool(f)
    assert made.parameters["additionalProperties"] is True
    assert await called(made, a=1, d=4) == "1 2 3 {'d': 4}"
    assert await called(made, a=1, b=5, c=6) == "1 5 6 {}"


async def test_async_functions_objects_and_methods_are_called() -> None:
    async def f(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    class Adder:
        async def __call__(self, a: int) -> int:
            """Add one."""
            return a + 1

        def method(self, a: int) -> int:
            return a + 1

    for function in (f, Adder().method, functools.partial(f, a=1)):
        assert await called(FunctionTool(function, name="f"), a=1) == "2"
    assert await called(FunctionTool(Adder(), name="f"), a=1) == "2"
    assert FunctionTool(Adder(), name="f").description == "Add one."


async def test_a_sync_function_runs_in_a_thread_with_the_callers_context_variables() -> None:
    here: ContextVar[str] = ContextVar("here")
    here.set("yes")

    def f() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {here.get()}"

    assert await called(FunctionTool(f)) == "False yes"


async def test_functions_that_never_return_do_not_hold_up_the_loops_own_threads() -> None:
    stop = threading.Event()
    made = FunctionTool(lambda: stop.wait(20), name="waits")
    tasks = [asyncio.create_task(called(made)) for _ in range(40)]
    try:
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5) == "free"
    finally:
        stop.set()
    assert await asyncio.gather(*tasks) == ["true"] * 40


async def test_too_many_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.agent.tools.threads.MOST", 0)
    with pytest.raises(Overloaded):
        await called(FunctionTool(book), city="Rome")


@pytest.mark.parametrize("function", [lambda: next(iter(())), lambda: 1 / 0, lambda: [][1]])
async def test_what_a_function_raises_is_raised(function: Callable[[], Any]) -> None:
    with pytest.raises((RuntimeError, ZeroDivisionError, IndexError)):
        await asyncio.wait_for(called(FunctionTool(function, name="f")), 5)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "(the tool gave nothing back)"),
        (4.0, "4.0"),
        (True, "true"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        (Place(city="Rome"), '{"city":"Rome","zip":null}'),
        (Size(3), '{"width":3}'),
        ({1}, "[1]"),
        (b"text", "text"),
        (b"\xff", "_w=="),
        (float("nan"), "nan"),
        (2**70, str(2**70)),
        (Colour.RED, "red"),
    ],
)
async def test_results_become_text(value: Any, text: str) -> None:
    assert await called(FunctionTool(lambda: value, name="f")) == text


async def test_a_function_may_give_an_observation() -> None:
    seen = Observation("no", ok=False, data={"why": 1})
    assert await FunctionTool(lambda: seen, name="f").call({}, Context()) is seen


async def test_the_decorator_makes_a_tool_that_is_still_the_function() -> None:
    @tool
    def one(a: int) -> int:
        return a

    @tool(name="second", repeat="never", aliases=("zwei",), description="2")
    def two(a: int) -> int:
        return a

    assert isinstance(one, FunctionTool)
    assert one(3) == 3
    assert (one.name, one.repeat, one.aliases) == ("one", "safe", ())
    assert (two.name, two.repeat, two.aliases, two.description) == ("second", "never", ("zwei",), "2")
    assert Tool.repeat == "safe"


# ---- docstrings ----


@pytest.mark.parametrize(
    "text",
    [
        "Do it.\n\nArgs:\n    a: first\n    b (int, optional): second,\n        and more\n",
        "Do it.\n\nParameters\n----------\na : str\n    first\nb : int, optional\n    second,\n    and more\n",
        "Do it.\n\n:param a: first\n:param int b: second,\n    and more\n:type a: str\n:rtype: int\n",
        "Do it.\n\n参数：\n    a：first\n    b: second,\n       and more\n",
    ],
)
def test_every_way_of_writing_about_arguments(text: str) -> None:
    assert parse(text) == ("Do it.", {"a": "first", "b": "second, and more"})


def test_numpy_sections_after_the_parameters_stay() -> None:
    assert parse("Do it.\n\nParameters\n----------\na : int\n    first\n\nReturns\n-------\nint\n    sum") == (
        "Do it.\n\nReturns\n-------\nint\n    sum",
        {"a": "first"},
    )


def test_no_docstring() -> None:
    assert parse(None) == ("", {})


# ---- python:FILE:NAME ----


def _file(folder: Path, text: str) -> Path:
    path = folder / "tools.py"
    path.write_text(text)
    return path


async def test_a_function_of_a_file_is_loaded(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
        "def f(p: P) -> int:\n    'Give x.'\n    return p.x\n",
    )
    made = load(path, "f")
    assert (made.name, made.description) == ("f", "Give x.")
    assert await called(made, p={"x": 3}) == "3"


async def test_tools_of_a_file_are_loaded(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "from gateway.agent.tools import Tool\nfrom gateway.agent.tools.function import tool\n"
        "class Mine(Tool):\n    name = 'mine'\n    def run(self, params):\n        return 'm'\n\n"
        "ready = Mine()\n\n@tool(name='fn', repeat='ask')\ndef f():\n    return 'f'\n",
    )
    assert await called(load(path, "Mine")) == "m"
    assert load(path, "ready").name == "mine"
    assert (load(path, "f").name, load(path, "f").repeat) == ("fn", "ask")


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("def f(:\n", "f", ":1:1: "),
        ("\n\nraise KeyError('config')\n", "f", ":3:1: KeyError: 'config'"),
        ("def search(): ...\n", "serch", 'there is no serch in it; did you mean "search"?'),
        ("f = 3\n", "f", "f is no function, it is a int"),
        ("\ndef f(*a): ...\n", "f", ":2:1: f: *a has no name"),
        ("from gateway.agent.tools import Tool\nclass T(Tool):\n    def __init__(self, x): ...\n", "T", "T: TypeError"),
    ],
)
def test_a_fault_of_the_file_names_it(tmp_path: Path, text: str, name: str, told: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path, name)
    assert str(caught.value).startswith(str(path))
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.py.*there is no such file"):
        load(tmp_path / "gone.py", "f")
