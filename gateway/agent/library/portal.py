"""An event loop in a thread of its own: how code without one calls code that needs one, and how one loop reaches another."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()
_LOOK = 1.0  # seconds between two looks whether the loop is still there


class Portal:
    """The thread begins with the first call and ends with `close`; a later call begins another one."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread = self._loop = self._stop = None
        self._process = os.getpid()

    @property
    def elsewhere(self) -> bool:
        """Whether this is a fork of the process in which the thread runs."""
        return self._process != os.getpid()

    def inside(self) -> bool:
        """Whether the caller is in the portal's own thread."""
        return threading.current_thread() is self._thread

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine, made and run in the portal's loop. What interrupts the caller cancels it."""
        if self.inside():
            return self._beside(lambda other: other.call(make))
        future = asyncio.run_coroutine_threadsafe(_made(make), self._opened())
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("it was closed while it ran") from None
        except BaseException:
            future.cancel()
            raise

    async def acall(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same for a caller with a loop of its own, which goes on meanwhile."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_made(make), self._opened()))

    def iterate(self, make: Callable[[], AsyncGenerator[T]]) -> Generator[T]:
        """The items of an async generator. Whoever stops early closes it, and waits until that is done."""
        if self.inside():
            yield from self._beside(lambda other: list(other.iterate(make)))
            return
        loop, items = self._opened(), queue.SimpleQueue[Any]()
        pump = _Pump(loop, make, items.put)
        try:
            while (item := _next(items, loop)) is not _END:
                yield item
            pump.result()
        finally:
            if pump.cancel() and not self.inside():
                while _next(items, loop) is not _END:
                    pass

    async def aiterate(self, make: Callable[[], AsyncGenerator[T]]) -> AsyncGenerator[T]:
        """The same for a caller with a loop of its own."""
        here, items, news = asyncio.get_running_loop(), deque[Any](), asyncio.Event()

        def put(item: Any) -> None:
            items.append(item)
            if not here.is_closed():
                here.call_soon_threadsafe(news.set)

        pump = _Pump(self._opened(), make, put)
        try:
            while True:
                while items:
                    item = items.popleft()
                    if item is _END:
                        pump.result()
                        return
                    yield item
                news.clear()
                if not items:
                    await news.wait()
        finally:
            if pump.cancel():
                while _END not in items:
                    news.clear()
                    if _END not in items:
                        await news.wait()

    def close(self) -> None:
        """End the thread: what runs is cancelled, async generators are closed. Nothing to do where there is none."""
        if self.elsewhere:
            return
        with self._lock:
            thread, loop, stop = self._thread, self._loop, self._stop
            self._thread = self._loop = self._stop = None
        if thread is None or loop is None or stop is None:
            return
        loop.call_soon_threadsafe(stop.set)
        if threading.current_thread() is not thread:
            thread.join()

    def _opened(self) -> asyncio.AbstractEventLoop:
        if self.elsewhere:  # a fork has one thread, the one that forked
            self._begin()
        with self._lock:
            if self._loop is None:
                ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
                self._thread = threading.Thread(target=_serve, args=(ready,), name="thinkgate library", daemon=True)
                self._thread.start()
                self._loop, self._stop = ready.result()
            return self._loop

    @staticmethod
    def _beside(work: Callable[[Portal], T]) -> T:
        """A call from the portal's own loop, by a coroutine that calls what is not async: its loop stands still, so another one does the work."""
        other = Portal()
        try:
            return work(other)
        finally:
            other.close()


class _Pump:
    """A task in another thread's loop that gives the items of an async generator to `put`, and _END when it is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], AsyncGenerator[Any]], put: Callable[[Any], None]) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._over = False

        async def work() -> None:
            async with aclosing(make()) as source:
                async for item in source:
                    put(item)

        def over(task: asyncio.Task[None]) -> None:
            self._over = True
            put(_END)

        def start() -> None:
            self._task = loop.create_task(work())
            self._task.add_done_callback(over)

        loop.call_soon_threadsafe(start)

    def result(self) -> None:
        """Raise what ended the generator, if it did not end by itself."""
        assert self._task is not None
        if self._task.cancelled():
            raise RuntimeError("it was closed while it was read")
        self._task.result()

    def cancel(self) -> bool:
        """End it. False: it is over, or its loop is."""
        if self._over or self._loop.is_closed():
            return False
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())
        return True


def _serve(ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def wait() -> None:
        stop = asyncio.Event()
        ready.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    asyncio.run(wait())


async def _made(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await make()


def _next(items: queue.SimpleQueue[Any], loop: asyncio.AbstractEventLoop) -> Any:
    while True:
        try:
            return items.get(timeout=_LOOK)
        except queue.Empty:
            if loop.is_closed():
                raise RuntimeError("it was closed while it was read") from None
