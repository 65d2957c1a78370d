"""HTTP for tools: a model, or a page that it read, chose the address, so the address is not trusted.

Names are resolved once and the connection goes to the address that was judged; redirects are
followed by hand and judged like the first address; size, time and redirects have caps.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import gateway
from gateway.chat import dumps
from gateway.errors import FetchFailed, FetchRefused
from gateway.upstream.connect import Resolve, resolve
from gateway.upstream.pool import Pool
from gateway.upstream.transport import Exchange, Headers, TransportError, Url

SIZE = 1024 * 1024
TIMEOUT = 10.0
REDIRECTS = 3
PORTS = (80, 443)
MAX_URL = 4096

_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "100.64.0.0/10",  # shared by carriers (RFC 6598), and Alibaba's metadata service
        "192.0.0.0/24",  # protocol assignments, and Oracle's metadata service; Python calls some of it global
        "192.88.99.0/24",  # 6to4 relays
        "168.63.129.16/32",  # Azure's host, reachable from every machine there
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4: any IPv4 address inside
        "3fff::/20",
    )
)
_UNICAST = ipaddress.IPv6Network("2000::/3")  # 64:ff9b::/96 and ::ffff:0:0/96, with any IPv4 address inside, are not in it
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
_REDIRECT = (301, 302, 303, 307, 308)


def public(address: str) -> bool:
    """Whether an IP address belongs to the internet at large, and not to this machine, its networks or a gateway into them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if not found.is_global or found.is_multicast or found.is_reserved or found.is_unspecified:
        return False
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id is not None or found not in _UNICAST):
        return False
    return not any(found in network for network in _NETWORKS if network.version == found.version)


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer. `url` is where it came from in the end; `truncated`: the body was longer than the cap, this is its beginning."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        """`text/html` and the like in lower case, without parameters; empty where the answer has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Guard:
    """Which addresses a tool may reach: public ones on ports 80 and 443, and what `allow` names (`host` or `host:port`).

    only   nothing but what `allow` names
    """

    allow: frozenset[tuple[str, int | None]] = frozenset()
    only: bool = False

    @classmethod
    def of(cls, allow: Iterable[str] = (), only: bool = False) -> Guard:
        return cls(frozenset(_entry(text) for text in allow), only)

    def allows(self, host: str, port: int) -> bool:
        """Whether an entry of `allow` names it."""
        name = host.rstrip(".")
        return (name, None) in self.allow or (name, port) in self.allow

    def url(self, text: str) -> Url:
        """The address in its parts. FetchRefused where no tool may reach it, whatever its name resolves to."""
        if len(text) > MAX_URL:
            raise FetchRefused(f"a URL may be {MAX_URL} characters long")
        try:
            url = Url.parse(text)
        except ValueError as error:
            raise FetchRefused(str(error)) from None
        if _NUMERIC.fullmatch(url.host) and not _canonical(text, url.host):
            raise FetchRefused("an IPv4 address must be written as four decimal numbers")
        if self.allows(url.host, url.port):
            return url
        if url.host.rstrip(".").endswith(".localhost") or url.host.rstrip(".") == "localhost":
            raise FetchRefused("localhost is not a public address")  # some resolvers answer for it, some ask the network
        if self.only:
            raise FetchRefused(f"{url.place} is not among the hosts that may be reached")
        if url.port not in PORTS:
            raise FetchRefused(f"{url.place}: only ports {' and '.join(map(str, PORTS))} may be reached")
        return url

    def judge(self, host: str, port: int, addresses: Sequence[str]) -> Sequence[str]:
        """The addresses of a host, if each of them may be reached."""
        if not self.allows(host, port) and not all(public(address) for address in addresses):
            raise FetchRefused(f"{host} is not a public address")
        return addresses


def _entry(text: str) -> tuple[str, int | None]:
    bare, colon, port = text.lower().rpartition(":")
    if not colon or text.endswith("]") or (":" in bare and not bare.startswith("[")):
        return _name(text.lower()), None
    return _name(bare), int(port)


