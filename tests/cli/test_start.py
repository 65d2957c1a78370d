"""What a start loads: no more than what the config and the first requests need."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.adapters import Loader, builtin_folder
from gateway.app import known_providers
from gateway.config import HookBudget

ROOT = Path(__file__).parents[2]
PLAIN = """
store: sqlite://
providers:
  deepseek: {base_url: "http://127.0.0.1:9/v1", api_key: sk-test}
models:
  smart: deepseek/deepseek-chat
"""
ELSEWHERE = ("mcp", "pydantic", "jsonschema", "json_repair", "psycopg", "procrastinate", "httpx", "httpx2", "redis", "genai_prices")
"""packages that nobody needs who has neither tools nor PostgreSQL nor a proxy"""
RUNS = ("gateway.agent.live", "gateway.agent.run", "gateway.agent.patterns", "gateway.agent.memory")
"""what runs are run with"""

SERVE = """
import asyncio, sys
import gateway.cli.serve
from gateway import app

def show(when):
    print(when, *sys.modules)

async def main():
    gate = app.Gateway(lambda: app.read_config(sys.argv[1]))
    async with gate.opened(), gate.reading_prices():
        show("started")
        {more}

asyncio.run(main())
"""
WAIT = """
        while "gateway.agent.live" not in sys.modules:
            await asyncio.sleep(0.02)
"""
ASK = """
        from gateway.agent import Order
        order = Order(agent="simple", messages=[{"role": "user", "content": "What is 6 * 7?"}])
        row = await (await gate.runs.begin(order)).done()
        print("answered", row.status)
"""
COMMAND = "import sys; from gateway.cli import main; main(sys.argv[1:]); print('loaded', *sys.modules)"


def told(code: str, *args: str) -> dict[str, list[str]]:
    """The lines that a fresh interpreter prints, by their first word."""
    done = subprocess.run([sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {words[0]: words[1:] for words in map(str.split, done.stdout.splitlines()) if words}


def loaded(words: list[str], *names: str) -> set[str]:
    """Those of the modules that were loaded, or of which a part was."""
    return {name for name in names for module in words if module == name or module.startswith(f"{name}.")}


def test_a_config_without_agents_loads_nothing_of_them(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN)
    words = told(SERVE.replace("{more}", ""), str(file))["started"]
    assert loaded(words, *ELSEWHERE, *RUNS) == set()
    assert loaded(words, "gateway.agent.build", "gateway.drill", "gateway.upstream.mock", "gateway.upstream.local", "gateway.store.postgres") == set()
    assert loaded(words, "gateway.dialects.responses", "gateway.dialects.messages", "gateway.dialects.gemini", "gateway.dialects.converse") == set()


def test_agents_are_loaded_after_the_start_before_anybody_asks() -> None:
    words = told(SERVE.replace("{more}", WAIT), "")["started"]
    assert loaded(words, *ELSEWHERE, *RUNS) == set()


def test_who_asks_an_agent_before_it_is_loaded_gets_its_answer() -> None:
    said = told(SERVE.replace("{more}", ASK), "")
    assert loaded(said["started"], *RUNS) == set()
    assert said["answered"] == ["completed"]


@pytest.mark.parametrize("command", ["version", "check"])
def test_a_command_loads_no_other_one(command: str) -> None:
    words = told(COMMAND, command, *(["--schema"] if command == "check" else []))["loaded"]
    assert loaded(words, "gateway.drill", "gateway.cli.serve", *ELSEWHERE, *RUNS) == set()
    assert command == "check" or loaded(words, "asyncio", "gateway.config", "gateway.app") == set()


def test_the_variable_of_a_key_is_known_without_loading_the_adapter() -> None:
    loader = Loader([builtin_folder()], HookBudget())
    assert {name: loader.variable(name) for name in loader.names()} == {name: loader.get(name).env or "" for name in loader.names()}
    assert known_providers(loader, {"DEEPSEEK_API_KEY": "sk-test", "OPENAI_API_KEY": ""}) == [
        ("deepseek", "DEEPSEEK_API_KEY", loader.get("deepseek").default_model),
    ]
