"""One provider: a Model whose every `generate` is one exchange with it.

    prepare   the client's body -> the provider's: fresh copy, dialect, adapter, URL, headers
    open      one request over the transport, up to the answer's headers
    refuse    a status that is no answer -> UpstreamError of the right class
    answer    bytes -> events -> chunks, held back until the first content

`explain` uses `prepare` alone, so that what it shows is what would be sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

import gateway
from gateway import config, failures
from gateway.adapters import Adapter, Context, Hooks, Loader, Settings, apply, in_chat, read_wish, settings
from gateway.chat import Chunk, Json, Request, dumps, loads
from gateway.config import Secret
from gateway.dialects import dialect, dropped_tools, native_request
from gateway.errors import AdapterError, GatewayError, Skipped, StreamCut, UpstreamError
from gateway.upstream.answer import Answer
from gateway.upstream.batches import in_parts, joined
from gateway.upstream.lessons import Lessons
from gateway.upstream.prepared import INSIDE, PATHS, RELAYED, Prepared
from gateway.upstream.reasoning import Memory
from gateway.upstream.relay import Relay, boundary_of, model_span
from gateway.upstream.transport import Exchange, Headers, Transport, TransportError, Url

log = logging.getLogger("thinkgate")

FIRST_TOKEN = 60.0
"""Seconds that a stream may take to its first content where the config sets nothing."""

_GRACE = 2.5  # seconds after the finish in which usage may still come
_ERROR_BODY = 256 * 1024
_PATH = "/:@!$&'()*+,;=~%"
_TARGETS = 1024  # whose options are kept
_KEPT = (b"x-ratelimit-", b"openai-processing-ms", b"anthropic-ratelimit-")


_AGENT = f"thinkgate/{gateway.__version__}".encode("ascii")
_INSIDE = ("mock://", "local://")  # answered on this machine; the rest of such a URL is no address
_NO_ADDRESS = f"http://{INSIDE}/v1"


class NothingToRepair(Exception):
    """The adapter has no repair for this failure: sending again would fail the same way."""


class Provider:
    """One configured provider. `redact` takes every secret out of a text before anybody sees it."""

    def __init__(
        self, conf: config.Provider, loader: Loader, adapter: str, transport: Transport, redact: Callable[[str], str], memory: Memory | None = None
    ) -> None:
        self.settings = conf
        self.name = conf.name
        self._loader = loader
        self._adapter_name = adapter
        self._transport = transport
        self._redact = redact
        self._memory = memory if memory is not None else Memory()
        self._extras = conf.hooks
        self._files: tuple[Adapter, ...] = ()
        self._hooks = Hooks(loader.get(adapter))
        self._options: dict[config.Target, Settings] = {}
        self._urls: dict[tuple[str, str], Url] = {}
        self.lessons = Lessons()

    @property
    def adapter(self) -> Adapter:
        """The newest good version of its adapter file."""
        return self._loader.get(self._adapter_name)

    def thinks(self, target: config.Target) -> bool:
        """Whether a target's model thinks before it answers when a request says nothing about it."""
        rule = self._current(target)[1].thinking
        wish = target.thinking or self.settings.thinking
        return rule is not None and (rule.default == "on" if wish == "auto" else wish != "off")

    def base_url(self) -> str | None:
        return self.settings.base_url or self.adapter.base_url

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def generate(self, request: Request, key: Secret | None = None) -> AsyncGenerator[Chunk]:
        """Yield the answer's chunks, the first one with content; what came before it is held back and follows it in order.

        `key`: one of several, None: the first. Raises UpstreamError before the first chunk,
        StreamCut after it, NothingToRepair where `request.repair` cannot be repaired.
        """
        loop = asyncio.get_running_loop()
        target = request.target
        assert target is not None
        if parts := self.parts(request):
            yield await self._in_turn(parts, key)
            return
        limits = self.settings.timeouts
        record, began = request.record, time.perf_counter()
        prepared = await self._prepared(request, key)
        start = loop.time()
        total = start + (target.total or limits.total)
        first = target.first_token or limits.first_token
        if first is None:
            first = FIRST_TOKEN if request.stream else float("inf")
        clock = Clock(loop, min(start + first, total, request.deadline), total, target.idle or limits.idle, start + first <= min(total, request.deadline))
        exchange: Exchange | None = None
        answer: Answer | Relay | None = None
        try:
            connect = min(start + (target.connect or limits.connect), clock.first)
            exchange = await self._transport.open(b"POST", prepared.url, prepared.headers, prepared.data, connect=connect, deadline=clock.first)
            self._keep_headers(request, exchange)
            if not 200 <= exchange.status < 300:
                raise await self._refused(exchange, prepared, clock)
            answer = self._answer(request, prepared, exchange)
            try:
                while not answer.over:
                    chunks = answer.take(await self._read(exchange, answer, clock))
                    if record.first_content is None:  # the first chunk takes the headers with it
                        _note(request, prepared)
                    for chunk in chunks:
                        yield chunk
            except (TransportError, UpstreamError) as error:
                if not answer.committed:
                    raise
                raise self._cut(error, clock, answer) from None
            finally:
                record.usage = answer.usage or record.usage
                record.tools.extend(answer.tools)
            if request.repair is not None and self.lessons.learn(target.model, request.repair):
                log.warning("%s/%s: learned to prevent %s", self.name, target.model, request.repair.kind)
            if answer.turn is not None:
                self._memory.keep(record.tenant, self.name, target.model, answer.turn)
            await self._drain(exchange, clock)
        except TransportError as error:
            raise self._broken(error, clock, time.perf_counter() - began, answer) from None
        except UpstreamError as error:
            raise self._told(error) from error.__cause__
        finally:
            record.upstream_seconds += time.perf_counter() - began
            record.hook_seconds += prepared.context.seconds
            _note(request, prepared)
            if exchange is not None:
                await exchange.aclose()

    def parts(self, request: Request) -> list[Request]:
        """The requests that an embeddings request becomes where it has more inputs than the provider takes; [] for all others."""
        if request.endpoint != "embeddings":
            return []
        assert request.target is not None
        most = self._current(request.target)[1]["embedding_batch"]
        return in_parts(request, most) if most else []

    def in_parts(self, count: int) -> str:
        """What is noted of a request that goes in so many parts."""
        return f"{self.name}.embedding_parts={count}"

    async def _in_turn(self, parts: list[Request], key: Secret | None) -> Chunk:
        """The one answer of an embeddings request that is sent in parts. Fails as soon as one of them does."""
        record, answers = parts[0].record, []
        for part in parts:
            async with aclosing(self.generate(part, key)) as chunks:
                answers += [chunk.json() async for chunk in chunks]
            record.usage = None  # of one part; the sum is known at the end
        whole = joined(parts, answers)
        record.usage = whole.get("usage")
        record.note(self.in_parts(len(parts)))
        return Chunk(dumps(whole), whole=True, content=True, json=whole)

    async def forward(self, method: str, path: str, query: bytes, headers: Mapping[str, str], body: bytes, request_id: str) -> Exchange:
        """One exchange outside of every chain (files, batches), at its headers: path, query and body as the client sent them. Raises TransportError."""
        hooks, options = self._current(config.Target(self.name, ""))
        secret, loop, limits = self._secret(None), asyncio.get_running_loop(), self.settings.timeouts
        url = self._url(options, path, None)
        if query:
            url = replace(url, target=url.target + b"?" + query)
        sent = self._headers(hooks.adapter, secret, request_id, {"content-type": "", "accept": "*/*", **headers}, False, None)
        sent = [(name, value) for name, value in sent if value]
        now = loop.time()
        return await self._transport.open(method.encode("ascii"), url, sent, body, connect=now + limits.connect, deadline=now + limits.total)

    async def _prepared(self, request: Request, key: Secret | None) -> Prepared:
        """The request as it is sent, with what other processes remember for it where this one does not."""
        prepared = self.prepare(request, key)
        return self.prepare(request, key) if self._memory.missing and await self._memory.fetch() else prepared

    async def recall(self, request: Request) -> None:
        """See to it that `prepare` finds what other processes remember for this request."""
        try:
            self.prepare(request)
        except GatewayError:
            return
        await self._memory.fetch()

    def prepare(self, request: Request, key: Secret | None = None) -> Prepared:
        """The request as this provider gets it, with one of its keys. Raises AdapterError, Skipped, NothingToRepair."""
        target = request.target
        assert target is not None
        hooks, options = self._current(target)
        secret = self._secret(key)
        if request.endpoint in RELAYED:
            return self._relayed(request, target, hooks, options, secret)
        adapter = hooks.adapter
        spoken = request.dialect if request.dialect in options["speaks"] else adapter.dialect
        body, client = request.body.fresh(), None
        context = Context(self.name, target.model, request.endpoint, spoken, request.stream, request.attempt, options=options)
        context.thinking = read_wish(body) or target.thinking or self.settings.thinking
        include_usage = _asks_for_usage(body)
        body["model"] = target.model
        if request.dialect != "chat" or spoken != "chat":
            client = request.body.fresh()
        if request.folds and adapter.trailing_assistant == "refuse":
            fold_trailing(body)
        body = self._turned(body, request, spoken, options, context)
        body = apply.prepare(body, hooks, options, context)
        for lesson in self.lessons.of(target.model):
            body = self._repaired(body, lesson, hooks, options, context, before=True) or body
        if request.repair is not None:
            repaired = self._repaired(body, request.repair, hooks, options, context)
            if repaired is None:
                raise NothingToRepair
            body = repaired
        data = dumps(body)
        special = self._built(body, data, secret, hooks, options, context)
        forwarded = request.headers if request.dialect == spoken else {}
        headers = self._headers(adapter, secret, request.record.id, forwarded, bool(body.get("stream")), special)
        url = self._url(options, PATHS.get(spoken, ""), special)
        if request.beta and spoken == request.dialect:
            url = _in_beta(url)
        return Prepared(url, headers, body, data, hooks, context, options, request.dialect, client, include_usage, request.empty_ok)

    @staticmethod
    def _repaired(body: Json, failure: UpstreamError, hooks: Hooks, options: Settings, context: Context, *, before: bool = False) -> Json | None:
        context.state["error"] = failure.error
        return apply.recover(body, failure.kind, hooks, options, context, before=before)

    def _relayed(self, request: Request, target: config.Target, hooks: Hooks, options: Settings, secret: str | None) -> Prepared:
        """A request that is passed on: the model's name is exchanged, JSON goes through the hooks."""
        needed = "messages" if request.endpoint.startswith("messages/") else "chat"
        if needed not in (hooks.adapter.dialect, *options["speaks"]):
            raise Skipped(f"{self.name} serves no {request.endpoint}")
        context = Context(self.name, target.model, request.endpoint, needed, request.stream, request.attempt, options=options)
        kind, body = request.headers.get("content-type", "application/json"), {}
        if kind.startswith("multipart/"):
            data = request.body.raw
            span = model_span(data, boundary_of(kind))
            if span is not None:
                data = data[: span[0]] + target.model.encode() + data[span[1] :]
        else:
            body = apply.prepare({**request.body.fresh(), "model": target.model}, hooks, options, context)
            data = dumps(body)
        special = self._built(body, data, secret, hooks, options, context)
        headers = self._headers(hooks.adapter, secret, request.record.id, {**request.headers, "accept": "*/*"}, request.stream, special)
        url = self._url(options, PATHS[request.endpoint], special)
        if request.beta:
            url = _in_beta(url)
        return Prepared(url, headers, body, data, hooks, context, options, needed, None, False, False)

    def _turned(self, body: Json, request: Request, spoken: str, options: Settings, context: Context) -> Json:
        """The request in the provider's dialect, with the reasoning that its client lost; chat is the pivot."""
        if request.dialect == spoken != "chat":
            return native_request(spoken, body)
        if request.dialect != "chat":
            dropped = dropped_tools(request.dialect, body)
            if dropped:
                context.note(f"dropped_tools={','.join(dropped)}")
            body = dialect(request.dialect).request_to_chat(body)
            if spoken == "chat" and options.thinking is None:
                in_chat(body)
        messages = body.get("messages")
        if options["reasoning_memory"] and isinstance(messages, list):
            restored = self._memory.restore(request.record.tenant, self.name, context.model, messages)
            if restored:
                context.note(f"{options.name}.reasoning_restored={restored}")
        if spoken == "messages" and options["reasoning_field"] == "thinking_blocks" and options["reasoning_echo"] == "all":
            from gateway.dialects.messages import carry_unsigned  # a dialect is loaded where it is spoken

            carry_unsigned(messages or ())
        return body if spoken == "chat" else dialect(spoken).request_from_chat(body)

    def _current(self, target: config.Target) -> tuple[Hooks, Settings]:
        """Hooks and options for a target; made again only when a file changed."""
        files = (self._loader.get(self._adapter_name), *(self._loader.file(path) for path in self._extras))
        if self._files != files or len(self._options) > _TARGETS:
            self._files, self._hooks = files, Hooks(files[0], files[1:])
            self._options = {}
        options = self._options.get(target)
        if options is None:
            configured = {**self.settings.options, **target.options}
            options = self._options[target] = settings(files[0], target.model, configured, self.settings.base_url)
        return self._hooks, options

    def _secret(self, key: Secret | None) -> str | None:
        """The key that is used, None: there is none."""
        if key is None:
            key = self.settings.api_keys[0] if self.settings.api_keys else None
        return key.reveal() if key else None

    @staticmethod
    def _built(body: Json, data: bytes, secret: str | None, hooks: Hooks, options: Settings, context: Context) -> Mapping[str, Any] | None:
        """What the adapter says about path and headers; it sees the bytes that will be sent."""
        if not hooks.has("build_request"):
            return None
        context.url, context.body, context.api_key = options.base_url or "", data, secret
        return hooks.build_request(body, context)

    def _url(self, options: Settings, path: str, special: Mapping[str, Any] | None) -> Url:
        text = options.base_url
        if text is None:
            raise AdapterError(f"provider {self.name} has no base_url, and neither has its adapter {options.name}")
        query: Mapping[str, str] = {}
        if special is not None:
            path, query = special.get("path") or path, special.get("query") or query
        url = self._urls.get((text, path)) if not query else None
        if url is None:
            base = Url.parse(_NO_ADDRESS if text.startswith(_INSIDE) else text)
            tail = quote(path, safe=_PATH) + (f"?{urlencode(query)}" if query else "")
            url = replace(base, target=base.target.rstrip(b"/") + tail.encode("ascii"))
            if special is None:
                self._urls[text, path] = url
        return url

    def _headers(
        self, adapter: Adapter, secret: str | None, request_id: str, forwarded: Mapping[str, str], stream: bool, special: Mapping[str, Any] | None
    ) -> Headers:
        headers: dict[bytes, bytes] = {
            b"content-type": b"application/json",
            b"accept": b"text/event-stream" if stream else b"application/json",
            b"accept-encoding": b"identity",
            b"user-agent": _AGENT,
            b"x-request-id": request_id.encode("ascii"),
        }
        if secret and adapter.auth == "bearer":
            headers[b"authorization"] = b"Bearer " + secret.encode("ascii")
        elif secret and adapter.auth.startswith("header:"):
            headers[adapter.auth[7:].lower().encode("ascii")] = secret.encode("ascii")
        for more in (forwarded, self.settings.headers, special.get("headers") if special else None):
            for name, value in more.items() if more else ():
                headers[name.lower().encode("ascii")] = str(value).encode("ascii")
        return list(headers.items())

    @staticmethod
    def _answer(request: Request, prepared: Prepared, exchange: Exchange) -> Answer | Relay:
        if request.endpoint not in RELAYED:
            return Answer(request.stream, prepared)
        request.record.content_type = (exchange.header(b"content-type") or b"application/octet-stream").decode("latin-1")
        return Relay(prepared, request.record.content_type)

    @staticmethod
    async def _read(exchange: Exchange, answer: Answer | Relay, clock: Clock) -> bytes | None:
        if answer.broken is not None:
            return b""
        if answer.finished:
            try:
                return await exchange.read(min(clock.loop.time() + _GRACE, clock.total))
            except TransportError:
                return None  # everything but usage was there
        if answer.begun:
            return await exchange.read(min(clock.loop.time() + clock.idle, clock.total))
        return await exchange.read(clock.first)

    @staticmethod
    async def _drain(exchange: Exchange, clock: Clock) -> None:
        """After [DONE] the body's own end is usually there too; with it the connection can be used again."""
        try:
            await exchange.read(clock.loop.time() + 0.02)
        except TransportError:
            pass

    async def _refused(self, exchange: Exchange, prepared: Prepared, clock: Clock) -> UpstreamError:
        """The error that a status outside 200 to 299 and its body make."""
        body = b""
        try:
            while (piece := await exchange.read(min(clock.loop.time() + clock.idle, clock.total))) is not None and len(body) < _ERROR_BODY:
                body += piece
        except TransportError:
            pass  # the status alone tells enough
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers}
        verdict = failures.classify(exchange.status, headers, body)
        kind, retry_after, message = verdict.kind, verdict.retry_after, verdict.message
        if prepared.hooks.has("classify_error"):
            own = prepared.hooks.classify_error({"status": exchange.status, "headers": headers, "body": _readable(body)}, prepared.context) or {}
            kind, retry_after, message = own.get("class") or kind, own.get("retry_after") or retry_after, own.get("message") or message
        error = {name: self._redact(text) if isinstance(text, str) else text for name, text in verdict.error.items()}
        return UpstreamError(kind, message, upstream_status=exchange.status, retry_after=retry_after, error=error)

    def _broken(self, error: TransportError, clock: Clock, seconds: float, answer: Answer | Relay | None) -> UpstreamError:
        """The failure of an exchange of which the client has seen nothing; an end without a status is `server`, a cut answer `protocol`."""
        if error.kind == "timeout":
            kind = "first_token_timeout" if clock.first_is_ours and not (answer is not None and answer.begun) else "timeout"
            return UpstreamError(kind, f"{kind} after {seconds:.1f} s")
        kind = error.kind if error.kind != "cut" else "server" if answer is None else "protocol"
        return UpstreamError(kind, self._redact(str(error)))

    def _cut(self, error: TransportError | UpstreamError, clock: Clock, answer: Answer | Relay) -> StreamCut:
        """The failure of a stream that the client has begun to read, with the events that tell it so."""
        if isinstance(error, UpstreamError):
            cut = StreamCut(error.kind, self._quoted(error.message), upstream_status=error.upstream_status, retry_after=error.retry_after, error=error.error)
        elif error.kind == "timeout":
            why = "the whole answer took too long" if clock.loop.time() >= clock.total else f"nothing came for {clock.idle:g} s"
            cut = StreamCut("timeout", f"the answer of {self.name} broke off: {why}")
        else:
            cut = StreamCut("protocol", f"the answer of {self.name} broke off: {self._redact(str(error))}")
        cut.events = answer.fail(cut.body())
        return cut

    def _told(self, error: UpstreamError) -> UpstreamError:
        """The failure as others may read it. A provider that was asked cannot be left out any more."""
        error.message = self._quoted(error.message)
        return AdapterError(f"{error.message} (ctx.skip, after the provider was asked)") if isinstance(error, Skipped) else error

    def _quoted(self, text: str) -> str:
        """A provider's words on one line, without secrets (these go first: half of one would not be known), and not endless."""
        return failures.quote(self._redact(" ".join(text.split())), ())

    @staticmethod
    def _keep_headers(request: Request, exchange: Exchange) -> None:
        kept: dict[str, str] = {}
        for name, value in exchange.headers:
            if name.startswith(_KEPT):
                kept[name.decode("latin-1")] = value.decode("latin-1")
        request.record.upstream_headers = kept


