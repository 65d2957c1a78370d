from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # scripted.py

from upstream_double import Upstream

from gateway.agent.library.portal import Portal


@pytest.fixture
def far() -> Iterator[Upstream]:
    """The double of a provider in a thread of its own: for callers without a loop, or whose loop stands still."""
    portal, upstream = Portal(), Upstream()
    portal.call(upstream.__aenter__)
    yield upstream
    portal.call(upstream.stop)
    portal.close()


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """What a test opens and closes leaves no thread of the library."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in set(threading.enumerate()) - before if thread.name == "thinkgate library"]
    for thread in left:
        thread.join(5)
    assert not [thread for thread in left if thread.is_alive()]
