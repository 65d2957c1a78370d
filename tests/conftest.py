from __future__ import annotations

import gc
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from upstream_double import Upstream

if TYPE_CHECKING:
    from servers import Postgres, Valkey

_LOOPBACK = ("127.", "::1", "localhost")


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """What thousands of tests left is no work for the garbage collector: its pauses would be longer than the time-outs of later tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def nobody_outside() -> Iterator[None]:
    """A test that tries to reach another machine fails where it tries."""
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not str(address[0]).startswith(_LOOPBACK):
            raise AssertionError(f"a test wanted to reach {address[0]}")
        real(self, address)

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", connect)
    yield
    patch.undo()


@pytest.fixture
async def a() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def b() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    from servers import Postgres

    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    from servers import Valkey

    server = Valkey()
    yield server
    server.close()
