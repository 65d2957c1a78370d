"""Codex, as its users have it, with a gateway as its provider: /v1/responses over providers that speak chat."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from children import closed, installed, run
from deepseek import deepseek, reasoning_given_back
from openai_client import over
from running import KEY, Running, serving
from upstream_double import CUT, Upstream, answer, delta, role, tool_call

SETTINGS = """
model = "m"
model_provider = "gateway"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]  # these two ask their makers for lists at every start
apps = false
plugins = false

[model_providers.gateway]
name = "gateway"
base_url = "{url}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = {websockets}
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What `codex exec --json` printed."""

    code: int
    events: list[Any]

    def texts(self) -> list[str]:
        return [event["item"]["text"] for event in self.events if event["type"] == "item.completed" and event["item"]["type"] == "agent_message"]

    def failures(self) -> list[str]:
        return [event["error"]["message"] for event in self.events if event["type"] == "turn.failed"]


Codex = Callable[..., Awaitable[Told]]


@pytest.fixture
def codex(tmp_path: Path) -> Codex:
    """`await codex(running, *more arguments)` says hi to the gateway's model `m` in an empty folder."""
    program = installed("cli") / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()

    async def asked(running: Running, *more: str, websockets: bool = False) -> Told:
        (home / "config.toml").write_text(SETTINGS.format(url=running.url, websockets=str(websockets).lower()))
        env = {**closed(home), "CODEX_HOME": str(home), "GATEWAY_KEY": KEY}
        ended = await run(["node", program, "exec", "--skip-git-repo-check", "--json", *more, "hi"], env, folder)
        return Told(ended.code, [json.loads(line) for line in ended.out.splitlines()])

    return asked


async def test_it_prints_the_text_of_a_chat_provider(a: Upstream, codex: Codex) -> None:
    a.stream(*answer("Hel", "lo", usage_chunk=True))

    async with serving(over(a)) as running:
        told = await codex(running)

    assert (told.code, told.texts(), len(a.requests)) == (0, ["Hello"], 1)
    assert (told.events[-1]["usage"]["input_tokens"], told.events[-1]["usage"]["output_tokens"]) == (5, 3)
    assert "exec_command" in [tool["function"]["name"] for tool in a.requests[0].json["tools"]]


async def test_it_goes_on_over_http_at_once_when_it_tried_a_websocket(a: Upstream, codex: Codex, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thinkgate.request")
    a.stream(*answer("Hello"))

    async with serving(over(a)) as running:
        told = await codex(running, websockets=True)

    assert (told.code, told.texts(), len(a.requests)) == (0, ["Hello"], 1)
    assert ["status=426" in line for line in caplog.messages].count(True) == 1
    assert "error" not in [event["type"] for event in told.events]


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
async def test_it_runs_a_command_and_deepseek_accepts_the_second_turn(a: Upstream, codex: Codex, remembered: bool) -> None:
    call = tool_call("exec_command", json.dumps({"cmd": "echo sun && echo ny"}))

    async with serving(deepseek(a, call, streamed=True, remembered=remembered)) as running:
        told = await codex(running, "--dangerously-bypass-approvals-and-sandbox")

    assert (told.code, told.texts()) == (0, ["Sunny"])
    assert reasoning_given_back(a) == "I need it"
    assert "sun\nny" in a.requests[1].json["messages"][-1]["content"]


async def test_when_no_provider_answers_the_turn_fails_with_our_message(a: Upstream, codex: Codex) -> None:
    a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)

    async with serving(over(a)) as running:
        told = await codex(running)

    assert (told.code, len(told.failures())) == (1, 1)
    assert "all 1 providers failed, last error: api error 401" in told.failures()[0]


async def test_a_stream_that_breaks_off_fails_the_turn_with_our_message(a: Upstream, codex: Codex) -> None:
    a.stream(role(), delta("Hel"), CUT)

    async with serving(over(a)) as running:
        told = await codex(running)

    assert (told.code, len(told.failures())) == (1, 1)
    assert "the answer of a broke off" in told.failures()[0]
