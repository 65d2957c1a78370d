"""What the tests of a running gateway ask of it again and again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import httpx
from running import Running


def chain_of(answer: httpx.Response) -> str:
    """`a=429,b=200`: what each exchange came to."""
    return str(answer.headers.get("x-thinkgate-chain", ""))


def parsed(events: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events if event != "[DONE]"]


def text(events: Iterable[str]) -> str:
    """What the deltas of a stream say together."""
    return "".join(choice["delta"].get("content") or "" for chunk in parsed(events) for choice in chunk.get("choices", []))


def finishes(events: Iterable[str]) -> list[str]:
    return [choice["finish_reason"] for chunk in parsed(events) for choice in chunk.get("choices", []) if choice["finish_reason"]]


def error_of(events: list[str]) -> dict[str, Any]:
    """The error that a stream ended with; it is the last event."""
    assert "[DONE]" not in events
    error: dict[str, Any] = json.loads(events[-1])["error"]
    return error


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so, two seconds at most."""
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not become so")


async def many(running: Running, count: int) -> list[tuple[httpx.Response, float]]:
    """So many requests at once, each with the seconds that it took."""
    loop = asyncio.get_running_loop()

    async def one(crowd: Running) -> tuple[httpx.Response, float]:
        began = loop.time()
        return await crowd.chat(), loop.time() - began

    base, limits = running.url.removesuffix("/v1"), httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base, timeout=20, limits=limits, trust_env=False) as client:
        crowd = Running(running.url, running.gateway, client)
        return await asyncio.gather(*(one(crowd) for _ in range(count)))


async def metric(running: Running, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    found = 0.0
    for line in (await running.client.get("/metrics")).text.splitlines():
        match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            found += float(match[2])
    return found
