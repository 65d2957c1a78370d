"""What a hook costs: CPU microseconds a call, the best and the median of many, as a Markdown table.

    python bench/hooks.py

The body is a chat request of 100 messages, 50 KB, with 5 tools. Parsing it is the first
line, for scale, and in no other. Each call gets a fresh body, as in the gateway, so that
its caches are as cold as there.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gateway.adapters import Context, Hooks
from gateway.adapters.loader import load
from gateway.chat import dumps, loads
from gateway.config import HookBudget

ROUNDS = 500

CHUNK: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "some words", "reasoning": "some thought"}, "finish_reason": None}],
}

HELPERS = """
  req.thinking = { type = "disabled" }
  hoist(req, "extra_body")
  if has_tools(req) then each_assistant(req, { reasoning_content = "" }) end
"""
EACH = 'each_assistant(req, function(m) if m.reasoning_content == nil then m.reasoning_content = "" end end)'
LOOP = 'for _, m in ipairs(req.messages) do if m.role == "assistant" and m.reasoning_content == nil then m.reasoning_content = "" end end'

REQUESTS = [
    ("Lua: a hook that does nothing", "lua", ""),
    ("Lua: reads one field", "lua", "local _ = req.model"),
    ("Lua: sets one field", "lua", "req.x = 1"),
    ("Lua: sets a table, hoists, fills 50 of 100 messages through helpers", "lua", HELPERS),
    ("Lua: each_assistant with a function, 50 messages filled", "lua", EACH),
    ("Lua: loop over all 100 messages, 50 filled", "lua", LOOP),
    ("Lua: the last message's role", "lua", "local _ = req.messages[#req.messages].role"),
    ("Python: a hook that does nothing", "py", "pass"),
    (
        "Python: sets a table, fills 50 of 100 messages through helpers",
        "py",
        'req["thinking"] = {"type": "disabled"}; each_assistant(req, {"reasoning_content": ""})',
    ),
]

CHUNKS = [
    ("Lua: transform_chunk that reads the delta", "lua", "local _ = req.choices[1].delta.content"),
    ("Lua: transform_chunk that moves a field of the delta", "lua", "local d = req.choices[1].delta d.reasoning_content = d.reasoning d.reasoning = nil"),
    (
        "Lua: transform_chunk with a splitter in ctx.state",
        "lua",
        "ctx.state.s = ctx.state.s or think_splitter() local d = req.choices[1].delta d.reasoning_content, d.content = ctx.state.s:feed(d.content)",
    ),
    ("Python: transform_chunk that moves a field of the delta", "py", 'd = req["choices"][0]["delta"]; d["reasoning_content"] = d.pop("reasoning", None)'),
]


def body() -> dict[str, Any]:
    """100 messages, 50 KB, 5 tools."""
    text = ("the quick brown fox jumps over the lazy dog " * 11)[:460]
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{i}", "description": "d" * 80, "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
        }
        for i in range(5)
    ]
    messages = [{"role": "assistant" if i % 2 else "user", "content": text} for i in range(100)]
    return {"model": "m", "temperature": 0.7, "messages": messages, "tools": tools}


def hooks(folder: Path, language: str, hook: str, code: str) -> Hooks:
    """The hooks of a file whose one hook is this code."""
    path = folder / f"bench.{language}"
    lua = f"function {hook}(req, ctx)\n{code}\nreturn req\nend\n"
    python = f"def {hook}(req, ctx):\n    {code}\n    return req\n"
    path.write_text(lua if language == "lua" else python, "utf-8")
    return Hooks(load(path, HookBudget()))


def measure(call: Callable[[Any], Any], make: Callable[[], Any]) -> tuple[float, float]:
    """Best and median of the CPU microseconds that one call takes."""
    times = []
    for _ in range(ROUNDS):
        given = make()
        started = time.thread_time()
        call(given)
        times.append((time.thread_time() - started) * 1e6)
    return min(times), statistics.median(times)


def rows(folder: Path) -> Iterator[tuple[str, float, float]]:
    raw, chunk, ctx = dumps(body()), dumps(CHUNK), Context(provider="p", model="m")
    yield "parsing the 50 KB", *measure(loads, lambda: raw)
    for name, language, code in REQUESTS:
        own = hooks(folder, language, "transform_request", code)
        yield name, *measure(partial(own.transform_request, ctx=ctx), lambda: loads(raw))
    for name, language, code in CHUNKS:
        own = hooks(folder, language, "transform_chunk", code)
        yield name, *measure(partial(own.transform_chunk, ctx=ctx), lambda: loads(chunk))
    path = folder / "bench.lua"
    yield "loading a Lua file (a new state)", *measure(lambda _: load(path, HookBudget()), lambda: None)


def main() -> None:
    print("| what | best, us | median, us |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, best, median in rows(Path(folder)):
            print(f"| {name} | {best:.1f} | {median:.1f} |", flush=True)


if __name__ == "__main__":
    main()
