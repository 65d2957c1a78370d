from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from running import Running, serving, yaml
from upstream_double import Upstream

for area in ("cases", "sdk"):  # the SDK clients, the odd streams and the client on a bare socket are theirs
    sys.path.append(str(Path(__file__).parent.parent / area))


@pytest.fixture
async def running(a: Upstream) -> AsyncIterator[Running]:
    """A gateway without keys whose model `m` is at the double `a`."""
    async with serving(yaml({"a": a.url})) as running:
        yield running
