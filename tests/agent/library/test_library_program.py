"""`gateway.app.load(FILE).agent(NAME)`: the agents of a config in a program, over the store of the config."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents_yaml import says, until
from running import yaml
from upstream_double import DONE, HANG, Upstream, delta, finish, role

from gateway import app
from gateway.agent import Answer, ApprovalRequired, Delta, Event, PendingCall
from gateway.agent.endings import RunNotWaiting
from gateway.errors import ConfigError, Conflict, GatewayError, InvalidRequest, NotFound

AGENTS = """
agents:
  plain: {pattern: simple, model: m}
  calc: {pattern: simple, model: m, tools: [calculator]}
  ask: {pattern: simple, model: m, tools: [calculator], approval: {tools: [calculator], timeout: 1m}}
  quiet: {pattern: two_stage, model: m, tools: [calculator], thinking: {visibility: hidden}}
"""
SUM = ("calculator", '{"expression": "2+3"}')


def config(folder: Path, upstream: Upstream, store: str = "sqlite:///runs.db") -> Path:
    file = folder / "thinkgate.yaml"
    text = yaml({"a": upstream.url}, more=AGENTS)
    file.write_text(f"store: {store}\n{text}" if "store:" not in text else text)
    return file


@pytest.fixture
def file(tmp_path: Path, far: Upstream) -> Path:
    return config(tmp_path, far)


@pytest.fixture
def program(file: Path) -> Iterator[Any]:
    with app.load(file) as loaded:
        yield loaded


def test_an_agent_of_the_config_answers(program: Any, far: Upstream) -> None:
    says(far, SUM, "It is 5.")
    answer = program.agent("calc").run("What is 2+3?")
    assert isinstance(answer, Answer)
    assert answer == "It is 5."
    assert (answer.status, answer.steps, answer.usage["total_tokens"]) == ("completed", 2, 16)
    assert far.requests[1].json["messages"][-1]["content"] == "5"


def test_nothing_is_opened_before_the_first_call(file: Path) -> None:
    program = app.load(file)
    assert list(program.agents) == ["plain", "calc", "ask", "quiet"]
    assert program.agent("calc").spec.pattern == "simple"
    program.close()
    assert not (file.parent / "runs.db").exists()


def test_an_unknown_agent_and_a_broken_config_are_errors_at_once(program: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match='did you mean "calc"'):
        program.agent("calk")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("agents: {x: {pattern: simple, model: nobody}}")
    with pytest.raises(ConfigError):
        app.load(wrong)
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        app.load(tmp_path / "missing.yaml")


def test_without_a_file_the_agents_of_the_demo_model_are_there() -> None:
    with app.load(env={}) as program:
        assert "5" in program.agent("simple").run("What is 2+3?")


def test_the_answer_comes_in_pieces(program: Any, far: Upstream) -> None:
    far.stream(role(), delta("Hel"), 0.2, delta("lo"), finish(), DONE)
    assert list(program.agent("plain").stream("hi")) == ["Hel", "lo"]


def test_a_session_remembers(program: Any, far: Upstream) -> None:
    says(far, "Hello Ada.", "You are Ada.", "Who knows.")
    agent = program.agent("plain")
    agent.run("I am Ada.", session="s")
    agent.run("Who am I?", session="s")
    agent.run("Who am I?", session="t")
    texts = [[message["content"] for message in request.json["messages"] if message["role"] != "system"] for request in far.requests]
    assert texts[1:] == [["I am Ada.", "Hello Ada.", "Who am I?"], ["Who am I?"]]
    assert [message["content"] for message in agent.session("s")["messages"]] == ["I am Ada.", "Hello Ada.", "Who am I?", "You are Ada."]
    agent.forget("s")
    with pytest.raises(NotFound):
        agent.session("s")


def test_a_session_outlives_the_program(file: Path, far: Upstream) -> None:
    says(far, "Hello Ada.", "You are Ada.")
    for text in ("I am Ada.", "Who am I?"):
        with app.load(file) as program:
            program.agent("plain").run(text, session="s")
    assert "Hello Ada." in str(far.requests[1].json["messages"])


def test_the_same_words_again_are_a_new_message(program: Any, far: Upstream) -> None:
    """Over HTTP they could be the whole history, sent again; a program says which it means."""
    says(far, "one", "two", "three")
    agent = program.agent("plain")
    for _ in range(3):
        agent.run("go on", session="s")
    assert [message["content"] for message in agent.session("s")["messages"]] == ["go on", "one", "go on", "two", "go on", "three"]


def test_a_run_that_needs_a_word_says_so_and_goes_on_with_it(program: Any, far: Upstream) -> None:
    says(far, SUM, "It is 5.")
    agent = program.agent("ask")
    with pytest.raises(ApprovalRequired) as caught:
        agent.run("What is 2+3?")
    assert [(call.tool, call.arguments) for call in caught.value.calls] == [("calculator", {"expression": "2+3"})]
    assert [call.id for call in agent.pending(caught.value.run_id)] == [call.id for call in caught.value.calls]
    answer = agent.approve(caught.value, arguments={"expression": "4*4"})
    assert (answer, answer.run_id) == ("It is 5.", caught.value.run_id)
    assert far.requests[1].json["messages"][-1]["content"] == "16"
    with pytest.raises(RunNotWaiting):
        agent.approve(caught.value)


def test_a_word_can_be_given_by_another_process(file: Path, far: Upstream) -> None:
    says(far, SUM, "Then not.")
    with app.load(file) as program, pytest.raises(ApprovalRequired) as caught:
        program.agent("ask").run("What is 2+3?")
    with app.load(file) as program:
        assert program.agent("ask").approve(caught.value.run_id, False, reason="too dear") == "Then not."
    assert "too dear" in far.requests[1].json["messages"][-1]["content"]


def test_whoever_is_given_is_asked(program: Any, far: Upstream) -> None:
    says(far, SUM, "It is 5.")
    asked: list[PendingCall] = []

    def approve(call: PendingCall) -> bool:
        time.sleep(0.05)  # a person
        asked.append(call)
        return True

    assert "".join(program.agent("ask").stream("What is 2+3?", approve=approve)) == "It is 5."
    assert [call.tool for call in asked] == ["calculator"]


async def test_plain_and_async_calls_can_be_mixed_from_any_loop(file: Path, far: Upstream) -> None:
    far.stream(repeat=6)
    async with app.load(file) as program:
        agent = program.agent("plain")
        assert await agent.arun("q") == "Hello"
        assert "".join([piece async for piece in agent.astream("q")]) == "Hello"
        assert agent.run("q", session="s") == "Hello"
        assert await asyncio.to_thread(lambda: asyncio.run(agent.arun("q", session="s"))) == "Hello"
        assert (await asyncio.gather(agent.arun("q"), agent.arun("q"))) == ["Hello", "Hello"]
        assert len((await agent.asession("s"))["messages"]) == 4


async def test_an_async_callback_runs_for_async_calls(file: Path, far: Upstream) -> None:
    says(far, SUM, "Then not.")
    here = asyncio.get_running_loop()

    async def approve(call: PendingCall) -> str:
        assert asyncio.get_running_loop() is here
        return "no"

    async with app.load(file) as program:
        assert await program.agent("ask").arun("q", approve=approve) == "Then not."


async def test_events_are_told_as_far_as_they_may_be_seen(file: Path, far: Upstream) -> None:
    says(far, "SECRET plan", SUM, "SECRET plan", "It is 5.")
    async with app.load(file) as program:
        items = [item async for item in program.agent("quiet").events("What is 2+3?")]
    types = [item.type for item in items if isinstance(item, Event)]
    assert (types[0], types[-1]) == ("run.started", "run.finished")
    assert "tool.finished" in types
    assert "".join(item.text for item in items if isinstance(item, Delta)) == "It is 5."
    assert "SECRET" not in str([item.data if isinstance(item, Event) else item.text for item in items])


def test_options_and_parameters_reach_the_run(program: Any, far: Upstream) -> None:
    says(far, SUM, "enough")
    answer = program.agent("calc").run("q", steps=1, temperature=0.3)
    assert (answer, answer.reason) == ("enough", "steps")
    assert far.requests[0].json["temperature"] == 0.3
    with pytest.raises(InvalidRequest, match="colour"):
        program.agent("calc").run("q", colour="red")
    with pytest.raises(InvalidRequest, match="input"):
        program.agent("calc").run("")


def test_messages_can_be_given_instead_of_a_text(program: Any, far: Upstream) -> None:
    says(far, "ok")
    program.agent("plain").run([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])
    assert [m["content"] for m in far.requests[0].json["messages"] if m["role"] != "system"] == ["a", "b", "c"]


def test_a_failing_run_raises_and_a_later_one_works(program: Any, far: Upstream) -> None:
    far.reply({"error": {"message": "no, not today"}}, status=401).stream()
    with pytest.raises(GatewayError, match="no, not today"):
        program.agent("plain").run("q")


async def test_a_stream_that_is_left_ends_its_run(file: Path, far: Upstream) -> None:
    far.stream(role(), delta("a"), delta("b"), HANG)
    async with app.load(file) as program:
        pieces = program.agent("plain").astream("q")
        assert await anext(pieces) in ("a", "ab")
        await pieces.aclose()
        await until(lambda: bool(far.disconnected))


def test_a_stream_gives_the_best_answer_of_a_run_that_could_not_end(program: Any, far: Upstream) -> None:
    says(far, *[[("calculator", f'{{"expression": "{n}+1"}}')] for n in range(3)])
    far.reply({"error": {"message": "no, not today"}}, status=401)
    pieces = list(program.agent("calc").stream("count"))
    assert "3" in "".join(pieces)


async def test_one_run_of_a_session_at_a_time(file: Path, far: Upstream) -> None:
    far.stream(role(), delta("a"), 0.5, delta("b"), repeat=1).stream()
    async with app.load(file) as program:
        agent = program.agent("plain")
        pieces = agent.astream("q", session="s")
        await anext(pieces)
        with pytest.raises(Conflict, match="run"):
            await agent.arun("q", session="s")
        await pieces.aclose()


def test_what_it_used_is_charged_once(file: Path, far: Upstream, tmp_path: Path) -> None:
    import sqlite3

    says(far, SUM, "It is 5.")
    with app.load(file) as program:
        program.agent("calc").run("What is 2+3?")
    found = sqlite3.connect(tmp_path / "runs.db")
    try:
        rows = found.execute("select endpoint, model, prompt_tokens from thinkgate_requests").fetchall()
    finally:
        found.close()
    assert rows == [("runs", "agent/calc", 10)]


def test_a_closed_program_says_so(file: Path) -> None:
    program = app.load(file)
    program.close()
    program.close()
    with pytest.raises(RuntimeError, match="closed"):
        program.agent("plain").run("q")


def test_one_that_nobody_knows_any_more_is_closed(file: Path, far: Upstream) -> None:
    says(far, "Hello.")
    assert app.load(file).agent("plain").run("q") == "Hello."
    gc.collect()
    assert [thread.name for thread in threading.enumerate()].count("thinkgate library") == 1  # the double's


def test_a_program_that_is_not_closed_ends_with_its_process(file: Path, far: Upstream) -> None:
    """No word on stderr, no thread that keeps the process."""
    import subprocess
    import sys

    says(far, "Hello.")
    code = f"from gateway import app; program = app.load({str(file)!r}); print(program.agent('plain').run('q'))"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[3], check=False)
    assert (done.stdout.strip(), done.returncode) == ("Hello.", 0)
    assert done.stderr == ""