def _name(host: str) -> str:
    bare = host.strip("[]").rstrip(".")
    return ipaddress.IPv6Address(bare).compressed if ":" in bare else bare


def _canonical(text: str, host: str) -> bool:
    """Whether an IPv4 address stands in the URL as everybody writes it: other spellings are read differently by different programs."""
    try:
        return str(ipaddress.IPv4Address(host)) == host == urlsplit(text).hostname
    except ValueError:
        return False


class GuardedClient:
    """GET and POST behind a Guard. It holds no connection between two requests, so there is nothing to close.

    size      bytes of a body that are read, decoded
    timeout   seconds for a request with all its redirects
    resolver  name and port -> addresses; default: the system's
    tls       what https verifies with; default: the system's store

    FetchRefused where the guard says no, FetchFailed where no answer came. Proxies of the
    environment are not used: a proxy would resolve the name again.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        size: int = SIZE,
        timeout: float = TIMEOUT,
        redirects: int = REDIRECTS,
        resolver: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard if guard is not None else Guard()
        self._size, self._timeout, self._redirects = size, timeout, redirects
        self._resolver, self._tls = resolver, tls

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Fetched:
        """The answer behind all redirects. `headers` go to the origin of `url` only."""
        first = at = self._guard.url(url)
        deadline = asyncio.get_running_loop().time() + self._timeout
        for _ in range(self._redirects + 1):
            same = (at.scheme, at.host, at.port) == (first.scheme, first.host, first.port)
            answer = await self._once(b"GET", at, headers or {} if same else {}, b"", deadline)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECT or not target:
                return answer
            at = self._guard.url(_joined(answer.url, target))
        raise FetchFailed(f"{first.place} redirects more than {self._redirects} times")

    async def post(self, url: str, json: object, headers: Mapping[str, str] | None = None) -> Fetched:
        """The answer to a JSON body. Redirects are not followed: they would carry the body to somebody else."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        return await self._once(b"POST", self._guard.url(url), {"content-type": "application/json", **(headers or {})}, dumps(json), deadline)

    async def _once(self, method: bytes, url: Url, headers: Mapping[str, str], body: bytes, deadline: float) -> Fetched:
        pool = Pool(keep=0, tls=self._tls, resolver=self._resolve)
        try:
            exchange = await pool.open(method, url, _lines(headers), body, connect=deadline, deadline=deadline)
            try:
                data, truncated = await self._body(exchange, deadline)
            finally:
                await exchange.aclose()
        except TransportError as error:
            raise FetchFailed(str(error)) from None
        finally:
            await pool.aclose()
        place = f"{url.scheme}://{url.authority.decode()}{url.target.decode()}"
        return Fetched(place, exchange.status, _readable(exchange.headers), data, truncated)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        return self._guard.judge(host, port, await self._resolver(host, port))

    async def _body(self, exchange: Exchange, deadline: float) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        size = 0
        while size <= self._size and (piece := await exchange.read(deadline)) is not None:
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)[: self._size], size > self._size


def _joined(base: str, target: str) -> str:
    try:
        return urljoin(base, target.strip())
    except ValueError:
        raise FetchRefused("it redirects to what is no URL") from None


def _lines(headers: Mapping[str, str]) -> Headers:
    """The caller's headers under ours. FetchRefused where one cannot be sent."""
    lines = {"user-agent": f"thinkgate/{gateway.__version__}", "accept": "*/*"} | {name.lower(): value for name, value in headers.items()}
    try:
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in lines.items()]
    except UnicodeEncodeError:
        raise FetchRefused("a header of the request holds a character outside ASCII") from None


def _readable(headers: Headers) -> dict[str, str]:
    out: dict[str, str] = {}
    for name, value in headers:
        out.setdefault(name.decode("latin-1"), value.decode("utf-8", "replace"))
    return out
