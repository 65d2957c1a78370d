"""Claude Code, as its users have it, with a gateway as its API: /v1/messages over providers that speak chat, and over Anthropic's own dialect."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from children import closed, installed, run
from deepseek import deepseek, reasoning_given_back
from openai_client import over
from running import KEY, Running, serving
from upstream_double import CUT, Upstream, answer, chunk, delta, finish, role, tool_call

QUIET = dict.fromkeys(
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER", "DISABLE_BUG_COMMAND"), "1"
)


@dataclass(frozen=True, slots=True)
class Told:
    """What `claude -p --output-format json` printed."""

    code: int
    result: Any


Claude = Callable[..., Awaitable[Told]]


@pytest.fixture
def claude(tmp_path: Path) -> Claude:
    """`await claude(running, variables of its own)` says hi to the gateway's model `m` in the folder `tmp_path / "work"`."""
    program = installed("cli") / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()

    async def asked(running: Running, *arguments: str, **more: str) -> Told:
        address = {"ANTHROPIC_BASE_URL": running.url.removesuffix("/v1"), "ANTHROPIC_MODEL": "m", "ANTHROPIC_DEFAULT_HAIKU_MODEL": "m"}
        env = {**closed(home), **QUIET, **address, "CLAUDE_CONFIG_DIR": str(home), **(more or {"ANTHROPIC_API_KEY": KEY})}
        ended = await run(["node", program, "-p", "hi", "--output-format", "json", *arguments], env, folder)
        return Told(ended.code, json.loads(ended.out))

    return asked


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_it_prints_the_text_of_a_chat_provider(a: Upstream, claude: Claude, variable: str) -> None:
    a.stream(*answer("Hel", "lo", usage_chunk=True))

    async with serving(over(a)) as running:
        told = await claude(running, **{variable: KEY})

    assert (told.code, told.result["is_error"], told.result["result"], len(a.requests)) == (0, False, "Hello", 1)
    assert (told.result["usage"]["input_tokens"], told.result["usage"]["output_tokens"]) == (5, 3)
    assert "Bash" in [tool["function"]["name"] for tool in a.requests[0].json["tools"]]


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
async def test_it_reads_a_file_and_deepseek_accepts_the_second_turn(a: Upstream, claude: Claude, tmp_path: Path, remembered: bool) -> None:
    file = tmp_path / "work" / "weather.txt"
    file.write_text("cloudless\n")
    call = tool_call("Read", json.dumps({"file_path": str(file)}))

    async with serving(deepseek(a, call, streamed=True, remembered=remembered)) as running:
        told = await claude(running)

    assert (told.code, told.result["result"]) == (0, "Sunny")
    assert reasoning_given_back(a) == "I need it"
    [result] = [message for message in a.requests[1].json["messages"] if message["role"] == "tool"]
    assert "cloudless" in result["content"]


async def test_it_thinks_with_our_tool_over_mcp(a: Upstream, claude: Claude) -> None:
    thoughts = [{"thought": f"step {n}", "next_thought_needed": n < 2, "thought_number": n, "total_thoughts": 2} for n in (1, 2)]
    for n, thought in enumerate(thoughts):
        call = tool_call("mcp__thinkgate__sequential_thinking", json.dumps(thought), id=f"call_{n}")
        a.stream(role(), chunk({"tool_calls": [call]}), finish("tool_calls"), "[DONE]")
    a.stream(*answer("Done"))

    async with serving(over(a)) as running:
        server = {"type": "http", "url": running.url.removesuffix("/v1") + "/mcp", "headers": {"Authorization": f"Bearer {KEY}"}}
        settings = json.dumps({"mcpServers": {"thinkgate": server}})
        told = await claude(running, "--mcp-config", settings, "--strict-mcp-config", "--allowedTools", "mcp__thinkgate__sequential_thinking")

    assert (told.code, told.result["result"], len(a.requests)) == (0, "Done", 3)
    # not in the first request: on a busy machine Claude Code asks before our server has told it its tools
    assert "mcp__thinkgate__todo_write" in [tool["function"]["name"] for tool in a.requests[2].json["tools"]]
    seen = [str(message["content"]) for message in a.requests[2].json["messages"] if message["role"] == "tool"]
    assert ['"thought_history_length":1' in seen[0], '"thought_history_length":2' in seen[1]] == [True, True], "one session for both"


async def test_when_no_provider_answers_the_result_is_our_message(a: Upstream, claude: Claude) -> None:
    a.reply({"error": {"message": "Incorrect API key provided"}}, status=401)

    async with serving(over(a)) as running:
        told = await claude(running)

    assert told.code == 1
    assert told.result["is_error"]
    assert "all 1 providers failed, last error: api error 401" in told.result["result"]
    assert len(a.requests) == 1


async def test_a_stream_that_breaks_off_is_asked_for_again_without_streaming(a: Upstream, claude: Claude) -> None:
    a.stream(role(), delta("Hel"), CUT).reply()

    async with serving(over(a)) as running:
        told = await claude(running)

    assert [seen.json.get("stream", False) for seen in a.requests] == [True, False]
    assert (told.code, told.result["result"]) == (0, "Hello")


async def test_an_anthropic_provider_gets_to_the_byte_what_it_would_get_without_us(a: Upstream, b: Upstream, claude: Claude) -> None:
    for upstream in (a, b):
        upstream.stream(*native({"type": "text", "text": "Hello"}))

    async with serving(over(a, adapter="anthropic")) as running:
        through = await claude(running)
        direct = await claude(Running(f"{b.url}/v1", running.gateway, running.client))

    assert (through.result["result"], direct.result["result"]) == ("Hello", "Hello")
    [got], [wanted] = a.requests, [seen for seen in b.requests if seen.method == "POST"]
    ours = got.raw.replace(b'"model":"a-model"', b'"model":"m"').replace(*session_ids(through, direct))
    assert ours == wanted.raw
    for header in ("anthropic-beta", "anthropic-version", "content-type"):
        assert got.headers[header] == wanted.headers[header], header
    assert not [name for name in got.headers if name.startswith("x-stainless")]


def session_ids(*told: Told) -> list[bytes]:
    return [one.result["session_id"].encode() for one in told]


async def test_signed_thinking_goes_back_as_it_came(a: Upstream, claude: Claude, tmp_path: Path) -> None:
    file = tmp_path / "work" / "weather.txt"
    file.write_text("cloudless\n")
    thinking = {"type": "thinking", "thinking": "I need it", "signature": "Eq+/AbC=="}
    a.stream(*native(thinking, {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": str(file)}}))
    a.stream(*native({"type": "text", "text": "Sunny"}))

    async with serving(over(a, adapter="anthropic")) as running:
        told = await claude(running)

    assert (told.result["result"], len(a.requests)) == ("Sunny", 2)
    [turn] = [message for message in a.requests[1].json["messages"] if message["role"] == "assistant"]
    assert turn["content"][0] == thinking


def native(*blocks: Any) -> list[Any]:
    """The events of a whole answer in Anthropic's own dialect."""
    usage = {"input_tokens": 5, "output_tokens": 3}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "usage": usage}
    said: list[Any] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(blocks):
        empty, deltas = in_pieces(block)
        said.append({"type": "content_block_start", "index": index, "content_block": empty})
        said += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        said.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    said += [{"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}, {"type": "message_stop"}]
    return [(event["type"], event) for event in said]


def in_pieces(block: Any) -> tuple[Any, list[Any]]:
    """A block as it starts, and the deltas that fill it."""
    match block["type"]:
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}, {"type": "signature_delta", "signature": block["signature"]}]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "tool_use":
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
