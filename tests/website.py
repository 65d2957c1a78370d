"""A small website on a loopback port, for what fetches pages: `site.pages["/x"] = page(...)`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Asked = tuple[str, str, dict[str, str], bytes]
"""method, path with query, headers, body"""


@dataclass
class Page:
    """`body` goes out in its pieces, each after `pause` seconds; `hang`: the connection then stays open."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    pause: float = 0.0
    hang: bool = False


def page(body: str | bytes = b"", status: int = 200, type: str | None = "text/html; charset=utf-8", **headers: str) -> Page:
    raw = body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()} | ({"content-type": type} if type else {})
    return Page(status, named | {"content-length": str(len(raw))}, [raw])


def answer(value: Any, status: int = 200) -> Page:
    return page(json.dumps(value), status, "application/json")


def redirect(to: str, status: int = 302) -> Page:
    return page(b"", status, location=to)


class Site:
    def __init__(self) -> None:
        self.pages: dict[str, Page | Callable[[], Page]] = {}
        self.asked: list[Asked] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def __aenter__(self) -> Site:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append((method, path, headers, body))
        found = self.pages.get(path.partition("?")[0], Page(404, {"content-length": "0"}))
        await _write(writer, found() if callable(found) else found)


async def _write(writer: asyncio.StreamWriter, found: Page) -> None:
    lines: Mapping[str, str] = found.headers | {"connection": "close"}
    head = [f"HTTP/1.1 {found.status} x", *(f"{name}: {value}" for name, value in lines.items()), "", ""]
    writer.write("\r\n".join(head).encode())
    for piece in found.pieces:
        await asyncio.sleep(found.pause)
        writer.write(piece)
        await writer.drain()
    if found.hang:
        await asyncio.sleep(60)
