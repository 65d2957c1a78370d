"""How plain code reaches a loop of its own: interrupted, forked, nested, forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from gateway.agent.library.portal import Portal

ROOT = Path(__file__).parents[3]


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()


async def count(most: int, ended: list[str] | None = None) -> AsyncGenerator[int]:
    try:
        for number in range(most):
            yield number
            await asyncio.sleep(0)
    finally:
        if ended is not None:
            ended.append("closed")


async def fail() -> int:
    raise KeyError("mine")


async def fails_late() -> AsyncGenerator[int]:
    yield 1
    raise KeyError("mine")


def program(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_results_and_errors_come_back(portal: Portal) -> None:
    assert portal.call(lambda: asyncio.sleep(0, "done")) == "done"
    with pytest.raises(KeyError, match="mine"):
        portal.call(fail)
    assert list(portal.iterate(lambda: count(3))) == [0, 1, 2]
    got: list[int] = []
    with pytest.raises(KeyError, match="mine"):
        got.extend(portal.iterate(fails_late))
    assert got == [1]


def test_one_that_stops_early_has_closed_the_source_when_it_goes_on(portal: Portal) -> None:
    ended: list[str] = []
    items = portal.iterate(lambda: count(1_000_000, ended))
    assert next(items) == 0
    items.close()
    assert ended == ["closed"]


def test_one_that_is_dropped_closes_the_source(portal: Portal) -> None:
    ended: list[str] = []
    for _ in portal.iterate(lambda: count(1_000_000, ended)):
        break
    assert ended == ["closed"]


async def test_another_loop_reads_along(portal: Portal) -> None:
    ended: list[str] = []
    assert [item async for item in portal.aiterate(lambda: count(3))] == [0, 1, 2]
    items = portal.aiterate(lambda: count(1_000_000, ended))
    assert await anext(items) == 0
    await items.aclose()
    assert ended == ["closed"]
    with pytest.raises(KeyError, match="mine"):
        [item async for item in portal.aiterate(fails_late)]
    assert await portal.acall(lambda: asyncio.sleep(0, "done")) == "done"


async def test_a_caller_that_is_cancelled_cancels_the_work(portal: Portal) -> None:
    ended = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(portal.acall(hang), 0.05)
    assert await asyncio.to_thread(ended.wait, 5)


def test_calls_from_inside_do_not_wait_for_themselves(portal: Portal) -> None:
    async def nested() -> tuple[str, list[int]]:
        return portal.call(lambda: asyncio.sleep(0, "inner")), list(portal.iterate(lambda: count(2)))

    assert portal.call(nested) == ("inner", [0, 1])


def test_closing_it_ends_what_runs(portal: Portal) -> None:
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            portal.call(lambda: asyncio.sleep(60))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not portal.call(lambda: asyncio.sleep(0, len(asyncio.all_tasks()) > 2)) and not failed:
        time.sleep(0.01)
    portal.close()
    thread.join(5)
    assert [str(error) for error in failed] == ["it was closed while it ran"]


def test_a_reader_of_what_is_closed_is_told(portal: Portal) -> None:
    items = portal.iterate(lambda: count(1_000_000_000))
    next(items)
    portal.close()
    with pytest.raises(RuntimeError, match="closed while"):
        for _ in items:
            pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals")
def test_what_interrupts_the_caller_cancels_the_work(portal: Portal) -> None:
    ended = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def interrupt(number: int, frame: object) -> None:
        raise KeyError("enough")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyError, match="enough"):
            portal.call(hang)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ended.wait(5)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_a_plain_call_at_once() -> None:
    child = program("""
        from gateway.agent import LLM
        print("ready", flush=True)
        with LLM("demo", base_url="mock://demo?slow_headers=60s", adapter="demo", env={}) as llm:
            llm.think([{"role": "user", "content": "hi"}])
    """)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert "was never retrieved" not in errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_begins_a_thread_of_its_own() -> None:
    """Servers that load a program and then fork use what they have loaded."""
    child = program("""
        import os
        from gateway import app
        from gateway.agent import LLM
        llm, program = LLM.demo(), app.load(env={})
        asked = [{"role": "user", "content": "Say hello"}]
        llm.think(asked), program.agent("simple").run("Say hello")
        if (pid := os.fork()) == 0:
            said = llm.think(asked)
            try:
                program.agent("simple").run("Say hello")
            except RuntimeError as error:
                said += f", {error}"
            print(said, flush=True)
            raise SystemExit
        os.waitpid(pid, 0)
        print(program.agent("simple").run("Say goodbye"), flush=True)
        program.close()
    """)
    out, errors = child.communicate(timeout=60)
    first, second = out.splitlines()
    assert first.startswith("hello, the process was forked")
    assert (second, child.returncode) == ("goodbye", 0), errors
