"""From a name to a connected socket, all within one deadline."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gateway.upstream import tls
from gateway.upstream.transport import TransportError, Url

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""host and port -> IP addresses; OSError if there are none"""

P = TypeVar("P", bound=asyncio.Protocol)

_KEEPALIVE = 60  # seconds; middleboxes forget a silent connection after some minutes, a long thought takes longer


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host in the system's order, each once."""
    try:
        ipaddress.ip_address(host)
        return (host,)
    except ValueError:
        pass
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def connect_to(loop: asyncio.AbstractEventLoop, url: Url, make: Callable[[], P], context: ssl.SSLContext | None, resolver: Resolve, deadline: float) -> P:
    """A connected protocol; TransportError `connect` at the deadline or when every address failed.

    Addresses are tried in order; each may take an even share of the time that is left, so
    that one which swallows packets leaves time for the others.
    """
    try:
        async with asyncio.timeout_at(deadline):
            addresses = await resolver(url.host, url.port)
    except TimeoutError:
        raise TransportError("connect", f"{url.place}: the name was not resolved in time") from None
    except (OSError, UnicodeError) as error:
        raise TransportError(
            "connect", f"{url.place}: the name does not resolve ({words(error) if isinstance(error, OSError) else 'not a valid name'})"
        ) from None
    why = "the name has no address"
    for index, address in enumerate(addresses):
        now = loop.time()
        until = now + (deadline - now) / (len(addresses) - index)
        try:
            async with asyncio.timeout_at(until):
                return await _connect(loop, address, url, make, context)
        except TimeoutError:
            why = f"no connection within {max(until - now, 0):.1f} s"
        except OSError as error:  # ssl.SSLError is one
            why = words(error) or (tls.reason(error) if context is not None else type(error).__name__)
    raise TransportError("connect", f"{url.place}: {why}") from None


async def _connect(loop: asyncio.AbstractEventLoop, address: str, url: Url, make: Callable[[], P], context: ssl.SSLContext | None) -> P:
    name = url.host.rstrip(".") if context is not None else None
    transport, protocol = await loop.create_connection(make, address, url.port, ssl=context, server_hostname=name)
    wire = transport.get_extra_info("socket")
    if wire is not None:
        _keep_alive(wire)
    return protocol


def _keep_alive(wire: socket.socket) -> None:
    try:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, option):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), _KEEPALIVE)
    except OSError:
        pass  # closed again by the other side: the request will find that out


def words(error: OSError) -> str:
    """The system's or OpenSSL's words for an error, without addresses; empty where it has none."""
    if isinstance(error, ssl.SSLError):
        return tls.reason(error)
    if isinstance(error, socket.gaierror):
        return str(error.strerror or "").lower()
    return os.strerror(error.errno).lower() if error.errno else ""
