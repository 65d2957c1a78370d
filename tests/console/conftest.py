from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import chromium


@pytest.fixture(scope="session")
def browser() -> tuple[str, dict[str, str]]:
    return chromium.browser()