class Clock(msgspec.Struct, frozen=True):
    """The deadlines of one exchange, `loop.time()` seconds; `idle` is a length. `first_is_ours`: the first-token limit is what ends first."""

    loop: asyncio.AbstractEventLoop
    first: float
    total: float
    idle: float
    first_is_ours: bool


def fold_trailing(body: Json) -> None:
    """Make the assistant's last message the end of the user's or tool's one before it."""
    messages = body.get("messages")
    if not isinstance(messages, list) or len(messages) < 2 or messages[-1].get("role") != "assistant" or messages[-1].get("tool_calls"):
        return
    last, before = messages[-1].get("content"), messages[-2]
    content = before.get("content")
    if before.get("role") not in ("user", "tool") or not isinstance(last, str):
        return
    joined = [*content, {"type": "text", "text": last}] if isinstance(content, list) else f"{content or ''}\n\n{last}"
    messages[-2:] = [{**before, "content": joined}]


def _in_beta(url: Url) -> Url:
    return replace(url, target=url.target + (b"&" if b"?" in url.target else b"?") + b"beta=true")


def _asks_for_usage(body: Json) -> bool:
    asked = body.get("stream_options")
    return isinstance(asked, dict) and asked.get("include_usage") is True


def _note(request: Request, prepared: Prepared) -> None:
    """Tell the record what the adapter changed so far."""
    for note in prepared.context.notes:
        request.record.note(note)


def _readable(body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


__all__: Sequence[str] = ("NothingToRepair", "Prepared", "Provider")
