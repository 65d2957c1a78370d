"""README and docs/agents.md show agents that run, and what went over the wire. `THINKGATE_WRITE_DOCS=1` writes the transcripts anew."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from running import Running, serving
from upstream_double import Upstream, completion, tool_call

from gateway import app, config
from gateway.agent import events, guards, loop, subagent
from gateway.agent.memory import caps, compaction, history
from gateway.agent.work import DEATHS
from gateway.api import agents as api
from gateway.chat import dumps
from gateway.cli import main, parser
from gateway.config import agents as settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "agents.md"
TEXT = PAGE.read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Agents\n")[2].partition("\n## ")[0]
QUESTION = "What is 17 * 23, in words?"
SUM = ("calculator", '{"expression": "17 * 23"}')
TURNS: Mapping[str, Sequence[Any]] = {
    "simple": (SUM, "Three hundred and ninety-one."),
    "react": (
        "Thought: I need the product.\nAction: calculator[17 * 23]\nObservation: 400",
        "Thought: Now in words.\nAction: Finish[Three hundred and ninety-one.]",
    ),
    "two_stage": (
        "I know it by heart.",
        '{"valid": false, "issue": "It guesses instead of calculating.", "plan": ""}',
        "They want the product in words. I will calculate it, then write it out.",
        '{"valid": true, "issue": "", "plan": "1. calculate 2. write it out"}',
        SUM,
        "The product is 391. I write it out.",
        '{"valid": true, "issue": "", "plan": "write 391 out"}',
        "Three hundred and ninety-one.",
    ),
    "reflection": ("391", "It is a number, not words.", "Three hundred and ninety-one."),
    "plan_and_solve": ('```python\n["calculate the product", "write it out in words"]\n```', SUM, "391", "Three hundred and ninety-one."),
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def parsed(block: str, url: str = "http://127.0.0.1:9") -> config.Config:
    head = f"store: sqlite://\nproviders: {{a: {{adapter: openai, base_url: '{url}', api_key: key-of-a-0123456789}}}}\nmodels: {{smart: a/x}}\n"
    return config.parse(head + block, "docs", ROOT, {})


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    (source,) = [block for block in blocks(TEXT, "python") if block.startswith("# tools.py")]
    (tmp_path / "tools.py").write_text(source, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("block", [*blocks(TEXT, "yaml"), *blocks(README, "yaml")], ids=lambda block: block.split("\n")[1].strip()[:30])
def test_every_config_can_be_used(block: str, tools: Path) -> None:
    text = block.replace("python:tools.py", f"python:{tools / 'tools.py'}")
    conf = parsed(text)
    app.check(conf)
    assert conf.agents


# ---- what went over the wire ----


@pytest.mark.parametrize("pattern", settings.PATTERNS)
async def test_the_messages_of_each_pattern_are_those_on_the_wire(a: Upstream, pattern: str) -> None:
    (block,) = [block for block in blocks(TEXT, "yaml") if re.search(rf"^  {pattern}: ", block, re.MULTILINE)]
    says(a, TURNS[pattern])
    async with serving(parsed(block, a.url)) as running:
        answer = (await running.chat({"model": f"agent/{pattern}", "messages": [{"role": "user", "content": QUESTION}]})).json()
    assert answer["choices"][0]["message"]["content"] == "Three hundred and ninety-one."
    assert len(a.requests) == len(TURNS[pattern])
    wanted = "```text\n" + "\n".join(transcript([seen.json for seen in a.requests], TURNS[pattern])) + "\n```\n"
    start, end = f"<!-- wire {pattern} -->\n", f"<!-- /wire {pattern} -->"
    now = PAGE.read_text(encoding="utf-8")
    before, _, rest = now.partition(start)
    old, _, after = rest.partition(end)
    if os.environ.get("THINKGATE_WRITE_DOCS"):
        PAGE.write_text(before + start + wanted + end + after, encoding="utf-8")
        return
    assert old == wanted, f"docs/agents.md: the messages of {pattern} are others; THINKGATE_WRITE_DOCS=1 writes them anew"


def says(upstream: Upstream, turns: Sequence[Any]) -> None:
    for number, turn in enumerate(turns):
        call = None if isinstance(turn, str) else tool_call(turn[0], turn[1], id=f"call_{number}")
        upstream.reply(completion(turn if call is None else None, calls=[call] if call is not None else ()))


def transcript(requests: Sequence[Mapping[str, Any]], turns: Sequence[Any]) -> list[str]:
    out: list[str] = []
    last: list[Any] = []
    seen: dict[bytes, int] = {}
    for number, (request, turn) in enumerate(zip(requests, turns, strict=True), start=1):
        names = ", ".join(tool["function"]["name"] for tool in request.get("tools", ()))
        more = [
            f"tools: {names}" if names else "no tools",
            *(f"{name}: {dumps(request[name]).decode()}" for name in ("tool_choice", "stop") if name in request),
        ]
        out.append(f"--- request {number} ({'; '.join(more)})")
        messages = list(request["messages"])
        same = next((at for at, pair in enumerate(zip(messages, last, strict=False)) if pair[0] != pair[1]), min(len(messages), len(last)))
        if same:
            out.append(f"(the first {same} as above)" if same > 1 else "(the first as above)")
        for message in messages[same:]:
            first = seen.setdefault(dumps(message), number)
            out += told(message) if first == number else [f"{message['role']}: (as in request {first})"]
        last = messages
        out += marked("<", turn if isinstance(turn, str) else f"calls {turn[0]} {turn[1]}")
    return out


def told(message: Mapping[str, Any]) -> list[str]:
    calls = [f"calls {call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls") or ()]
    return marked(f"{message['role']}:", "\n".join([*([message["content"]] if message.get("content") else []), *calls]))


def marked(head: str, text: str) -> list[str]:
    first, *rest = text.split("\n")
    return [f"{head} {first}", *(f"    {line}".rstrip() for line in rest)]


# ---- what the tables say ----


PLACES = ("tools", "question", "history", "task", "content", "last_attempt", "feedback", "plan", "current_step")


@pytest.mark.parametrize("pattern", [name for name, keys in settings.PROMPTS.items() if keys])
async def test_the_places_of_each_prompt_are_those_that_are_filled(a: Upstream, pattern: str) -> None:
    rows = {
        key: set(re.findall(r"\{(\w+)\}", places))
        for name, key, places in re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*?) ?\|$", TEXT, re.MULTILINE)
        if name == pattern
    }
    assert list(rows) == list(settings.PROMPTS[pattern])
    prompts = {key: f"<{key}> " + " ".join(f"<{place}={{{place}}}>" for place in PLACES) for key in rows}
    (block,) = [block for block in blocks(TEXT, "yaml") if re.search(rf"^  {pattern}: ", block, re.MULTILINE)]
    says(a, TURNS[pattern])
    async with serving(parsed(block, a.url)) as running:
        body = {"input": QUESTION, "options": {"prompts": prompts}}
        assert (await running.client.post(f"/v1/agents/{pattern}/runs", json=body)).json()["status"] == "completed"
    sent = [str(message.get("content")) for seen in a.requests for message in seen.json["messages"]]
    for key, places in rows.items():
        (text, *_) = [text for text in sent if text.startswith(f"<{key}> ")]
        assert {place for place in PLACES if f"<{place}={{{place}}}>" not in text} == places, key


def test_every_event_setting_field_and_number_is_the_codes() -> None:
    rows = re.findall(r"^\| (`.*?) \|", TEXT.partition("## Events")[2].partition("## ")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([a-z.]+)`", row)} == set(events.TYPES)
    for name in (field.name for field in settings.THINKING.fields):
        assert f"| `{name}` |" in TEXT, name
    for name in api._FIELDS:
        assert f"`{name}`" in TEXT or f'"{name}"' in TEXT, name
    for name, most in loop.STEPS.items():
        section = TEXT.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert name == "reflection" or f"t most {most} " in section, name
    numbers = (subagent.DEEPEST, guards.SAME_CALLS, guards.SAME_TEXT, guards.EMPTY_TURNS, DEATHS, caps.OUTPUT, caps.WINDOW_SHARE, history.LIMIT)
    assert numbers == (4, 3, 3, 2, 5, 24_000, 5, 100)
    assert (compaction.COMPACT_AT, compaction.TRIM_AT) == (0.5, 0.8)


# ---- commands and programs ----


async def shell(line: str, **env: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"], "no_proxy": "*", **env}
    )
    async with asyncio.timeout(20):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


DEMO = """
store: sqlite://
providers: {demo: {adapter: demo, base_url: "mock://demo?gap=0"}}
models: {demo: demo/demo}
agents:
  simple: {pattern: simple, model: demo, tools: [calculator]}
  two_stage: {pattern: two_stage, model: demo, tools: [calculator]}
  ask: {pattern: simple, model: demo, tools: [calculator], approval: {tools: [calculator]}}
  short: {pattern: simple, model: demo, tools: [calculator], limits: {steps: 1}}
