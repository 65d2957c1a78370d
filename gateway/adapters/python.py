"""Adapter files in Python: trusted code, run once when it is loaded, with real dicts and no budget."""

from __future__ import annotations

import builtins
import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import Any

from gateway.adapters.helpers import Here
from gateway.adapters.hooks import DATA, HOOKS, Context, log, thaw
from gateway.chat import dumps
from gateway.errors import AdapterError, GatewayError

SLOW = 0.05
"""Seconds in a hook from which on the call is logged: it held up every other request for that long."""


class PythonFile:
    """One adapter file in Python: what it declares, and its hooks as functions.

    `name` stands in messages (`adapters/anthropic.py`). AdapterError with the line if the
    file cannot be run.
    """

    returned = False

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        self.name = name
        self._path = str(path)
        self._here = Here()
        names = self._here.names()
        module: dict[str, Any] = {"__name__": f"thinkgate_adapter_{path.stem}", "__file__": self._path, "__builtins__": builtins, **names}
        self._execute(source, module)
        own = {key: value for key, value in module.items() if not (key in names and names[key] is value) and not key.startswith("_")}
        self.data: Mapping[str, Any] = {key: own[key] for key in DATA if key in own}
        self.lines: Mapping[str, int] = {key: self._line(key, own[key]) for key in HOOKS if key in own}
        self.others: list[str] = sorted(key for key, value in own.items() if key not in DATA and key not in HOOKS and self._from_here(value))
        self._hooks: dict[str, Callable[..., Any]] = {key: own[key] for key in self.lines}

    def hook(self, name: str) -> Callable[..., Any]:
        """The hook as a function of its arguments, the Context last."""
        function, here = self._hooks[name], self._here
        takes_ctx = _takes(function, _ARGUMENTS[name])

        def call(*args: Any) -> Any:
            ctx: Context = args[-1]
            here.body, here.ctx = args[0], ctx
            started = perf_counter()
            try:
                return _json(function(*args) if takes_ctx else function(*args[:-1]))
            except GatewayError:
                raise
            except (Exception, SystemExit) as error:
                raise AdapterError(self._located(name, error)) from error
            finally:
                here.body = here.ctx = None
                took = perf_counter() - started
                if took > SLOW:
                    log.warning("%s: %s took %.0f ms; every other request waited", self.name, name, took * 1000)

        return call

    def _execute(self, source: bytes, module: dict[str, Any]) -> None:
        try:
            exec(compile(source, self._path, "exec", dont_inherit=True), module)  # noqa: S102 - an adapter in Python is trusted code of the operator
        except SyntaxError as error:
            raise AdapterError(f"{self.name}:{error.lineno or 1}: {error.msg}") from None
        except (Exception, SystemExit) as error:
            raise AdapterError(self._located("", error)) from error

    def _line(self, name: str, value: Any) -> int:
        if not callable(value):
            raise AdapterError(f"{self.name}: {name} must be a function, it is a {type(value).__name__}")
        line = getattr(getattr(value, "__code__", None), "co_firstlineno", 1)
        if inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
            raise AdapterError(f"{self.name}:{line}: {name} must be a plain function, neither async nor a generator")
        return int(line)

    def _from_here(self, value: Any) -> bool:
        """Whether a name may be a misspelt hook or datum: a function of this file, or plain data."""
        if isinstance(value, FunctionType):
            return value.__code__.co_filename == self._path
        return isinstance(value, (str, int, float, list, tuple, dict))

    def _located(self, hook: str, error: BaseException) -> str:
        """The failure with the file's innermost line in the traceback."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._path]
        line = lines[-1] if lines else self.lines.get(hook, 1) if hook else 1
        return f"{self.name}:{line}: {hook + ': ' if hook else ''}{type(error).__name__}: {error}"[:400]


_ARGUMENTS = {name: {"finish": 1, "repair": 3}.get(name, 2) for name in HOOKS}
"""How many arguments a hook is called with, ctx included."""


def _json(value: Any) -> Any:
    """The value, with options of `ctx` in it as plain JSON. ValueError if it has no JSON form."""
    try:
        dumps(value)
    except ValueError:
        value = thaw(value)
        dumps(value)
    return value


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it takes all its arguments; `def transform_request(req)` may leave out ctx."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # no signature to be had
        return True
    return True
