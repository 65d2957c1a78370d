"""Adapter files in Lua: one sandboxed Lua 5.4 state for each file, and the call of a hook.

The parts: patterns.lua, budget.lua and library.lua (what a script may do, and what it may
cost), views.lua, changes.lua and calls.lua (documents as Lua tables, and the call of a
hook), bridge.py (the host's side of the views), and here the state's life. A state lives as long as its file stays as it is; a call that spent its budget, or
ended in another way than by an ordinary error, costs the state, and the next call gets a
new one (some milliseconds), so that no damage is handed on.

Lua 5.4 by name: `import lupa` takes the newest, and LuaJIT neither has integers nor runs
instruction hooks in compiled code. All functions that reach outside are removed from the
real globals too, `debug` among them: lupa looks there for a traceback at every call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lupa import lua54

from gateway.adapters.bridge import Document
from gateway.adapters.hooks import DATA, HOOKS, Context
from gateway.config import HookBudget
from gateway.errors import AdapterError

RESERVE = 6 * 1024 * 1024
"""Bytes above the memory budget that only the host's own pushes may use: an allocation that fails inside them ends the process."""

_LONGEST = 256 * 1024  # bytes of source
_NAME = 55  # characters of a file's name that Lua keeps in messages
_DANGEROUS = (
    *("collectgarbage", "coroutine", "debug", "dofile", "getmetatable", "io", "load", "loadfile", "loadstring", "math", "module", "newproxy"),
    *("os", "package", "pcall", "print", "python", "rawequal", "rawget", "rawlen", "rawset", "require", "setmetatable", "string", "table", "utf8"),
    *("warn", "xpcall"),
)


class LuaFile:
    """One adapter file in Lua: what it declares, and its hooks as functions.

    `name` stands in messages (`adapters/deepseek.lua`). AdapterError with the line if the
    text cannot be loaded.
    """

    def __init__(self, name: str, text: str, budget: HookBudget) -> None:
        self.name = name
        self._text = text
        self._budget = budget
        self._lock = threading.Lock()
        self._state: _State | None = None
        if len(text) > _LONGEST:
            raise AdapterError(f"{name}: larger than {_LONGEST // 1024} KiB")
        declared = self._ready().declared
        self.data: Mapping[str, Any] = declared["data"]
        self.lines: Mapping[str, int] = declared["hooks"]
        self.others: list[str] = declared["others"]
        self.returned: bool = declared["returned"]

    def hook(self, name: str) -> Callable[..., Any]:
        """The hook as a function of its arguments, the Context last."""
        label = _ARGUMENTS.get(name, ())

        def call(*args: Any) -> Any:
            with self._lock:
                return self._call(name, label, args[:-1], args[-1])

        return call

    def _call(self, hook: str, labels: tuple[str, ...], args: tuple[Any, ...], ctx: Context) -> Any:
        state = self._ready()
        try:
            return state.call(hook, labels, args, ctx)
        except _Failed as failed:
            if failed.fatal:
                self._state = None
            if failed.skip is not None:
                ctx.skip(failed.skip)
            raise AdapterError(self._located(hook, failed.message)) from None
        finally:
            if self._state is not None and state.bloated():
                self._state = None

    def _ready(self) -> _State:
        if self._state is None:
            try:
                self._state = _State(self.name, self._text, self._budget)
            except _Failed as failed:
                raise AdapterError(self._located("", failed.message)) from None
        return self._state

    def _located(self, hook: str, message: str) -> str:
        """With file and line: the line of the failure where Lua told it, else the hook's own."""
        if message.startswith(f"{self.name}:"):
            return message[:400]
        return f"{self.name}:{self.lines[hook]}: {hook}: {message}"[:400] if hook else f"{self.name}:1: {message}"[:400]


_ARGUMENTS = {"classify_error": ("error",)}
"""What a hook's first argument is called in paths; where nothing stands the path starts with the field."""


