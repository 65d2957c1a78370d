from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.store import KeyRow, RequestRow, SqlStore, open_store


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").fresh()
    return "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One that several stores can open."""
    return request.getfixturevalue("postgres").fresh() if request.param == "postgresql" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = await open_store(url, tmp_path)
    yield store
    await store.aclose()


@pytest.fixture
async def pair(shared_url: str, tmp_path: Path) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two replicas on one database."""
    one, other = await open_store(shared_url, tmp_path), await open_store(shared_url, tmp_path)
    yield one, other
    await one.aclose()
    await other.aclose()


@pytest.fixture
def key() -> Callable[..., KeyRow]:
    def make(id: str = "k1", **changes: Any) -> KeyRow:
        return replace(KeyRow(id, f"name of {id}", sha256(id.encode(errors="replace")).digest(), created=1000.0), **changes)

    return make


@pytest.fixture
def done() -> Callable[..., RequestRow]:
    def make(id: str = "r1", **changes: Any) -> RequestRow:
        return structs.replace(RequestRow(id, 7200.0, "chat", "smart", 200), **changes)

    return make
