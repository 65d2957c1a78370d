"""The cases of other projects' bugs once more, with a real provider's bytes below and a real client above."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from running import Running, serving, yaml
from upstream_double import DONE, RESET, Upstream, chunk, completion, delta, finish, role, tool_call

TOOLS = '''
from pathlib import Path


def now() -> str:
    """The time."""
    return "12:00"


def write(path: str, content: str) -> str:
    """Writes a file."""
    with Path(__file__).with_name("written").open("a") as file:
        file.write(f"{path}={content};")
    return "ok"


def get_weather(city: str) -> str:
    """The weather."""
    return "sunny"


def get_time(tz: str) -> str:
    """The time in a zone."""
    return "noon"


def get_user(id: int) -> str:
    """A user."""
    raise ValueError(f"no user {id}")
'''
NAMES = ("now", "write", "get_weather", "get_time", "get_user")


@pytest.fixture
async def world(a: Upstream, tmp_path: Path) -> AsyncIterator[Running]:
    (tmp_path / "tools.py").write_text(TOOLS)
    tools = ", ".join(f'"python:{tmp_path}/tools.py:{name}"' for name in NAMES)
    agents = "\n".join(f"  {pattern}: {{pattern: {pattern}, model: m, tools: [{tools}]}}" for pattern in ("simple", "react", "plan_and_solve"))
    async with serving(yaml({"a": a.url}, more=f"agents:\n{agents}")) as running:
        yield running


async def answer(world: Running, pattern: str = "simple") -> str:
    got = await world.chat({"model": f"agent/{pattern}", "messages": [{"role": "user", "content": "q"}]})
    assert got.status_code == 200, got.text
    return str(got.json()["choices"][0]["message"]["content"])


def fragments(*parts: dict[str, Any]) -> list[Any]:
    return [role(), *(chunk({"tool_calls": [part]}) for part in parts), finish("tool_calls"), DONE]


def part(index: int | None, arguments: str, *, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments, **({} if name is None else {"name": name})}
    head = {} if index is None else {"index": index}
    return {**head, **({} if id is None else {"id": id, "type": "function"}), "function": function}


def called(a: Upstream) -> list[tuple[str, str, Any, str]]:
    """Id, name, arguments and result of each call, as they stand in the latest request."""
    messages = a.requests[-1].json["messages"]
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    every = [call for message in messages for call in message.get("tool_calls") or ()]
    return [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]), results[call["id"]]) for call in every]


WEATHER, TIME = ("c0", "get_weather", {"city": "P"}, "sunny"), ("c1", "get_time", {"tz": "J"}, "noon")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [
                part(0, "", id="c0", name="get_weather"), part(1, "", id="c1", name="get_time"),
                part(0, '{"city":'), part(1, '{"tz":'), part(0, '"P"}'), part(1, '"J"}'),
            ],
            [WEATHER, TIME],
            id="B015 interleaved",
        ),
        pytest.param(
            [part(None, '{"city":"P"}', id="c0", name="get_weather"), part(None, '{"tz"', id="c1", name="get_time"), part(None, ':"J"}')],
            [WEATHER, TIME],
            id="B017 without index",
        ),
        pytest.param(
            [part(0, "", id="t-aa62", name="get_time"), part(0, '{"tz"', id="t-aa62", name="get_time"), part(0, ':"J"}', id="t-aa62", name="get_time")],
            [("t-aa62", "get_time", {"tz": "J"}, "noon")],
            id="B019 repeated heads",
        ),
        pytest.param(
            [part(0, '{"city":"\\u5', id="c0", name="get_weather"), part(0, "317\\ud83d\\u"), part(0, 'de00"}')],
            [("c0", "get_weather", {"city": "北😀"}, "sunny")],
            id="B025 cut inside an escape",
        ),
    ],
)  # fmt: skip
async def test_calls_in_whatever_pieces_they_come(world: Running, a: Upstream, parts: list[dict[str, Any]], expected: list[Any]) -> None:
    a.stream(*fragments(*parts)).stream(role(), delta("done"), finish(), DONE)
    assert await answer(world) == "done"
    assert called(a) == expected


async def test_a_call_without_arguments(world: Running, a: Upstream) -> None:
    """B021, B023: "" is {}, and a finish reason `stop` ends nothing."""
    a.reply({**completion(None, calls=[tool_call("now", "", id="c0")]), "x": 1})
    a.reply(completion("noon"))
    assert await answer(world) == "noon"
    assert called(a) == [("c0", "now", {}, "12:00")]


async def test_a_call_in_a_turn_that_says_stop(world: Running, a: Upstream) -> None:
    """B023."""
    a.stream(role(), chunk({"tool_calls": [tool_call("now", "{}", id="c0")]}), finish("stop"), DONE)
    a.reply(completion("done"))
    assert await answer(world) == "done"
    assert called(a) == [("c0", "now", {}, "12:00")]


async def test_an_unknown_tool_and_a_tool_that_raises(world: Running, a: Upstream) -> None:
    """B127, B129: HTTP 200; no traceback."""
    a.reply(completion(None, calls=[tool_call("search_files", "{}", id="c0"), tool_call("get_user", '{"id":99}', id="c1", index=1)]))
    a.reply(completion("done"))
    assert await answer(world) == "done"
    (*_, unknown), (*_, raised) = called(a)
    assert "search_files" in unknown
    assert all(name in unknown for name in NAMES)
    assert raised == "Error: ValueError: no user 99"


async def test_a_stream_that_ends_inside_a_call(world: Running, a: Upstream, tmp_path: Path) -> None:
    """B149: write runs once, with what was meant."""
    a.stream(role(), chunk({"tool_calls": [tool_call("write", '{"path":"a"', id="c0")]}), RESET)
    a.stream(*fragments(part(0, '{"path":"a","content":"x"}', id="c1", name="write")))
    a.reply(completion("done"))
    assert await answer(world) == "done"
    assert called(a) == [("c1", "write", {"path": "a", "content": "x"}, "ok")]
    assert (tmp_path / "written").read_text() == "a=x;"


async def test_an_invented_observation_is_cut(world: Running, a: Upstream) -> None:
    """B123, B119: the real observation goes back, and the answer of several lines is whole."""
    a.reply(completion("Thought: use it\nAction: get_time[J]\nObservation: 1\nThought: done\nFinish[1]"))
    a.reply(completion("Thought: ready\nFinish [line 1\nline 2 [1]\nline 3]"))
    assert await answer(world, "react") == "line 1\nline 2 [1]\nline 3"
    assert a.requests[0].json["stop"] == ["\nObservation:"]
    assert a.requests[1].json["messages"][-2:] == [
        {"role": "assistant", "content": "Thought: use it\nAction: get_time[J]"},
        {"role": "user", "content": "Observation: noon"},
    ]


async def test_a_plan_in_the_second_fence(world: Running, a: Upstream) -> None:
    """B125."""
    a.reply(completion('Draft:\n```\n[broken, "x\n```\nBetter:\n```json\n["Ask \'why\' first", "Use the \\"cost\\" column", "a, b"]\n```\nGood luck!'))
    for text in ("r1", "r2", "r3"):
        a.reply(completion(text))
    assert await answer(world, "plan_and_solve") == "r3"
    assert len(a.requests) == 4


async def test_the_turns_used_up(world: Running, a: Upstream) -> None:
    """B133, B135: 200, finish_reason length, the last request without tools."""
    for _number in range(3):
        a.reply(completion(None, calls=[tool_call("now", "{}", id="c")]))
    a.reply(completion("summary"))
    got = (await world.chat({"model": "agent/simple", "messages": [{"role": "user", "content": "q"}]})).json()
    assert (got["choices"][0]["message"]["content"], got["choices"][0]["finish_reason"]) == ("summary", "length")
    assert ["tools" in seen.json for seen in a.requests] == [True, True, True, False]
    assert [result for *_, result in called(a)][:2] == ["12:00", "12:00"]
    assert "not made again" in called(a)[2][3]


async def test_an_empty_answer(world: Running, a: Upstream) -> None:
    """B145."""
    a.reply(completion("", reasoning_content="hmm")).reply(completion("real answer"))
    assert await answer(world) == "real answer"


@pytest.mark.parametrize("before", [[], [completion(None, calls=[tool_call("now", "{}")])]], ids=["at once", "after a tool"])
@pytest.mark.parametrize("empty", ["stream", "plain"])
async def test_an_answer_of_nothing_at_all_is_an_empty_turn_and_no_outage(world: Running, a: Upstream, before: list[Any], empty: str) -> None:
    """X3: to the chain it is `protocol`; where no target has more to say, the model is asked again."""
    for body in before:
        a.reply(body)
    if empty == "stream":
        a.stream(role(), finish(), DONE)
    else:
        a.reply(completion(""))
    a.reply(completion("real answer"))

    assert await answer(world) == "real answer"
    assert "empty" in a.requests[-1].json["messages"][-1]["content"]
    assert len(a.requests) == len(before) + 2


async def test_a_model_that_never_says_anything_ends_the_run_as_empty(world: Running, a: Upstream) -> None:
    a.reply(completion(""), repeat=9)

    run = (await world.client.post("/v1/agents/simple/runs", json={"input": "q"})).json()

    assert (run["status"], run["reason"], len(a.requests)) == ("incomplete", "empty", 3)
    assert run["output"]


async def test_a_thinking_phase_that_says_nothing_adds_nothing(a: Upstream) -> None:
    """P3"""
    a.reply(completion("")).reply(completion("done"))

    async with serving(yaml({"a": a.url}, more="agents: {t: {pattern: two_stage, model: m, tools: [calculator]}}")) as running:
        assert await answer(running, "t") == "done"

    assert [message["role"] for message in a.requests[1].json["messages"]] == ["system", "user"]