class _Failed(Exception):
    """A call did not end well. `fatal`: the state is not to be used again."""

    def __init__(self, message: str, *, fatal: bool = False, skip: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fatal = fatal
        self.skip = skip


class _State:
    """One Lua state with the file loaded in it."""

    __slots__ = ("_budget", "_changes", "_collect", "_document", "_ended", "_limit", "_run", "_runtime", "_unhook", "declared")

    def __init__(self, name: str, text: str, budget: HookBudget) -> None:
        self._document = Document()
        self._budget = (budget.instructions, float(budget.time), budget.memory)
        self._runtime = runtime = lua54.LuaRuntime(
            encoding="utf-8",
            register_eval=False,
            register_builtins=False,
            attribute_handlers=(_deny, _deny),
            unpack_returned_tuples=True,
            max_memory=1 << 40,
        )
        self._unhook = runtime.globals().debug.sethook
        patterns, sandbox, views = (runtime.execute(f"return function(...) {part}\nend", name="=gateway", mode="t") for part in _chunks())
        box = sandbox(patterns())
        functions = views(box, runtime.table_from(self._document.functions()))
        for word in _DANGEROUS:
            runtime.globals()[word] = None
        self._run, self._changes = functions.run, functions.changes
        self._collect, self._ended = box.collect, box.why
        self._limit_memory(box, budget)
        self.declared: dict[str, Any] = self._finish(functions.load, text, name, f" {' '.join(DATA)} ", f" {' '.join(HOOKS)} ")

    def _limit_memory(self, box: Any, budget: HookBudget) -> None:
        self._collect()
        used = self._runtime.get_memory_used(total=True)
        texts = {
            "instructions": f"{budget.instructions} instructions",
            "time": f"{budget.time * 1000:g} ms",
            "memory": f"{budget.memory / 1048576:g} MiB of memory",
        }
        box.limit(used + budget.memory, self._runtime.table_from(texts))
        self._limit = used + budget.memory // 2
        self._runtime.set_max_memory(used + budget.memory + RESERVE, total=True)

    def bloated(self) -> bool:
        """Whether the script keeps so much that a call would no longer have its budget."""
        if self._runtime.get_memory_used(total=True) <= self._limit:
            return False
        self._collect()
        return bool(self._runtime.get_memory_used(total=True) > self._limit)

    def call(self, hook: str, labels: tuple[str, ...], args: tuple[Any, ...], ctx: Context) -> Any:
        document = self._document
        document.begin(ctx)
        pushed: list[Any] = []
        for at, value in enumerate(args):
            mark = document.root(labels[at] if at < len(labels) else "", value)
            pushed += (mark, None if mark else value)
        try:
            return self._finish(self._run, hook, len(args), *pushed)
        finally:
            document.end()

    def _finish(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run, carry out the changes, and give the result."""
        try:
            results = function(*self._budget, *args)
        except Exception as error:
            self._unhook()  # a C function: no instruction runs that a spent budget could stop
            self._broken(error)
        if results[0] is not True:
            _, how, message = results
            raise _Failed(message, fatal=how == "spent" or "stack overflow" in message or "error handling" in message, skip=message if how == "skip" else None)
        if len(results) > 3:
            self._apply(results[3], results[4:])
        return self._document.nodes[results[2]] if results[1] == 1 else results[2]

    def _apply(self, more: int | None, changes: Sequence[Any]) -> None:
        document, limit = self._document, self._budget[2]
        while True:
            try:
                fault = document.change(changes)
            except RecursionError:
                fault = "a value is nested too deeply"
            if fault is None and document.grown(changes, limit):
                fault = f"ctx.state holds more than {limit / 1048576:g} MiB"
            if fault:
                raise _Failed(fault)
            if more is None:
                return
            more, *changes = self._changes(more)

    def _broken(self, error: Exception) -> NoReturn:
        """The error left the sandbox's own hands: a spent budget does, and running out of memory in an awkward place."""
        if isinstance(error, lua54.LuaMemoryError):
            raise _Failed("budget spent: memory", fatal=True) from None
        try:
            message = str(self._ended())
        except Exception:
            message = "the hook was stopped"
        raise _Failed(message, fatal=True) from None


@cache
def _chunks() -> tuple[str, ...]:
    """Our own Lua: the files of one chunk share their locals."""
    here = Path(__file__).parent
    chunks = (("patterns",), ("budget", "library"), ("views", "changes", "calls"))
    return tuple("\n".join((here / f"{part}.lua").read_text("utf-8") for part in parts) for parts in chunks)


def _deny(*_: Any) -> NoReturn:
    raise AttributeError("denied")


def lua_name(display: str) -> str:
    """A file's name as it fits into Lua's messages."""
    plain = display.encode("ascii", "backslashreplace").decode()
    return plain if len(plain) <= _NAME else plain[-_NAME:]
