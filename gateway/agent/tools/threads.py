"""Plain functions of tools run in threads of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from gateway.errors import Overloaded

MOST = 256
"""threads of tools at a time"""

_alive = 0
_lock = threading.Lock()


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """What the function gives back or raises. Whoever stops waiting leaves it behind: a thread cannot be stopped.

    Not the event loop's pool: a few tools that never return would hold all of its threads, and
    with them every look-up of a host's name in this process. Overloaded where MOST are running.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()
    _enter()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # no future takes one
            future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            future.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = context.run(function, *args)
        except BaseException as error:
            failure = error
        finally:
            _leave()
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:  # the loop has ended, nobody waits
            pass

    try:
        threading.Thread(target=work, name="thinkgate-tool", daemon=True).start()
    except BaseException:
        _leave()
        raise
    return await future


def _enter() -> None:
    global _alive
    with _lock:
        if _alive >= MOST:
            raise Overloaded(f"{MOST} tool calls are still running")
        _alive += 1


def _leave() -> None:
    global _alive
    with _lock:
        _alive -= 1
