"""What the gateway asks of a connection to a provider: one exchange, at the headers, then piece by piece.

`Pool` (pool.py) is the fast way, `HttpxTransport` (httpx_transport.py) serves proxies, HTTP/2
and client certificates; `choose` (choose.py) says which one a provider gets.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, Protocol
from urllib.parse import quote, urlsplit

Kind = Literal["connect", "timeout", "protocol", "cut"]
Headers = list[tuple[bytes, bytes]]

OURS = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection", b"accept-encoding"))
"""request headers that the transport writes itself; the caller's are left out"""

_BAD = re.compile(r"[\x00-\x20\x7f]")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_.])?")  # the underscore is no hostname's, but container networks use it
_SAFE = "!#$%&'()*+,/:;=?@[]~"


class TransportError(Exception):
    """No answer, or not all of one.

    kind     `connect`   no connection (name, address, TLS): nothing was sent
             `timeout`   the deadline passed
             `protocol`  what came is not an HTTP answer that we accept
             `cut`       the connection ended before the answer did
    reused   the failure came on a kept-alive connection
    sent     bytes of the request may have reached the provider

    The message is never empty and free of secrets: it names host and port, never a path,
    a query or a header's value.
    """

    def __init__(self, kind: Kind, message: str, *, reused: bool = False, sent: bool = False) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.reused = reused
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Url:
    """An http or https address, in the parts that a request needs.

    `host` is lower-cased, an IPv6 address without brackets; `target` is path and query as
    they go on the wire, percent-encoded, never empty.
    """

    scheme: str
    host: str
    port: int
    target: bytes

    @classmethod
    def parse(cls, text: str) -> Url:
        """ValueError if the text is not an absolute http(s) URL; its message does not repeat the text."""
        if _BAD.search(text):
            raise ValueError("a URL must not hold blanks or control characters")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError("the URL's host or port is not valid") from None
        if parts.scheme not in ("http", "https"):
            raise ValueError("a URL must start with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL must not hold a user name or a password")
        if port is None:
            port = 443 if parts.scheme == "https" else 80
        if port == 0:
            raise ValueError("a URL's port must be between 1 and 65535")
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        return cls(parts.scheme, _ascii_host(host), port, target.encode("ascii"))

    @property
    def authority(self) -> bytes:
        """The value of the Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return (host if self.port == default else f"{host}:{self.port}").encode("ascii")

    @property
    def place(self) -> str:
        """`host:port`, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _ascii_host(host: str) -> str:
    """The host as the wire has it. ValueError if it is no name and no address."""
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host if "%" not in host else "").compressed  # a zone means nothing to a server
        except ValueError:
            raise ValueError("the URL's host is not a valid IPv6 address") from None
    try:
        name = host.encode("ascii" if host.isascii() else "idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name):
        raise ValueError("a URL must name a valid host")
    return name


class Exchange(Protocol):
    """One answer whose headers are there. Whoever opens it closes it."""

    status: int
    headers: Headers
    """names lower-cased, in the order received; the body's own encodings are already undone by `read`"""

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header (name in lower case)."""
        ...

    async def read(self, deadline: float) -> bytes | None:
        """The pieces of the decoded body that are there, at least one byte; None at its proper end.

        Waits until `deadline` (`loop.time()` seconds). TransportError `timeout` then, `cut`
        where the body ended early, `protocol` where it is garbage, a bomb or encoded in an
        unknown way.
        """
        ...

    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end, else close it at once.

        May be called again, and in a task that is being cancelled.
        """
        ...


class Transport(Protocol):
    async def open(self, method: bytes, url: Url, headers: Headers, body: bytes, *, connect: float, deadline: float) -> Exchange:
        """Send one request; returns at the answer's headers (any status; 1xx skipped, 3xx not followed).

        `connect` and `deadline` are `loop.time()` seconds: until a connection stands, and
        until the headers are there. Raises TransportError.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection, those in use too."""
        ...
