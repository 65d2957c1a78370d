"""What can be closed, in a `with` and in an `async with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Closes itself at the end of the block; subclasses write `close` and `aclose`."""

    def close(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how it is closed")

    async def aclose(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how it is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()
