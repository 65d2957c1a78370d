"""The two bridges between our transports and httpx's.

`PoolTransport` puts our pool under an `httpx.AsyncClient`; `HttpxTransport` puts any httpx
transport (proxies, HTTP/2, client certificates, `httpx.MockTransport` in tests) under the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from gateway.upstream.connect import words
from gateway.upstream.decode import Decoder, decoder
from gateway.upstream.pool import STALE_WITHIN, Pool
from gateway.upstream.transport import OURS, Exchange, Headers, Kind, TransportError, Url

T = TypeVar("T")

_NEVER = float("inf")


class PoolTransport(httpx.AsyncBaseTransport):
    """Our pool behind httpx's interface: `httpx.AsyncClient(transport=PoolTransport())`.

    httpx's `connect` and `read` timeouts hold (each read anew, as httpx means it). Bodies
    arrive decoded, so `content-encoding` and `content-length` are taken out where there was
    an encoding. Errors are httpx's own: ConnectError, ReadTimeout, ReadError, RemoteProtocolError.
    """

    def __init__(self, pool: Pool | None = None) -> None:
        self._pool = pool if pool is not None else Pool()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, timeout = request.url, request.extensions.get("timeout") or {}
        if url.scheme not in ("http", "https") or not url.host:
            raise httpx.UnsupportedProtocol("the URL must be http://HOST or https://HOST", request=request)
        target = Url(url.scheme, url.raw_host.decode("ascii").strip("[]"), url.port or (443 if url.scheme == "https" else 80), url.raw_path)
        body = await request.aread()
        now, read = asyncio.get_running_loop().time(), timeout.get("read")
        with _as_httpx(request):
            exchange = await self._pool.open(
                request.method.encode("ascii"),
                target,
                [(name, value) for name, value in request.headers.raw],
                body,
                connect=now + _seconds(timeout.get("connect")),
                deadline=now + _seconds(timeout.get("connect")) + _seconds(read),
            )
        headers = exchange.headers
        if exchange.header(b"content-encoding") is not None:
            headers = [header for header in headers if header[0] not in (b"content-encoding", b"content-length")]
        return httpx.Response(exchange.status, headers=headers, stream=_Body(exchange, request, _seconds(read)), request=request)

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, exchange: Exchange, request: httpx.Request, timeout: float) -> None:
        self._exchange, self._request, self._timeout = exchange, request, timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        with _as_httpx(self._request):
            while (piece := await self._exchange.read(loop.time() + self._timeout)) is not None:
                yield piece

    async def aclose(self) -> None:
        await self._exchange.aclose()


def _seconds(timeout: float | None) -> float:
    return _NEVER if timeout is None else timeout


@contextmanager
def _as_httpx(request: httpx.Request) -> Iterator[None]:
    try:
        yield
    except TransportError as error:
        text, kind = str(error), error.kind
        if kind == "connect":
            raise httpx.ConnectError(text, request=request) from error
        if kind == "timeout":
            raise httpx.ReadTimeout(text, request=request) from error
        if kind == "cut":
            raise httpx.ReadError(text, request=request) from error
        raise httpx.RemoteProtocolError(text, request=request) from error


class HttpxTransport:
    """A Transport over any httpx transport, with our deadlines, decoding and errors.

    The deadlines hold whatever the transport does. An HTTP/1.1 request whose kept-alive
    connection the server had closed is repeated once, as the pool does it, where the transport
    reports its connections (httpcore's `trace`); HTTP/2 says itself which requests it never took.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def open(self, method: bytes, url: Url, headers: Headers, body: bytes, *, connect: float, deadline: float) -> Exchange:
        began = asyncio.get_running_loop().time()
        try:
            return await self._once(method, url, headers, body, connect, deadline)
        except TransportError as error:
            if error.kind != "cut" or not error.reused or asyncio.get_running_loop().time() - began > STALE_WITHIN:
                raise
        return await self._once(method, url, headers, body, connect, deadline)

    async def _once(self, method: bytes, url: Url, headers: Headers, body: bytes, connect: float, deadline: float) -> _HttpxAnswer:
        trace = _Trace()
        request = _request(method, url, headers, body, trace, max(connect - asyncio.get_running_loop().time(), 0.001))
        response = await _within(deadline, url.place, trace, lambda: self._transport.handle_async_request(request))
        try:
            return _HttpxAnswer(response, url.place, trace)
        except TransportError:
            await response.aclose()
            raise

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Trace:
    """What httpcore tells of a request's way: the protocol, a new connection, bytes of an answer."""

    __slots__ = ("answered", "fresh", "http1")

    def __init__(self) -> None:
        self.http1 = self.fresh = self.answered = False

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        if event.startswith("connection."):
            self.fresh = True
        elif event.startswith("http11."):
            self.http1 = True
            self.answered = self.answered or event == "http11.receive_response_headers.complete"

    @property
    def stale(self) -> bool:
        """A kept-alive HTTP/1.1 connection took the request and no answer came back."""
        return self.http1 and not self.fresh and not self.answered


def _request(method: bytes, url: Url, headers: Headers, body: bytes, trace: _Trace, connect: float) -> httpx.Request:
    lines = [(name, value) for name, value in headers if name.lower() not in OURS]
    if any(b"\n" in part or b"\r" in part or b"\0" in part for line in lines for part in line):
        raise TransportError("protocol", "a header of the request holds a line break or a NUL")
    lines += [(b"host", url.authority), (b"accept-encoding", b"identity")]
    if body or method in (b"POST", b"PUT", b"PATCH"):
        lines.append((b"content-length", b"%d" % len(body)))
    host = f"[{url.host}]" if ":" in url.host else url.host
    address = httpx.URL(scheme=url.scheme, host=host, port=url.port, raw_path=url.target)
    timeout = {"connect": connect, "read": None, "write": None, "pool": connect}
    return httpx.Request(method.decode("ascii"), address, headers=lines, stream=httpx.ByteStream(body), extensions={"timeout": timeout, "trace": trace})


class _HttpxAnswer:
    """An Exchange over an httpx response."""

    def __init__(self, response: httpx.Response, place: str, trace: _Trace) -> None:
        self._response, self._place, self._trace = response, place, trace
        self.status = response.status_code
        self.headers: Headers = [(name.lower(), value) for name, value in response.headers.raw]
        encodings = [value for name, value in self.headers if name == b"content-encoding"]
        self._decoder: Decoder | None = decoder(b", ".join(encodings)) if encodings else None
        stream = response.stream
        if not isinstance(stream, httpx.AsyncByteStream):
            raise TypeError("an asynchronous transport must give an asynchronous stream")
        self._pieces = stream.__aiter__()
        self._ended = False

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    async def read(self, deadline: float) -> bytes | None:
        while True:
            if self._decoder is not None and (piece := self._decoder.take()):
                return piece
            raw = await self._raw(deadline)
            if self._decoder is None:
                if raw != b"":
                    return raw
            elif raw is None:
                self._decoder.finish()
                return None
            else:
                self._decoder.feed(raw)

    async def _raw(self, deadline: float) -> bytes | None:
        if self._ended:
            return None
        try:
            return await _within(deadline, self._place, self._trace, self._pieces.__anext__)
        except StopAsyncIteration:
            self._ended = True
            return None

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except (httpx.HTTPError, httpx.StreamError, OSError):
            pass  # closing a broken connection: nothing is left to be told


async def _within(deadline: float, place: str, trace: _Trace, work: Callable[[], Awaitable[T]]) -> T:
    """Await it until the deadline; whatever it raises becomes a TransportError (the end of a stream does not)."""
    if asyncio.get_running_loop().time() >= deadline:  # a drip must not outlive its deadline
        raise TransportError("timeout", f"{place} sent no end of its answer in time", sent=True)
    try:
        async with asyncio.timeout_at(None if deadline == _NEVER else deadline):
            return await work()
    except StopAsyncIteration:
        raise
    except TimeoutError:
        raise TransportError("timeout", f"{place} sent no end of its answer in time", sent=True) from None
    except Exception as error:  # besides httpx's errors also ssl's, h2's and ExceptionGroups come out of there
        raise _transport_error(error, place, trace) from None


_KINDS: tuple[tuple[type[Exception], Kind, str], ...] = (
    (httpx.ConnectTimeout, "connect", "no connection in time"),
    (httpx.PoolTimeout, "connect", "no connection free in time"),
    (httpx.ConnectError, "connect", "no connection"),
    (httpx.ProxyError, "connect", "the proxy refused"),
    (httpx.UnsupportedProtocol, "connect", "the URL cannot be reached this way"),
    (httpx.TimeoutException, "timeout", "sent no end of its answer in time"),
    (httpx.NetworkError, "cut", "the connection broke"),
    (httpx.LocalProtocolError, "protocol", "the request cannot be sent this way"),
)


def _transport_error(error: Exception, place: str, trace: _Trace) -> TransportError:
    """httpx's texts may hold URLs, so only the class is told, and the system's words for a socket's error."""
    if isinstance(error, httpx.RemoteProtocolError):
        cut = any(words in str(error) for words in ("disconnected without sending", "incomplete", "without sending complete", "ConnectionTerminated"))
        kind: Kind = "cut" if cut else "protocol"
        what = "the connection ended before the answer did" if cut else "sent what is not HTTP"
        return TransportError(kind, f"{place}: {what}", reused=trace.stale, sent=True)
    for cls, named, what in _KINDS:
        if isinstance(error, cls):
            return TransportError(named, f"{place}: {what}{_cause(error)}", reused=trace.stale, sent=named != "connect")
    return TransportError("protocol", f"{place}: the exchange failed ({type(error).__name__})", reused=trace.stale, sent=True)


def _cause(error: BaseException) -> str:
    """The system's or TLS's words behind an error of httpx, in brackets."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and (found := words(seen)):
            return f" ({found})"
        seen = seen.__cause__ or seen.__context__
    return ""
