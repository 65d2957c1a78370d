"""`thinkgate agent run`: an agent in the terminal, what it thinks and does as it happens."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import aclosing
from functools import partial

from gateway import app
from gateway.agent import Delta, Elsewhere, Event, Live, Order, answers_message, shown
from gateway.chat import Json, dumps
from gateway.errors import NotFound

_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    run = actions.add_parser("run", help="give an agent a task, and watch it")
    run.add_argument("name", help="the agent's name in the config")
    run.add_argument("task", help="what it shall do")
    run.add_argument("-c", "--config", metavar="FILE", help="the config; without it the embedded default's agents")
    run.add_argument("--session", metavar="ID", help="go on with this conversation, or begin it")
    run.add_argument("--json", action="store_true", help="print the events as JSON, one a line; approvals are read from stdin as JSON")
    run.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        return asyncio.run(_work(args))
    except KeyboardInterrupt:
        return 130


async def _work(args: argparse.Namespace) -> int:
    """0: the task is done, 1: the run ended in another way."""
    gate = app.Gateway(partial(app.read_config, args.config))
    await asyncio.to_thread(gate.read_prices)
    if not gate.runs.knows(args.name):
        known = ", ".join(gate.config.agents) or "none"
        raise NotFound(f'there is no agent "{args.name}"; the config has: {known}')
    screen = JsonLines() if args.json else Screen(gate.config.agents[args.name].thinking.visibility)
    order = Order(agent=args.name, messages=[{"role": "user", "content": args.task}], session_id=args.session, appends=True)
    async with gate.opened(work=False):
        while True:
            live = await gate.runs.begin(order)
            try:
                async with aclosing(live.listen()) as items:
                    async for item in items:
                        screen.show(item)
            except asyncio.CancelledError:  # Ctrl-C ends the run, also one of a session
                if isinstance(live, Live):
                    await live.cancel()
                screen.end(live)
                raise
            if live.row.status != "waiting":
                screen.end(live)
                return 0 if live.row.status == "completed" else 1
            answers = [answers_message(call["id"], await asyncio.to_thread(screen.ask, call)) for call in (live.row.waiting or {}).get("calls", ())]
            order = Order(agent=args.name, messages=answers, answers=answers)


class JsonLines:
    """Every event as a line of JSON; the last one is the run."""

    def show(self, item: Event | Delta) -> None:
        if isinstance(item, Event):
            print(dumps(item.public()).decode(), flush=True)

    def ask(self, call: Json) -> Json:
        line = sys.stdin.readline()
        return {"approved": False, "reason": "nobody answered"} if not line.strip() else _said(line)

    def end(self, live: Live | Elsewhere) -> None:
        print(dumps(live.row.public()).decode(), flush=True)


class Screen:
    """For people. Thoughts and tools go to stderr, the answer to stdout, so that it can be piped on."""

    def __init__(self, visibility: str) -> None:
        self._visibility = visibility
        self._streamed = False
        self._open = False
        """the last line on the terminal has no end yet"""
        self._branches: dict[str, int] = {}
        self._todos: dict[str, str] = {}
        self._faint = ("\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "")

    def show(self, item: Event | Delta) -> None:
        if isinstance(item, Delta):
            self._piece(item)
        elif (seen := shown(item, self._visibility)) is not None:
            for line in self._lines(seen):
                self._tell(line, 1 if seen.inner is None else 2)

    def _piece(self, delta: Delta) -> None:
        if delta.kind == "content":
            if self._open and not self._streamed:
                self._break()
            self._streamed = self._open = True
            sys.stdout.write(delta.text)
            sys.stdout.flush()
        elif delta.kind == "summary" and self._visibility == "summary":
            for line in delta.text.splitlines():
                if not any(todo in line for todo in self._todos):  # the list shows it
                    self._tell(line)
        elif delta.kind == "reasoning" and self._visibility == "full":
            self._open = not delta.text.endswith("\n")
            print("".join((self._faint[0], delta.text, self._faint[1])), end="", file=sys.stderr, flush=True)

    def _tell(self, line: str, depth: int = 1) -> None:
        if self._open and (not self._streamed or sys.stdout.isatty()):
            self._break()
        print("  " * depth + line, file=sys.stderr)

    def _break(self) -> None:
        print(file=sys.stderr)
        self._open = False

    def _lines(self, event: Event) -> list[str]:
        data = event.data
        quiet = data.get("name") in ("sequential_thinking", "todo_write") and data.get("ok", True)  # thoughts and the list show what they did
        if event.type == "thought" and event.key.count("#"):  # of the thinking tool; a pattern's own thoughts come as pieces
            return [self._thought(data)]
        if event.type == "phase.started":
            return [f"[{data['phase']}]" + (f" {data['step']}/{data['of']} {data['task']}" if "of" in data else "")]
        if event.type == "phase.finished":
            return self._phase(data)
        if event.type == "tool.started" and not quiet:
            return [f"{data['name']} {_short(dumps(data['arguments']).decode())}"]
        if event.type == "tool.finished" and not quiet:
            return [f"{data['name']} {'->' if data['ok'] else 'failed:'} {_short(str(data['output']))} ({data['ms']} ms)"]
        if event.type == "todo.updated":
            return self._changes(data["todos"])
        if event.type == "usage":
            total, cost = data["total"].get("total_tokens", 0), data["total_cost"]
            return [f"{self._faint[0]}{total} tokens{f', {cost:.4f} USD' if cost is not None else ''}{self._faint[1]}"]
        if event.type == "fallback":
            return [f"{data['from']} failed ({data['class']}), asking {data['to']}"]
        if event.type == "context.compacted":
            return [f"the conversation was made shorter ({data['how']})"]
        return []

    def _phase(self, data: Json) -> list[str]:
        """What a phase came to, where no thought tells it."""
        if data.get("error"):
            return [f"[{data['phase']}] failed: {_short(str(data['error']))}"]
        if isinstance(data.get("plan"), list):
            self._todos |= dict.fromkeys(data["plan"], "")
        if data["phase"] == "critic":
            return [f"refused: {_short(str(data['issue']))}" if data.get("issue") else "accepted"]
        if "result" in data and data.get("step") != data.get("of"):
            return [f"= {_short(str(data['result']))}"]
        return []

    def _changes(self, todos: list[Json]) -> list[str]:
        """The todos that are new or have another status."""
        changed = [todo for todo in todos if self._todos.get(todo["content"]) != todo["status"]]
        self._todos |= {todo["content"]: todo["status"] for todo in changed}
        return [f"[{_MARKS.get(todo['status'], ' ')}] {todo['content']}" for todo in changed]

    def _thought(self, data: Json) -> str:
        """A thought with its place in the tree: branches are drawn to the right of what they branch from."""
        branch = data.get("branch_id")
        depth = 0 if branch is None else self._branches.setdefault(str(branch), len(self._branches) + 1)
        head = f"{data.get('thought_number')}/{data.get('total_thoughts')}"
        if branch is not None:
            head += f" {branch} (from {data.get('branch_from_thought')})"
        if data.get("revises_thought"):
            head += f" {data.get('revision_type') or 'amend'} {data['revises_thought']}"
        return f"{'| ' * depth}{head}: {_short(str(data.get('thought')), 400)}"

    def ask(self, call: Json) -> Json:
        request = call["arguments"]
        if self._open:
            self._break()
        print(f"{request['reason']}\n  {request['tool']} {dumps(request['arguments']).decode()}", file=sys.stderr)
        print("Approve? [y]es, [n]o, or why not: ", end="", file=sys.stderr, flush=True)
        said = sys.stdin.readline().strip()
        if said.lower() in ("y", "yes"):
            return {"approved": True}
        return {"approved": False, **({"reason": said} if said.lower() not in ("", "n", "no") else {})}

    def end(self, live: Live | Elsewhere) -> None:
        row = live.row
        if not self._streamed and row.output:
            sys.stdout.write(row.output)
        sys.stdout.write("\n")
        sys.stdout.flush()
        told = f"{row.status}{f' ({row.reason})' if row.reason else ''}, {row.steps} steps, {row.usage.get('total_tokens', 0)} tokens"
        print(told + (f", {row.cost:.4f} USD" if row.cost is not None else "") + f"  {row.id}", file=sys.stderr)
        if row.error is not None:
            print(f"error: {row.error.get('message')}", file=sys.stderr)


def _said(line: str) -> Json:
    import json

    try:
        value = json.loads(line)
    except ValueError:
        return {"approved": False, "reason": line.strip()}
    return value if isinstance(value, dict) else {"approved": value is True}


def _short(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
