"""What the Python scripts share: each line that comes in asks for a scenario of a client, each that goes out says what became of it, in JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable


def model() -> str:
    """The model that is asked for."""
    return os.environ["MODEL"]


def headers() -> dict[str, str]:
    """Headers beside the client's own."""
    found: dict[str, str] = json.loads(os.environ["HEADERS"])
    return found


CALLED: list[str] = []
"""The cities that the model asked for."""


def get_weather(city: str) -> str:
    """The weather in a city."""
    CALLED.append(city)
    return "sunny"


def main(scenarios: dict[str, Callable[[str], AsyncIterator[str]]]) -> None:
    """Each scenario gets the client's name and yields the pieces of its text."""
    asyncio.run(_serve(scenarios))


async def _serve(scenarios: dict[str, Callable[[str], AsyncIterator[str]]]) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        os.environ.update(asked["settings"])  # the SDKs read address and key from there
        CALLED.clear()
        pieces: list[str] = []
        failure = None
        try:
            async for piece in scenarios[asked["scenario"]](asked["client"]):
                pieces.extend([piece] if piece else [])
        except Exception as error:
            failure = {"name": type(error).__name__, "message": str(error)}
        print(json.dumps({"pieces": pieces, "failure": failure, "called": CALLED}), flush=True)
