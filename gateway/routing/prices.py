"""What tokens cost and how much a model can read: the config's word first, then the public price data's.

The price data knows providers by their address, so a server of one's own, or a relay, has no
price but the one in the config. It is read in a process of its own, once, after the start;
until then, and where it cannot be read, only the config's prices are known.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway import config
from gateway.chat import Json, dumps, loads

log = logging.getLogger("thinkgate")

MILLION = 1_000_000
_KEPT = 60.0  # seconds for which a price is kept: some change with the hour
_MOST = 4096  # that are kept
_PATIENCE = 60.0  # seconds for the process that reads the data
_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "SYSTEMROOT", "TMPDIR")  # it gets no keys

Steps = Sequence[tuple[int, float]]
"""USD per million tokens, each with the number of prompt tokens above which it holds, rising from 0"""


class Rates(msgspec.Struct, frozen=True):
    """What a million tokens cost in USD: of the prompt, the answer, the prompt's cached part, and what was newly cached.

    `steps`: the same four, where they depend on the length of the prompt.
    """

    input: float
    output: float
    cached: float
    written: float
    steps: tuple[Steps, ...] | None = None

    def cost(self, usage: Mapping[str, Any]) -> float:
        """USD for a usage in OpenAI's chat form: cached and newly cached tokens are parts of the prompt."""
        prompt, answer = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        details = usage.get("prompt_tokens_details")
        cached = written = 0
        if type(details) is dict:
            cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
        fresh = max(0, prompt - cached - written)
        if self.steps is None:
            return (fresh * self.input + answer * self.output + cached * self.cached + written * self.written) / MILLION
        prices = [next(usd for above, usd in reversed(steps) if prompt > above or above == 0) for steps in self.steps]
        return sum(count * usd for count, usd in zip((fresh, answer, cached, written), prices, strict=True)) / MILLION


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if type(value) is int and value > 0 else 0


class Prices:
    """The prices and windows of one config's targets. `urls` are its providers' base URLs."""

    def __init__(self, providers: Mapping[str, config.Provider], urls: Mapping[str, str], data: PriceData, now: Callable[[], float] = time.time) -> None:
        self._providers = providers
        self._urls = urls
        self._data = data
        self._now = now
        self._kept: dict[tuple[str, str], tuple[Rates | None, float]] = {}

    def of(self, provider: str, model: str) -> Rates | None:
        """What a target costs now; None: unknown."""
        now = self._now()
        kept = self._kept.get((provider, model))
        if kept is not None and kept[1] > now:
            return kept[0]
        if len(self._kept) >= _MOST:
            self._kept.clear()
        rates = self._find(provider, model, datetime.fromtimestamp(now, UTC))
        self._kept[provider, model] = rates, now + (_KEPT if rates is not None or not self._data.pending(self._urls.get(provider, "")) else 0.0)
        return rates

    def window(self, provider: str, model: str) -> int | None:
        """The context window in tokens, where it is known."""
        own = self._providers[provider].models.get(model)
        if own is not None and own.context is not None:
            return own.context
        known = self._data.find(self._urls.get(provider, ""), model)
        return known.window if known is not None else None

    def _find(self, provider: str, model: str, at: datetime) -> Rates | None:
        own = self._providers[provider].models.get(model) or config.Price()
        known = self._data.find(self._urls.get(provider, ""), model)
        steps: dict[str, Steps] = dict(known.rates(at)) if known is not None else {}
        steps |= {name: [(0, usd)] for name, usd in (("input", own.input), ("output", own.output), ("cached", own.cached)) if usd is not None}
        if own.input is not None and own.cached is None:
            steps["cached"] = [(0, own.input)]  # a discount on another price says nothing
        if "input" not in steps:
            return None
        free: Steps = [(0, 0.0)]  # embeddings have no price for an answer
        four = (steps["input"], steps.get("output", free), steps.get("cached", steps["input"]), steps.get("written", steps["input"]))
        first, answer, cached, written = (price[0][1] for price in four)
        return Rates(first, answer, cached, written, four if any(len(price) > 1 for price in four) else None)


