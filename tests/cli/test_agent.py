"""`thinkgate agent run`: an agent in the terminal."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.agent import Order
from gateway.app import Gateway, read_config
from gateway.cli import main

CONFIG = """
providers:
  demo: {adapter: demo, base_url: "mock://demo?gap=0"}
  slow: {adapter: demo, base_url: "mock://demo?gap=0&slow_ttft=30s"}
  down: {adapter: openai, base_url: "mock://demo?status=500", api_key: down-key-0123456789, retries: 0}
models: {demo: demo/demo, slow: slow/demo, down: down/x}
agents:
  calc: {pattern: simple, model: demo, tools: [calculator]}
  ask: {pattern: simple, model: demo, tools: [calculator], approval: {tools: [calculator]}}
  plan: {pattern: two_stage, model: demo, tools: [sequential_thinking, todo_write, calculator], thinking: {critic: {max_refine: 1}}}
  full: {pattern: two_stage, model: demo, tools: [calculator], thinking: {visibility: full}}
  hidden: {pattern: two_stage, model: demo, tools: [sequential_thinking, calculator], thinking: {visibility: hidden}}
  draft: {pattern: reflection, model: demo}
  steps: {pattern: plan_and_solve, model: demo, tools: [calculator]}
  short: {pattern: simple, model: demo, tools: [calculator], limits: {steps: 1}}
  slow: {pattern: simple, model: slow}
  down: {pattern: simple, model: down}
  boss: {pattern: simple, model: demo, tools: ["agent:calc"]}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gate.yaml").write_text(f"store: sqlite:///gate.db\n{CONFIG}")
    return tmp_path


def run(*args: str) -> int:
    return main(["agent", "run", *args, "-c", "gate.yaml"])


def test_without_a_config_the_embedded_agents_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "run", "simple", "say hi"]) == 0
    out, told = capsys.readouterr()
    assert out == "hi\n"
    assert "completed, 1 steps, " in told


