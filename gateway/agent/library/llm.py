"""A model for programs: by its name, key and address, or any `Model` that is there already (H1 to H4)."""

from __future__ import annotations

import asyncio
import os
import uuid
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import urlsplit

from gateway import config
from gateway.adapters import Adapter, Loader, builtin_folder, check_options
from gateway.agent.library.closing import Closing
from gateway.agent.library.portal import Portal
from gateway.agent.message import Message
from gateway.chat import Body, Json, Model, Record, Request, dumps
from gateway.config.kinds import base_url as checked
from gateway.errors import AdapterError
from gateway.failures import redact
from gateway.routing import Chain, Fleet
from gateway.telemetry import Telemetry
from gateway.upstream import Provider, choose
from gateway.upstream.mock import check as check_mock

TIMEOUT = 60.0
"""seconds, where neither the program nor LLM_TIMEOUT says any"""
_TOTAL = 600.0  # seconds of a whole answer, if `timeout` is not longer
_VARIABLES = {"model": "LLM_MODEL_ID", "api_key": "LLM_API_KEY", "base_url": "LLM_BASE_URL"}
_DEFAULT = "openai"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "request_method")
_RESERVED = ("model", "messages", "stream", "stream_options")


class LLM(Closing):
    """A model to ask. Its calls raise errors of `gateway.errors`, they never give None.

    What is not given is read from LLM_MODEL_ID, LLM_API_KEY, LLM_BASE_URL and LLM_TIMEOUT.
    Plain calls work with and without a running event loop (they run in a thread that `close`,
    or `with`, ends); the async ones run in their caller's loop, whose end closes their connections.
    """

    def __init__(
        self,
        model: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float | None = None,
        *,
        adapter: str | None = None,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        retries: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """ValueError names what is missing or makes no sense.

        timeout  seconds until an answer begins, and that it may pause
        adapter  who speaks to the provider, as in a config (`anthropic`, `deepseek`, ...); by default whose address
                 `base_url` is, `openai` for every other. With it, its own address and key variable count too
        options  the adapter's options, as in a config
        retries  how often a failed exchange is tried again before the call fails
        """
        given = os.environ if env is None else env
        loader = _loader()
        known = _adapter(loader, adapter) if adapter is not None else None
        found = {
            "model": _first(model, given.get("LLM_MODEL_ID"), known.default_model if known else None),
            "api_key": _first(api_key, given.get("LLM_API_KEY"), given.get(known.env) if known and known.env else None),
            "base_url": _first(base_url, given.get("LLM_BASE_URL"), known.base_url if known else None),
        }
        missing = [f"{name} ({_VARIABLES[name]})" for name, value in found.items() if not value and not (name == "api_key" and known and known.auth == "none")]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}; give it, or set the variable")
        self.model = str(found["model"])
        self.timeout = _seconds(timeout, given.get("LLM_TIMEOUT"))
        name, self.base_url = _address(str(found["base_url"]), adapter)
        self.provider = name
        provider = config.Provider(
            name=name,
            adapter=name,
            base_url=self.base_url,
            api_keys=(_key(str(found["api_key"])),) if found["api_key"] else (),
            timeouts=config.Timeouts(self.timeout, self.timeout, self.timeout, max(_TOTAL, self.timeout)),
            retries=retries,
            options=options or {},
            headers=headers or {},
            cooldown=config.Cooldown(base=0.0, max=0.0),  # the only target never rests: there is no other one to ask
        )
        for key, why in check_options(loader.get(name), provider.options):
            raise ValueError(f"options.{key}: {why}")
        model_id, proxies = self.model, {key: value for key, value in given.items() if key.lower() in _PROXIES}
        self._begin(lambda: _line(provider, model_id, proxies))  # without a word of this object, which would hold itself

    @classmethod
    def over(cls, model: Model, name: str = "model") -> Self:
        """Any object with `generate(request)`. It is asked in the caller's loop, or in the thread of plain calls."""
        made = cls.__new__(cls)
        made.model, made.base_url, made.timeout, made.provider = name, "", TIMEOUT, type(model).__name__
        made._begin(partial(_given, model))
        return made

    @classmethod
    def demo(cls) -> Self:
        """The demo model that is built in: no key, no network, fixed rules."""
        return cls("demo", base_url="mock://demo?gap=0", adapter="demo", env={})

    def _begin(self, line: Callable[[], AsyncGenerator[Ready]]) -> None:
        self._line = line
        self._lines: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[Ready], Ready]] = {}
        self.portal = Portal()
        """where plain calls run"""
        weakref.finalize(self, self.portal.close)

    # ---- asking ----

    def think(self, messages: Iterable[Message | Mapping[str, Any]], temperature: float | None = 0, **parameters: Any) -> str:
        """The text of the answer. `parameters` are further fields of the request; a temperature of None is not sent."""
        asked = list(messages)
        return self.portal.call(lambda: self.athink(asked, temperature, **parameters))

    def think_stream(self, messages: Iterable[Message | Mapping[str, Any]], temperature: float | None = 0, **parameters: Any) -> Generator[str]:
        """The same in pieces, as they come. An error ends it where it happens, after the pieces before it."""
        asked = list(messages)
        return self.portal.iterate(lambda: self.athink_stream(asked, temperature, **parameters))

    async def athink(self, messages: Iterable[Message | Mapping[str, Any]], temperature: float | None = 0, **parameters: Any) -> str:
        """As `think`, in the caller's loop."""
        async with aclosing(self.athink_stream(messages, temperature, **parameters)) as pieces:
            return "".join([piece async for piece in pieces])

    async def athink_stream(self, messages: Iterable[Message | Mapping[str, Any]], temperature: float | None = 0, **parameters: Any) -> AsyncGenerator[str]:
        """As `think_stream`, in the caller's loop."""
        for name in _RESERVED:
            if name in parameters:
                raise TypeError(f"{name} is no parameter of a call")
        body: Json = {**parameters, "model": self.model, "messages": as_dicts(messages), "stream": True, "stream_options": {"include_usage": True}}
        if temperature is not None:
            body["temperature"] = temperature
        record = Record(id=f"req_{uuid.uuid4().hex[:24]}", model=self.model, stream=True)
        model = (await self.ready()).model
        async with aclosing(model.generate(Request(Body(dumps(body)), self.model, record, stream=True))) as chunks:
            async for chunk in chunks:
                for choice in chunk.json().get("choices") or ():
                    text = (choice.get("delta") or choice.get("message") or {}).get("content")
                    if isinstance(text, str) and text:
                        yield text

    async def ready(self) -> Ready:
        """The model for the loop that runs now, made when it is first asked for."""
        loop = asyncio.get_running_loop()
        for other in [other for other in self._lines if other.is_closed()]:
            self._lines.pop(other, None)
        if loop not in self._lines:
            line = self._line()
            self._lines[loop] = line, await anext(line)
        return self._lines[loop][1]

    # ---- the end ----

    def close(self) -> None:
        """End the thread of plain calls and close its connections. A later call begins anew."""
        self.portal.close()

    async def aclose(self) -> None:
        """Close the connections of this loop, and what `close` closes."""
        kept = self._lines.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept[0].aclose()
        if not self.portal.inside():  # a tool of a plain call cannot end what it runs in
            await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"LLM(model={self.model}, provider={self.provider})"


