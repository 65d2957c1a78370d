"""uvicorn's HTTP protocol with the bounds that it lacks: time and size of a request's header, and errors as JSON.

Leans on uvicorn 0.54's HttpToolsProtocol (a class given as `http=`); `tests/api/test_protocol.py`
fails where a newer uvicorn no longer fits.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEADER_LIMIT = 64 * 1024
"""bytes of a request's line and headers"""
FIELD_LIMIT = 100


class Protocol(HttpToolsProtocol):
    """One client connection. `header_timeout` seconds of the lifespan's state: to the first header, and for each one that has begun."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._seconds: float = app_state.get("header_timeout", 10.0)
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._size = 0
        self._overhead = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._timer is not None:  # within a header
            self._size += len(data)
            if self._size > HEADER_LIMIT and not self._may_be_body(data):
                self._refuse(431, "the header of the request is too large")
                return
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > HEADER_LIMIT:  # trailers, or the extensions of a chunk: the parser collects them, at quadratic cost
            self._refuse(431, "the trailers of the request are too large")

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._overhead = 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = True
        self._overhead = 0
        if self._timer is None:
            self._size = 0
            self._timer = self.loop.call_later(self._seconds, self._too_slow)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:
            return  # a trailer behind the body: nobody has checked it, so it is no header (RFC 9110 section 6.5.1)
        super().on_header(name, value)
        if len(self.headers) > FIELD_LIMIT:
            self._refuse(431, "the request has too many headers")

    def on_headers_complete(self) -> None:
        self._disarm()
        self._overhead = 0
        if not self.transport.is_closing():
            super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP request")

    def _unsupported_upgrade_warning(self) -> None:
        """The gate answers upgrades with 426; that is not worth two warnings in the log."""

    @staticmethod
    def _may_be_body(data: bytes) -> bool:
        """A piece that ends the header and brings much of the body with it."""
        return 0 <= data.find(b"\r\n\r\n") <= HEADER_LIMIT

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._begun = False

    def _too_slow(self) -> None:
        self._timer = None
        if self._begun:
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
