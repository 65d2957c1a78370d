from __future__ import annotations

from functools import partial
from pathlib import Path

import node_scripts
import pytest


@pytest.fixture(scope="session")
def node_packages() -> Path:
    return node_scripts.packages()


@pytest.fixture
def node(node_packages: Path) -> node_scripts.Node:
    """`await node(running, "plain", **given)` runs node/plain.mjs against the gateway and gives the JSON that it prints."""
    return partial(node_scripts.run, node_packages)
