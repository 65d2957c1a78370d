"""Every file of examples/ runs: on the demo model, and on the model that LLM_* names."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from upstream_double import Upstream, answer

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SAYS = {
    "events": ["tool.finished calculator 391", "(17 * 23): 391", "(4 * 4): 16"],
    "from_config": ["simple, react, two_stage, reflection, plan_and_solve", "(17 * 23): 391", "1, 2, 3, 4, 5", "6 messages in the session"],
    "model": ["hello", "1, 2, 3, 4, 5", "ChainExhausted", "connection refused"],
    "plan_and_solve": ["152", "step 1: ", "step 3: "],
    "react": ["[thinker] Thought: ", "[thinker] Observation: 152", "round 1: calculator["],
    "reflection": ["Write a two-line welcome", "[NO_IMPROVEMENT_NEEDED]"],
    "simple": ["Paris: 21 degrees, sunny", "2 turns", "1, 2, 3, 4, 5", "4 messages in the history"],
    "tools": ["- add: Adds two numbers.", "['4.0', 'HI!!!', '42']", "IT IS 5!"],
    "two_stage": ["the plan: ", "thoughts: ", "(17 * 23): 391"],
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL", "LLM_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["example.py"])


def test_there_is_an_example_for_each_pattern_and_a_test_for_each_example() -> None:
    names = {file.stem for file in EXAMPLES.glob("*.py")}
    assert names == set(SAYS)
    assert names >= {"simple", "react", "reflection", "plan_and_solve", "two_stage"}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs_on_the_demo_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    out, errors = capsys.readouterr()
    assert [text for text in SAYS[name] if text not in out] == []
    assert errors == ""


@pytest.mark.parametrize(("name", "said"), [("simple", "Bonjour"), ("react", "Finish[Bonjour]"), ("reflection", "Bonjour"), ("two_stage", "Bonjour")])
def test_an_example_runs_on_the_model_of_the_environment(
    name: str, said: str, far: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    far.stream(*answer(said), repeat=9)
    for variable, value in (("LLM_MODEL_ID", "mine"), ("LLM_API_KEY", "key-0123456789"), ("LLM_BASE_URL", f"{far.url}/v1")):
        monkeypatch.setenv(variable, value)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "Bonjour" in capsys.readouterr().out
    assert {request.json["model"] for request in far.requests} == {"mine"}


def test_an_example_is_a_program_like_any_other() -> None:
    """In a process of its own, with what a careful interpreter finds."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "simple.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_and_the_docs_name_what_there_is() -> None:
    text = (ROOT / "docs" / "library.md").read_text() + (ROOT / "README.md").read_text()
    linked = set(re.findall(r"examples/(\w+)\.py", text))
    assert linked == set(SAYS)


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), re.DOTALL)


def test_the_code_of_the_docs_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, far: Upstream) -> None:
    """Block after block, in one program."""
    far.stream(*answer("Bonjour"), repeat=99)
    for variable, value in (("LLM_MODEL_ID", "mine"), ("LLM_API_KEY", "key-0123456789"), ("LLM_BASE_URL", f"{far.url}/v1")):
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    yaml = 'providers: {demo: {adapter: demo, base_url: "mock://demo?gap=0"}}\nmodels: {m: demo/demo}\n'
    agents = "agents: {analyst: {pattern: simple, model: m, tools: [calculator], approval: {tools: [calculator]}}}\n"
    (tmp_path / "thinkgate.yaml").write_text(yaml + agents)
    names: dict[str, object] = {"__name__": "docs"}
    for number, block in enumerate(_blocks()):
        exec(compile(block, f"docs/library.md, block {number}", "exec"), names)
    assert "Bonjour" in capsys.readouterr().out
