"""What the cases share: what a stream said, read as a strict client reads it, and a client on a bare socket."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from running import STREAM, Running

PATIENT = "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}"
"""settings of a provider that may fail in every test and is asked all the same"""

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": []}}}
]
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q":"x"}'}}],
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "weather?"},
    CALLED,
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "user", "content": "and now?"},
]


def parsed(events: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events if event != "[DONE]"]


def deltas(events: Iterable[str]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in parsed(events) for choice in chunk.get("choices", [])]


def text(events: Iterable[str], field: str = "content") -> str:
    return "".join(delta.get(field) or "" for delta in deltas(events))


def finishes(events: Iterable[str]) -> list[str]:
    return [choice["finish_reason"] for chunk in parsed(events) for choice in chunk.get("choices", []) if choice["finish_reason"]]


def calls(events: Iterable[str]) -> list[tuple[str, str, str]]:
    """(id, name, arguments) of each tool call, put together by index as OpenAI's clients do: the first id and name, the arguments joined."""
    found: dict[int, list[str]] = {}
    for delta in deltas(events):
        for part in delta.get("tool_calls") or ():
            call = found.setdefault(part["index"], [part.get("id", ""), part.get("function", {}).get("name", ""), ""])
            call[2] += part.get("function", {}).get("arguments") or ""
    return [(found[index][0], found[index][1], found[index][2]) for index in sorted(found)]


def error_of(events: list[str]) -> dict[str, Any]:
    """The error that a stream ended with; it is the last event, and no [DONE] follows."""
    assert "[DONE]" not in events
    error: dict[str, Any] = json.loads(events[-1])["error"]
    assert all("error" not in json.loads(event) for event in events[:-1])
    return error


def shaped(error: Mapping[str, Any]) -> bool:
    """Whether an error object has exactly OpenAI's fields, and `attempts` at most beside them."""
    return (
        set(error) - {"attempts"} == {"message", "type", "param", "code"}
        and isinstance(error["message"], str)
        and bool(error["message"])
        and isinstance(error["type"], str)
        and all(error[name] is None or isinstance(error[name], str) for name in ("param", "code"))
    )


def sdk(running: Running, **options: Any) -> AsyncOpenAI:
    """The official client; without TLS, because reading the certificates takes longer than a test."""
    http = DefaultAsyncHttpxClient(trust_env=False, verify=False)
    return AsyncOpenAI(**{"base_url": running.url, "api_key": "none", "max_retries": 0, "http_client": http, **options})


class Bare:
    """A client on a bare socket: one request, and as much of the answer as the test wants to read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.got = b""

    @classmethod
    async def connect(cls, url: str, *, buffer: int | None = None) -> Bare:
        """`buffer`: bytes of the socket's receive buffer."""
        parts = urlsplit(url)
        sock = socket.socket()
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
        return cls(*await asyncio.open_connection(sock=sock, limit=buffer or 1 << 20))

    @classmethod
    async def ask(cls, url: str, body: Mapping[str, Any] | bytes = STREAM, *, buffer: int | None = None, **headers: str) -> Bare:
        client = await cls.connect(url, buffer=buffer)
        client.send("POST", "/v1/chat/completions", body if isinstance(body, bytes) else json.dumps(body).encode(), **headers)
        return client

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        lines = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body))} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.writer.write(head.encode("latin-1") + b"\r\n" + body)

    async def until(self, mark: bytes, seconds: float = 3.0) -> bytes:
        """Read until `mark` came; everything read so far."""
        async with asyncio.timeout(seconds):
            while mark not in self.got:
                piece = await self.reader.read(65536)
                assert piece, f"the gateway closed the connection after {self.got[-500:]!r}"
                self.got += piece
        return self.got

    async def head(self, seconds: float = 3.0) -> tuple[int, dict[str, str]]:
        lines = (await self.until(b"\r\n\r\n", seconds)).split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}

    def reset(self) -> None:
        """Go away with RST."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        """Go away with FIN."""
        self.writer.close()
        await self.writer.wait_closed()
