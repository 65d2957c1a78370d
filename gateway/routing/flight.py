"""One answer that several equal requests read while it comes: the one place of the cache that makes a task.

The task belongs to nobody's request, so that it can go on when the client leaves whose request
it was; when nobody reads any more it is cancelled. The reader who is furthest sets the pace:
nothing is fetched before somebody has read all that came, so clients that do not read slow
the provider down here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from gateway.chat import Accumulator, Chunk, Model, Request
from gateway.errors import Overloaded, StreamCut

BUFFER = 4 * 1024 * 1024
"""bytes of an answer that can be joined; of a larger one each reader may be so far behind the first"""


class Flight:
    """The answer of `model` to `request`, whose record is written as ever.

    over      nothing more comes
    error     what it ended with; None: it is complete
    whole     every chunk is still held, so somebody may still join
    sum       what the chunks of a chat stream come to
    orphan    the client whose request it is left before the end
    `ended` is called once, as soon as nobody may join any more.
    """

    def __init__(self, model: Model, request: Request, ended: Callable[[Flight], None], sum: Accumulator | None = None) -> None:
        self.request = request
        self.over = False
        self.whole = True
        self.orphan = False
        self.error: Exception | None = None
        self.sum = sum
        self.chunks: list[Chunk] = []
        self._ended = ended
        self._size = 0
        self._gone = 0  # chunks that are held no more
        self._places: dict[object, int] = {}
        self._news = asyncio.Event()
        self._hungry = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(model))

    async def read(self) -> AsyncGenerator[Chunk]:
        """All chunks from the first on, in copies of the reader's own. Raises what the answer ended with, StreamCut where the reader fell too far behind."""
        me = object()
        self._places[me] = 0
        try:
            while True:
                while (at := self._places[me] - self._gone) < len(self.chunks):
                    if at < 0:
                        raise StreamCut("overload", "this client read its answer too slowly")
                    self._places[me] += 1
                    chunk = self.chunks[at]
                    yield Chunk(chunk.data, event=chunk.event, whole=chunk.whole, content=chunk.content, more=chunk.more)
                if self.over:
                    break
                news = self._news
                self._hungry.set()
                await news.wait()
            if self.error is not None:
                raise self.error
        finally:
            del self._places[me]
            if not self._places:
                await self._stop()

    async def _run(self, model: Model) -> None:
        try:
            async with aclosing(model.generate(self.request)) as chunks:
                async for chunk in chunks:
                    self._hungry.clear()
                    self._take(chunk)
                    if chunk.whole:
                        continue  # it is complete with its end: who has it may leave, and then there must be one
                    self._wake()
                    if not chunk.more or self._size > BUFFER:
                        await self._hungry.wait()
        except asyncio.CancelledError:
            self.error = Overloaded("the gateway is shutting down", code="shutting_down")
            raise
        except Exception as error:  # the readers' to handle, whatever it is
            self.error = error
        finally:
            self.over = True
            self._wake()
            self._close()

    def _take(self, chunk: Chunk) -> None:
        if self._size > BUFFER:
            self._trim()
        if self.sum is not None and self.whole:
            self.sum.add(chunk.json())
        self.chunks.append(Chunk(chunk.data, event=chunk.event, whole=chunk.whole, content=chunk.content, more=chunk.more))
        self._size += len(chunk.data)
        if self._size > BUFFER:
            self.whole = False
            self._close()

    def _trim(self) -> None:
        """Let go of what everybody has read, and of what makes more than a buffer; somebody has read it all."""
        least = min(self._places.values(), default=0) - self._gone
        drop = 0
        while drop < len(self.chunks) and (drop < least or self._size > BUFFER):
            self._size -= len(self.chunks[drop].data)
            drop += 1
        del self.chunks[:drop]
        self._gone += drop

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _close(self) -> None:
        """Nobody may join any more."""
        ended, self._ended = self._ended, _nothing
        ended(self)

    async def _stop(self) -> None:
        """Nobody reads: the provider need not go on."""
        self._close()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))


def _nothing(flight: Flight) -> None:
    """What comes after the end."""