@dataclass(frozen=True, slots=True)
class Ready:
    """A model in one loop. `reasons`: it thinks before it answers."""

    model: Model
    reasons: bool = False


async def _line(settings: config.Provider, model: str, env: Mapping[str, str]) -> AsyncGenerator[Ready]:
    """A chain of one target with its connections, open as long as the generator is.

    A loop that ends closes the generators that were begun in it, and with this one the connections.
    """
    hide = partial(redact, secrets=tuple(key.reveal() for key in settings.api_keys))
    name, target = settings.name, config.Target(settings.name, model)
    transport = choose(config.Http(), settings.base_url or "", env)
    provider = Provider(settings, _loader(), settings.adapter or _DEFAULT, transport, hide)
    fleet = Fleet({name: settings}, {name: settings.base_url or ""})
    chain = Chain(config.Model(model, (target,), empty_answer="accept"), {name: provider}, fleet, Telemetry())
    try:
        yield Ready(chain, provider.thinks(target))
    finally:
        await provider.aclose()


async def _given(model: Model) -> AsyncGenerator[Ready]:
    yield Ready(model)


def as_dicts(messages: Iterable[Message | Mapping[str, Any]]) -> list[Json]:
    """Messages as a request has them."""
    return [message.to_dict() if isinstance(message, Message) else dict(message) for message in messages]


def _first(*given: str | None) -> str:
    return next((text for text in given if text), "")


def _seconds(given: float | None, variable: str | None) -> float:
    if given is None and variable:
        try:
            given = float(variable)
        except ValueError:
            raise ValueError(f"LLM_TIMEOUT: {variable!r} is no number") from None
    seconds = TIMEOUT if given is None else float(given)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"timeout: {seconds:g} is no number of seconds above 0")
    return seconds


def _key(text: str) -> config.Secret:
    if not text.isascii() or not text.isprintable():
        raise ValueError("api_key: it holds characters that no key can have")
    return config.Secret(text)


def _adapter(loader: Loader, name: str) -> Adapter:
    try:
        return loader.get(name)
    except AdapterError as error:
        raise ValueError(f"adapter: {error.message}") from None


def _address(base_url: str, adapter: str | None) -> tuple[str, str]:
    """The adapter for an address, and the address as that adapter wants it. ValueError where it is none."""
    try:
        base_url = checked(base_url.strip())
        faults = check_mock(base_url) if base_url.startswith("mock://") else ()
    except ValueError as error:
        raise ValueError(f"base_url: {error}") from None
    for fault in faults:
        raise ValueError(f"base_url: {fault}")
    if adapter is not None or _on_this_machine(base_url):
        return adapter or _DEFAULT, base_url
    alike = [known for known in _addresses() if urlsplit(known[1]).netloc == urlsplit(base_url).netloc]
    inside = [(len(url), name) for name, url, _ in alike if f"{base_url.rstrip('/')}/".startswith(f"{url.rstrip('/')}/")]
    if inside:
        return max(inside)[1], base_url
    if alike and not urlsplit(base_url).path.strip("/"):  # the host alone, as some SDKs want it
        return alike[0][:2]
    return next((name for name, _, dialect in alike if dialect == "chat"), _DEFAULT), base_url


@cache
def _addresses() -> tuple[tuple[str, str, str], ...]:
    """(name, address, dialect) of every adapter that has an address."""
    loader = _loader()
    every = [(name, loader.get(name)) for name in loader.names()]
    return tuple((name, one.base_url, one.dialect) for name, one in every if one.base_url)


def _loader() -> Loader:
    """The built-in adapters, for one thread."""
    return Loader([builtin_folder()], config.HookBudget())


def _on_this_machine(base_url: str) -> bool:
    """Whose port it is, nobody knows."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
