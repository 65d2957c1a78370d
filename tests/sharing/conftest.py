from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Valkey


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[Valkey]:
    """One that may be killed without harm to other tests."""
    server = Valkey()
    yield server
    server.close()
