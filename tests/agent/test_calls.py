"""The calls of one turn (X7, X13, X18, B127, B129, B131, B143)."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from gateway.agent import calls
from gateway.agent.calls import CANCELLED, NOT_STARTED, call_all
from gateway.agent.memory.tokens import text_tokens
from gateway.agent.tools import Context, Observation, Tool
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.thinking import SequentialThinking
from gateway.chat import loads


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: Any = "{}"


def _context(call: Call) -> Context:
    return Context(call_id=call.id)


async def made(wanted: Sequence[Call], *functions: Callable[..., Any] | Tool, **options: Any) -> list[Observation]:
    return await call_all(wanted, Registry(functions), _context, **options)


async def slow(n: str) -> str:
    await asyncio.sleep(0.15)
    return n


async def fast(n: str) -> str:
    return n


async def test_results_stand_in_the_order_of_the_calls_and_run_side_by_side_b143() -> None:
    ended: list[str] = []
    second = asyncio.Event()

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        ended.append(call.id)

    async def first_waits(n: str) -> str:
        await asyncio.wait_for(second.wait(), 5)
        return n

    async def second_ends(n: str) -> str:
        second.set()
        return n

    wanted = [Call("c0", "first_waits", '{"n": "A"}'), Call("c1", "second_ends", '{"n": "B"}')]
    assert [one.text for one in await made(wanted, first_waits, second_ends, on_end=on_end)] == ["A", "B"]
    assert ended == ["c1", "c0"]


async def test_no_calls_no_observations() -> None:
    assert await made([]) == []


async def test_no_more_calls_at_a_time_than_allowed() -> None:
    now, most, order = 0, 0, []

    async def counted(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        order.append(n)
        await asyncio.sleep(0.01)
        now -= 1
        return n

    seen = await made([Call(str(n), "counted", f'{{"n": {n}}}') for n in range(9)], counted, parallel=3)
    assert most == 3
    assert order == list(range(9))  # they begin in their order
    assert [one.text for one in seen] == [str(n) for n in range(9)]


async def test_an_unknown_tool_is_told_which_there_are_b127() -> None:
    seen = await made([Call("c0", "search_files")], fast, slow)
    assert seen == [Observation('Error: there is no tool "search_files". The tools are: fast, slow', ok=False)]


async def test_bad_arguments_are_told_and_the_tool_is_not_called_b131() -> None:
    ran: list[str] = []

    def f(q: str) -> str:
        ran.append(q)
        return q

    seen = await made([Call("c0", "f", '{"q": "x"} trailing words'), Call("c1", "f", '{"q": "x'), Call("c2", "f", '{"q": "fine"}'), Call("c3", "f", "{}")], f)
    assert ran == ["x", "fine"]
    assert [one.ok for one in seen] == [True, False, True, False]
    assert "ends at character 8" in seen[1].text
    assert 'missing field: "q"' in seen[3].text


async def test_empty_arguments_of_a_tool_without_parameters_b021() -> None:
    assert [one.text for one in await made([Call("c0", "now", "")], FunctionOf("now", lambda: "12:00"))] == ["12:00"]


class FunctionOf(Tool):
    description = "x"

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self.name = name
        self._function = function

    async def call(self, arguments: Any, context: Context) -> Observation:
        value = self._function()
        return await value if asyncio.iscoroutine(value) else value


async def test_an_exception_is_an_observation_and_stops_no_other_call_b129_x13() -> None:
    def get_user(id: int) -> str:
        raise ValueError(f"no user {id}")

    seen = await made([Call("c0", "get_user", '{"id": 99}'), Call("c1", "slow", '{"n": "A"}')], get_user, slow)
    assert seen == [Observation("Error: ValueError: no user 99", ok=False), Observation("A")]


async def test_no_secret_and_no_traceback_reaches_the_model_b129() -> None:
    def leaks() -> None:
        raise RuntimeError("cannot reach https://me:hunter22@db/?api_key=abcd1234efgh with Bearer sk-abcdefgh12345678\nTraceback hush-hush")

    text = (await made([Call("c0", "leaks")], leaks, secrets=["hush-hush"]))[0].text
    assert text.startswith("Error: RuntimeError: cannot reach")
    assert "\n" not in text
    for secret in ("hunter22", "abcd1234efgh", "sk-abcdefgh12345678", "hush-hush", "line "):
        assert secret not in text


async def test_errors_are_short_and_groups_show_their_first() -> None:
    def long() -> None:
        raise ValueError("x" * 10_000)

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_raise(KeyError("inner")))

    texts = [one.text for one in await made([Call("0", "long"), Call("1", "group")], long, group)]
    assert len(texts[0]) < 400
    assert texts[1] == "Error: KeyError: 'inner'"


async def _raise(error: Exception) -> None:
    raise error


async def test_a_tool_that_calls_exit_ends_only_itself() -> None:
    async def leaves() -> None:
        sys.exit(3)

    def leaves_too() -> None:
        sys.exit(3)

    assert [one.text for one in await made([Call("0", "leaves"), Call("1", "leaves_too")], leaves, leaves_too)] == [
        "Error: RuntimeError: the tool called exit()"
    ] * 2


def test_an_interrupt_in_a_tool_is_not_swallowed_b129() -> None:
    def stops() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        await made([Call("0", "stops")], FunctionOf("stops", stops))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


async def test_a_call_has_its_time_x1() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    release = threading.Event()

    def blocks() -> None:
        release.wait(10)

    seen = await asyncio.wait_for(made([Call("0", "forever"), Call("1", "blocks"), Call("2", "fast", '{"n": "B"}')], forever, blocks, fast, timeout=0.3), 5)
    release.set()
    assert [one.text for one in seen] == [
        "Error: forever did not answer within 0.3 s; whether it took effect is unknown",
        "Error: blocks did not answer within 0.3 s; whether it took effect is unknown",
        "B",
    ]


async def test_a_time_out_of_the_tools_own_is_its_error() -> None:
    def own() -> None:
        raise TimeoutError("the service is slow")

    assert (await made([Call("0", "own")], own))[0].text == "Error: TimeoutError: the service is slow"


async def test_a_tool_that_will_not_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "GRACE", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    seen = await asyncio.wait_for(made([Call("0", "stubborn")], stubborn, timeout=0.05), 5)
    assert "did not answer" in seen[0].text
    (left,) = calls._left
    release.set()
    await asyncio.wait([left], timeout=5)
    assert not calls._left


async def test_a_long_output_keeps_head_and_tail_x7() -> None:
    def long() -> str:
        return "a" * 50_000 + "z" * 50_000

    text = (await made([Call("0", "long")], long))[0].text
    assert 23_990 <= len(text) <= 24_000
    assert "76," in text
    assert 16_000 < text.count("a") < 16_900
    assert 7_000 < text.count("z") < 7_300


async def test_a_turns_outputs_share_its_budget_x7() -> None:
    def out(n: int) -> str:
        return "x" * n

    told: dict[str, int] = {}

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        told[call.id] = len(seen.text)

    wanted = [Call("0", "out", '{"n": 100}'), Call("1", "out", '{"n": 20000}'), Call("2", "out", '{"n": 20000}')]
    seen = await made(wanted, out, budget=2025, on_end=on_end)
    tokens = [text_tokens(one.text) for one in seen]
    assert tokens[0] == 25
    assert sum(tokens) <= 2025
    assert abs(tokens[1] - tokens[2]) <= 20
    assert told == {"0": 100, "1": 20_000, "2": 20_000}  # what the budget takes away is not lost for the journal


async def test_half_a_pair_of_surrogates_does_not_reach_the_model() -> None:
    assert (await made([Call("0", "odd")], FunctionOf("odd", lambda: Observation("a\ud800b"))))[0].text == "a?b"


async def test_what_a_lenient_tool_gets_is_what_the_model_wrote_t6() -> None:
    class Lenient(Tool):
        name, description = "lenient", "x"
        lenient: ClassVar[bool] = True

        async def call(self, arguments: Any, context: Context) -> Observation:
            return Observation(repr(arguments))

    wanted = [Call("0", "lenient", '{"n": "1"}'), Call("1", "lenient", '{"n": '), Call("2", "lenient", "")]
    assert [one.text for one in await made(wanted, Lenient())] == ["{'n': '1'}", "'{\"n\": '", "{}"]


async def test_the_thinking_tool_answers_for_its_own_arguments_t6_t30() -> None:
    session: dict[str, Any] = {}
    wanted = [
        Call("0", "thinking", '{"thought": "a", "nextThoughtNeeded": "true"}'),
        Call("1", "sequential_thinking", '{"thought": '),
        Call("2", "sequential_thinking", ""),
    ]
    seen = await call_all(wanted, Registry([SequentialThinking()]), lambda call: Context(call_id=call.id, session=session))
    results = [loads(one.text) for one in seen]
    assert [result["success"] for result in results] == [True, False, False]
    assert results[0]["data"]["thought_number"] == 1
    assert all(result["error"] for result in results[1:])


async def test_each_call_gets_its_own_context() -> None:
    async def who(context: Context) -> str:
        return context.call_id

    assert [one.text for one in await made([Call("a", "who"), Call("b", "who")], who)] == ["a", "b"]


# ---- cancelled ----


async def test_a_cancelled_turn_gives_every_open_call_a_result_x18() -> None:
    told: dict[str, str] = {}
    running = asyncio.Event()

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        told[call.id] = seen.text

    async def waits() -> None:
        running.set()
        await asyncio.Event().wait()

    wanted = [Call("c0", "fast", '{"n": "A"}'), Call("c1", "waits"), Call("c2", "fast", '{"n": "B"}')]
    task = asyncio.create_task(made(wanted, fast, waits, parallel=1, on_end=on_end))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == {"c0": "A", "c1": CANCELLED, "c2": NOT_STARTED}


async def test_a_result_whose_telling_was_cancelled_is_told_again_x18() -> None:
    told: list[str] = []
    telling = asyncio.Event()

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        if not telling.is_set():
            telling.set()
            await asyncio.Event().wait()
        told.append(seen.text)

    task = asyncio.create_task(made([Call("c0", "fast", '{"n": "A"}')], fast, on_end=on_end))
    await telling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["A"]


async def test_a_tool_that_raises_cancelled_ends_the_turn_b129() -> None:
    told: dict[str, str] = {}

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        told[call.id] = seen.text

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await made([Call("c0", "cancelled"), Call("c1", "slow", '{"n": "A"}')], cancelled, slow, on_end=on_end)
    assert told == {"c0": CANCELLED, "c1": "A"}


async def test_what_a_callback_raises_ends_the_turn_and_the_other_calls() -> None:
    stopped: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("waits")
            raise

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        raise PermissionError("somebody else's run by now")

    with pytest.raises(PermissionError):
        await made([Call("c0", "waits"), Call("c1", "fast", '{"n": "A"}')], waits, fast, on_end=on_end)
    assert stopped == ["waits"]


async def test_what_a_callback_is_told() -> None:
    log: list[Any] = []

    async def on_start(call: Call) -> None:
        log.append(("start", call.id))

    async def on_end(call: Call, seen: Observation, ms: int) -> None:
        log.append(("end", call.id, seen.ok, 100 <= ms < 5000))

    await made([Call("c0", "slow", '{"n": "A"}')], slow, on_start=on_start, on_end=on_end)
    assert log == [("start", "c0"), ("end", "c0", True, True)]