def test_the_answer_goes_to_stdout_and_what_led_to_it_to_stderr(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("calc", "What is 17 * 23?") == 0
    out, told = capsys.readouterr()
    assert out == "Here is what I found with calculator (17 * 23): 391\n"
    lines = [line.strip() for line in told.splitlines()]
    assert 'calculator {"expression":"17 * 23"}' in lines
    assert any(line.startswith("calculator -> 391 (") and line.endswith(" ms)") for line in lines)
    assert sum(line.endswith(" tokens") for line in lines) == 2
    assert lines[-1].startswith("completed, 2 steps, ")
    assert "run_" in lines[-1]


def test_phases_thoughts_and_the_list_are_shown_once_each(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "What is 17 * 23?") == 0
    out, told = capsys.readouterr()
    lines = [line.strip() for line in told.splitlines()]
    assert lines.count("[plan]") == lines.count("[critic]") == lines.count("accepted") == lines.count("[act]") == 3
    assert lines.count("[ ] Gather what is missing") == lines.count("[x] Gather what is missing") == 1
    assert lines.count("1/1: Understand what is asked: What is 17 * 23.") == 1
    assert "sequential_thinking" not in [line.split(" ")[0] for line in lines]
    assert out == "Here is what I found with calculator (17 * 23): 391\n"


def test_steps_of_a_plan_show_what_they_came_to(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("steps", "What is 17 * 23?") == 0
    out, told = capsys.readouterr()
    lines = [line.strip() for line in told.splitlines()]
    assert "[execute] 2/3 Gather what is missing" in lines
    assert "= Here is what I found with calculator (17 * 23): 391" in lines
    assert out == "Here is what I found with calculator (17 * 23): 391\n"


def test_a_draft_gets_better_by_its_review(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("draft", "say hello") == 0
    out, told = capsys.readouterr()
    assert out == "hello\n\nThis is what the demo model made of it: check it before you rely on it.\n"
    assert "It does what was asked, but does not say how far it can be relied on." in told
    assert told.count("[refine]") == 2


def test_full_thoughts_are_written_as_they_come_and_hidden_ones_never(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("full", "What is 17 * 23?") == 0
    assert "Plan:\n1. Understand what is asked: What is 17 * 23.\n2. Gather what is missing." in capsys.readouterr().err
    assert run("hidden", "What is 17 * 23?") == 0
    told = capsys.readouterr().err
    assert "Understand" not in told
    assert "calculator -> 391" in told


def test_the_tools_of_a_sub_agent_stand_under_its_call(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("boss", "agent_calc 17 * 23") == 0
    assert '\n    calculator {"expression":"17 * 23"}' in capsys.readouterr().err


def test_json_gives_an_event_a_line_and_the_run_at_the_end(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("calc", "What is 17 * 23?", "--json") == 0
    out, told = capsys.readouterr()
    *events, last = [json.loads(line) for line in out.splitlines()]
    assert told == ""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("run.started", "run.finished")
    assert next(event["data"]["output"] for event in events if event["type"] == "tool.finished") == "391"
    assert last.items() >= {"object": "run", "status": "completed", "agent": "calc", "steps": 2}.items()


@pytest.mark.parametrize(
    ("said", "output"),
    [
        ("y\n", "Here is what I found with calculator (17 * 23): 391\n"),
        ("n\n", "refused"),
        ("too dear\n", "too dear"),
        ("", "refused"),
    ],
)
def test_a_person_is_asked_before_a_tool_that_needs_approval(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, said: str, output: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    assert run("ask", "What is 17 * 23?") == 0
    out, told = capsys.readouterr()
    assert 'calculator {"expression":"17 * 23"}' in told
    assert "Approve? [y]es, [n]o, or why not: " in told
    assert output in out


def test_json_reads_an_approval_with_other_arguments(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"approved": true, "arguments": {"expression": "40+2"}}\n'))
    assert run("ask", "What is 17 * 23?", "--json") == 0
    *events, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["data"]["approved"] for event in events if event["type"] == "approval.resolved"] == [True]
    assert "42" in last["output"]


def test_a_session_goes_on_where_it_was(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "What is 17 * 23?", "--session", "s1") == 0
    assert run("plan", "Which number was that?", "--session", "s1", "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    used = [event["data"]["usage"]["prompt_tokens"] for event in events if event.get("type") == "usage"]
    assert run("plan", "Which number was that?", "--json") == 0
    alone = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert used[0] > next(event["data"]["usage"]["prompt_tokens"] for event in alone if event["type"] == "usage") + 50
    assert events[-1]["session_id"] == "s1"


def test_runs_that_wait_for_a_server_are_left_to_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def queued() -> str:
        gate = Gateway(lambda: read_config("gate.yaml"))
        async with gate.opened(work=False):
            live = await gate.runs.begin(Order(agent="calc", messages=[{"role": "user", "content": "Later."}], background=True))
            return live.id

    async def status(run: str) -> str:
        gate = Gateway(lambda: read_config("gate.yaml"))
        async with gate.opened(work=False):
            return (await gate.runs.row(run, "")).status

    waits = asyncio.run(queued())
    assert run("calc", "What is 17 * 23?") == 0
    assert "391" in capsys.readouterr().out
    assert asyncio.run(status(waits)) == "queued"


def test_exit_codes_tell_how_it_ended(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nobody", "hi") == 1
    assert capsys.readouterr().err.startswith('there is no agent "nobody"; the config has: calc, ask, ')
    assert run("short", "What is 17 * 23?") == 1
    assert "incomplete (steps), " in capsys.readouterr().err
    assert run("down", "hi") == 1
    told = capsys.readouterr().err
    assert "failed, 1 steps" in told
    assert "error: all 1 providers failed" in told
    with pytest.raises(SystemExit, match="2"):
        main(["agent", "run", "calc"])


def test_a_config_with_a_provider_that_has_prices_runs_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Public prices are read in a process of their own, before the run."""
    text = CONFIG.replace(
        "models: {demo", "  claude: {adapter: anthropic, api_key: claude-key-0123456789}\nmodels: {priced: {chain: [demo/demo, claude/claude-sonnet-5-5]}, demo"
    )
    (here / "gate.yaml").write_text(text.replace("calc: {pattern: simple, model: demo", "calc: {pattern: simple, model: priced"))

    assert run("calc", "What is 2+3?") == 0
    assert "5" in capsys.readouterr().out


def test_ctrl_c_cancels_the_run(here: Path) -> None:
    command = [sys.executable, "-m", "gateway", "agent", "run", "slow", "hi", "-c", "gate.yaml", "--session", "s", "--json"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["type"] == "run.started"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert json.loads(out.splitlines()[-1])["status"] == "cancelled"
    assert "Traceback" not in errors


def test_on_a_terminal_the_question_and_the_answer_are_on_lines_of_their_own(here: Path) -> None:
    command = [sys.executable, "-m", "gateway", "agent", "run", "ask", "What is 17 * 23?", "-c", "gate.yaml"]
    root = Path(__file__).parents[2]
    mine, theirs = pty.openpty()
    try:
        with subprocess.Popen(command, cwd=here, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "PYTHONPATH": str(root)}) as process:
            os.close(theirs)
            seen = b""
            while b"or why not: " not in seen:
                seen += os.read(mine, 4096)
            os.write(mine, b"y\n")
            while True:
                try:
                    part = os.read(mine, 4096)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                seen += part
            assert process.wait(timeout=20) == 0
    finally:
        os.close(mine)
    lines = seen.decode().replace("\r", "").split("\n")
    assert "Here is what I found with calculator (17 * 23): 391" in lines
    assert any(line.startswith("Approve? [y]es") for line in lines)
    assert any(line.startswith("  \x1b[2m") and line.endswith(" tokens\x1b[0m") for line in lines)
