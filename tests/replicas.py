"""The gateway as processes: `thinkgate serve` with workers, which can be ended, killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from servers import free_port


class Replica:
    """One `thinkgate serve`, with as many workers as it is told. `start` may be called again after its end, on the same port."""

    def __init__(self, folder: Path, config: str, workers: int = 2) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.workers = workers
        self.log = folder / "log"
        folder.mkdir(parents=True)
        (folder / "thinkgate.yaml").write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
        command = [sys.executable, "-m", "gateway", "serve", "-c", str(self.folder / "thinkgate.yaml"), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, "--workers", str(self.workers)], cwd=self.folder, env=clean, stderr=log, start_new_session=True)

    def ready(self) -> None:
        """Wait until all workers have answered."""

        def up() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/healthz", trust_env=False).status_code == 200
            return False

        until(up, 60)
        until(lambda: self.workers == 1 or len(self.children()) >= self.workers, 60)

    def children(self) -> list[int]:
        """The processes that answer, as they are known by the parent."""
        assert self._process is not None
        found = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found if Path(f"/proc/{pid}/cmdline").exists()}
        return [pid for pid, line in lines.items() if b"spawn_main" in line]

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> int:
        """End it as an update would; its exit code."""
        self.signal(signal.SIGTERM)
        return self.ended(40)

    def ended(self, seconds: float) -> int:
        """The exit code of one that ends by itself."""
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)


def until(done: Callable[[], bool], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to that")