"""


async def begun(running: Running, agent: str) -> str:
    answer = await running.client.post(f"/v1/agents/{agent}/runs", json={"input": "What is 17 * 23?"})
    return str(answer.json()["id"])


async def test_every_line_of_curl_does_what_it_says() -> None:
    lines = [line for block in (*blocks(README, "sh"), *blocks(TEXT, "sh")) for line in block.splitlines() if line.startswith("curl")]
    assert len(lines) == 12
    async with serving(DEMO) as running:
        url = running.url.removesuffix("/v1")
        runs = {"RUN": await begun(running, "simple"), "WAITING": await begun(running, "ask"), "INCOMPLETE": await begun(running, "short")}
        told = [await shell(line.replace("http://127.0.0.1:8080", url), URL=url, **runs) for line in lines]
    for line, said in zip(lines, told, strict=True):
        if "/events" in line:
            assert "event: run.finished\n" in said, line
            assert said.startswith("id: 4\n" if "Last-Event-ID: 3" in line else "id: 1\n"), line
        else:
            assert '"object":"run"' in said, (line, said)
    assert sum('"output":"Here is what I found' in said for said in told) >= 3


async def test_the_readmes_program_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block for block in blocks(README, "python") if "client." in block]
    conf = DEMO.replace("  two_stage:", "  analyst:")
    async with serving(conf) as running:
        client = OpenAI(base_url=running.url, api_key="none")
        await asyncio.to_thread(exec, program, {"client": client})
        client.close()
        kept = (await running.client.get("/v1/sessions/order-7")).json()
    assert capsys.readouterr().out == "Here is what I found with calculator (17 * 23): 391"
    assert kept["messages"][0]["content"] == "What is 17 * 23?"


def test_the_command_of_the_readme_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (line,) = [line.partition("#")[0] for block in blocks(README, "sh") for line in block.splitlines() if line.startswith("thinkgate")]
    (tmp_path / "demo.yaml").write_text(DEMO, encoding="utf-8")
    assert main([*shlex.split(line)[1:], "-c", str(tmp_path / "demo.yaml")]) == 0
    assert capsys.readouterr().out.endswith("391\n")
    (inline,) = re.findall(r"`thinkgate (agent run [^`]+)`", TEXT)
    parser().parse_args(shlex.split(inline))
