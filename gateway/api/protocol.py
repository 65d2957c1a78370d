"""uvicorn's HTTP protocol with the bounds that it lacks: time and size of a request's header, and errors as JSON.

Leans on uvicorn 0.54's HttpToolsProtocol (a class given as `http=`); `tests/api/test_protocol.py`
fails where a newer uvicorn no longer fits.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.api.cycle import Cycle

HEADER_LIMIT = 64 * 1024
"""bytes of a request's line and headers"""
FIELD_LIMIT = 100
NEVER = float("inf")
_TICK = 0.001  # uvloop counts milliseconds: its timers may fire that much too early


class Protocol(HttpToolsProtocol):
    """One client connection. `header_timeout` seconds of the lifespan's state: to the first header, and for each one that has begun.

    `_heading`: a header is awaited or has begun (`_begun`). One timer a connection, for the
    deadline of that header or of the silence between two requests; it moves only when it fires.
    """

    cycle: Cycle | None  # type: ignore[assignment]

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._seconds: float = app_state.get("header_timeout", 10.0)
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._timer_at = NEVER
        self._heading = True
        self._begun = False
        self._size = 0
        self._overhead = 0
        self._running: Cycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_within(self._seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, NEVER
        cycles, self._running, self.cycle = (self._running, self.cycle), None, None
        for cycle in cycles:
            if cycle is not None:
                cycle.lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        size = len(data)
        if self._heading:
            self._size += size
            if self._size > HEADER_LIMIT and not self._may_be_body(data):
                self._refuse(431, "the header of the request is too large")
                return
        self._overhead += size
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, "this is not a valid HTTP request")
        except httptools.HttpParserUpgrade:
            pass  # the gate answers it with 426
        if self._begun and self._due == NEVER and not self.transport.is_closing():
            self._expect_within(self._seconds)
        if self._overhead > HEADER_LIMIT:  # trailers, or the extensions of a chunk: the parser collects them, at quadratic cost
            self._refuse(431, "the trailers of the request are too large")

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._begun = True
        self._overhead = 0
        if not self._heading:
            self._heading = True
            self._size = 0
            self._due = NEVER

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._begun:  # else a trailer behind the body: nobody has checked it, so it is no header (RFC 9110 section 6.5.1)
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._heading = self._begun = False
        self._due = NEVER
        self._overhead = 0
        if self.transport.is_closing():
            return
        if len(self.headers) > FIELD_LIMIT:
            self._refuse(431, "the request has too many headers")
            return
        before, version = self.cycle, self.parser.get_http_version()
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        self.cycle = cycle = Cycle(self._scope(version), self.transport, self.flow, self.server_state, keep_alive, self.on_response_complete)
        if before is None or before.response_complete:
            self._start(cycle)
        else:  # it came before the answer to the one before it
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type]

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.body(body)

    def on_message_complete(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.body_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._running = None
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start(self.pipeline.pop()[0])  # type: ignore[arg-type]
        elif not self._heading:
            self._expect_within(self.timeout_keep_alive)

    def _start(self, cycle: Cycle) -> None:
        self._running = cycle
        cycle.start(self.loop, self.app)

    def _scope(self, version: str) -> dict[str, Any]:
        url = self.url
        if url[:1] == b"/" and b"#" not in url:
            raw_path, _, query = url.partition(b"?")
        else:  # an absolute URL, or one that nobody sends
            parsed = httptools.parse_url(url)
            raw_path, query = parsed.path, parsed.query or b""
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": self.parser.get_method().decode("ascii"),
            "root_path": self.root_path,
            "path": self.root_path + (unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    @staticmethod
    def _may_be_body(data: bytes) -> bool:
        """A piece that ends the header and brings much of the body with it."""
        return 0 <= data.find(b"\r\n\r\n") <= HEADER_LIMIT

    def _expect_within(self, seconds: float) -> None:
        self._due = due = self.loop.time() + seconds
        if self._timer is None or due < self._timer_at:
            self._arm(due)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._due == NEVER:
            return
        if self.loop.time() + _TICK < self._due:
            self._arm(self._due)
        elif self._begun:
            self._refuse(408, "the header of the request did not arrive in time")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = b'{"error":{"message":"%b","type":"invalid_request_error","param":null,"code":"bad_http"}}' % message.encode("ascii")
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