class Known(msgspec.Struct, frozen=True):
    """A model of the price data. `prices`: when each holds, and its rates."""

    window: int | None
    prices: Sequence[tuple[Mapping[str, str] | None, Mapping[str, Steps]]]

    def rates(self, at: datetime) -> Mapping[str, Steps]:
        holding = [rates for when, rates in self.prices if _holds(when, at)]
        return holding[-1] if holding else self.prices[0][1]


def _holds(when: Mapping[str, str] | None, at: datetime) -> bool:
    if when is None:
        return True
    if "from" in when:
        return at.date().isoformat() >= when["from"]
    now = at.time().isoformat("seconds")
    if when["end"] < when["start"]:
        return now >= when["start"] or now < when["end"]
    return when["start"] <= now < when["end"]


class Models:
    """The models of one provider in the price data, found by their names."""

    def __init__(self, entries: Iterable[tuple[Sequence[str], str | None, int | None, Any]]) -> None:
        self._known: list[Known] = []
        self._names: dict[str, int] = {}
        self._patterns: list[tuple[int, str]] = []
        for place, (names, pattern, window, prices) in enumerate(entries):
            self._known.append(Known(window, prices))
            for name in names:
                self._names.setdefault(name, place)
            if pattern is not None:
                self._patterns.append((place, pattern))

    def find(self, model: str) -> Known | None:
        """The first that fits, in the order of the data."""
        name = model.lower()
        places = [place for place, pattern in self._patterns if re.search(pattern, name)]
        if name in self._names:
            places.append(self._names[name])
        return self._known[min(places)] if places else None


class PriceData:
    """The public price data for the base URLs that were asked for. One per process: it outlives a config."""

    def __init__(self) -> None:
        self._models: dict[str, Models] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None

    def find(self, url: str, model: str) -> Known | None:
        models = self._models.get(url)
        return models.find(model) if models is not None else None

    def pending(self, url: str) -> bool:
        """Nothing is known about this address yet, but something is being read."""
        return self._reading is not None and url not in self._models

    def begin(self, urls: Iterable[str]) -> None:
        """The application runs: read in the background what is wanted, now and later."""
        self._loop = asyncio.get_running_loop()
        self.want(urls)

    def want(self, urls: Iterable[str]) -> None:
        """These base URLs are in use now; what is not known about them is read while the application runs."""
        wanted = self._wanted(urls)
        if wanted and self._loop is not None and self._reading is None:
            self._reading = self._loop.create_task(self._read(wanted))

    async def stop(self) -> None:
        """Let go of what is being read."""
        self._loop = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    def read(self, urls: Iterable[str]) -> None:
        """Read them now: for commands, which have no event loop and can wait."""
        if wanted := self._wanted(urls):
            asyncio.run(self._read(wanted))

    def _wanted(self, urls: Iterable[str]) -> list[str]:
        return sorted(url for url in set(urls) - self._models.keys() if is_public(url))

    async def _read(self, urls: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                found: Json = loads(await _ask(urls))
            self._models |= {url: Models(entries) for url, entries in found.items()}
        except TimeoutError:
            log.warning("the public price data took too long to read; only the config's prices are known")
        except (OSError, ValueError) as error:
            log.warning("the public price data cannot be read, only the config's prices are known: %s", error)
        finally:
            self._reading = None


async def _ask(urls: Sequence[str]) -> bytes:
    """What the process that reads the data says. OSError, ValueError with its last words."""
    child = Path(__file__).with_name("price_data.py")
    kept = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", str(child), stdin=pipe, stdout=pipe, stderr=pipe, env=kept)
    try:
        out, errors = await process.communicate(dumps(urls))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(errors.decode("utf-8", "replace").strip().rpartition("\n")[2][:200] or f"exit code {process.returncode}")
    return out


def is_public(url: str) -> bool:
    """Whether a base URL is that of a provider on the internet, which may have a public price."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".localhost", ".local", ".internal"))
