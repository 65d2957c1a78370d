"""Who may come in.

With client keys configured every route but the open ones needs one of them. Without, only
clients on this machine are answered, and only under a name of this machine: a web page that
rebinds its own name to 127.0.0.1 is refused by its Host header.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from gateway.config import Secret
from gateway.errors import Forbidden, InvalidRequest, Unauthorized
from gateway.keys import Authority, Holder

_CREDENTIAL = re.compile(rb"[!-~]{1,512}")
_IN_QUERY = re.compile(r"(?:x-)?api-?key|key|(?:access-|auth-)?token|authorization|bearer")
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::\d{1,5})?")


class Auth:
    """The check of client keys: the server's, which may use everything, and the virtual ones of `authority`. Keys are kept as digests."""

    def __init__(
        self, keys: Sequence[Secret], hosts: Sequence[str], open_to_all: bool, admin: Secret | None = None, authority: Authority | None = None
    ) -> None:
        self._digests = [_digest(key) for key in keys]
        self._tenants = {digest: f"server:{hashlib.sha256(b'tenant ' + digest).hexdigest()[:16]}" for digest in self._digests}
        """whose runs, sessions and answers each key's are: the same on every replica, whatever store each has"""
        self._admin = _digest(admin) if admin else None
        self._hosts = {host.lower() for host in hosts}
        """names, and names with the one port that they may be used with"""
        self._open = open_to_all
        self._authority = authority or Authority()

    def check(self, headers: Mapping[bytes, bytes], client: str | None) -> Holder | str:
        """Let a request in, or raise Unauthorized, Forbidden or InvalidRequest.

        Gives the holder of a virtual key, else a tenant: that of a key of the server, or "".
        """
        given = credential(headers)
        if self._digests or self._authority.needed:
            if given is None:
                raise Unauthorized("no API key was given; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")
            digest = hashlib.sha256(given).digest()
            if any([hmac.compare_digest(digest, known) for known in self._digests]):  # a list: every key is compared, always
                return self._tenants[digest]
            return self._authority.identify(given, digest)
        if not self._open:
            self.check_local(headers, client)
        return ""

    def check_admin(self, headers: Mapping[bytes, bytes], client: str | None) -> None:
        """Let an administrator in: by the admin key, or, where no key at all is configured, by being on this machine."""
        if self._admin is None:
            if self._digests or self._authority.needed:
                raise Forbidden("no admin key is configured (server.admin_key), so /admin is closed", code="admin_disabled")
            if self._open and any(name in headers for name in _FORWARDED):  # through a proxy on this machine everybody is on this machine
                raise Forbidden("a forwarded request needs an admin key (server.admin_key)", code="admin_disabled")
            self.check_local(headers, client)
            return
        given = credential(headers)
        if given is None or not hmac.compare_digest(hashlib.sha256(given).digest(), self._admin):
            raise Unauthorized("the admin key is not valid here")

    def check_local(self, headers: Mapping[bytes, bytes], client: str | None) -> None:
        """Only a client on this machine that used a name of this machine."""
        if not is_loopback(client):
            raise Forbidden("this gateway has no client key and answers clients on its own machine only", code="loopback_only")
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            raise Forbidden("the Host header does not name this machine; add the name to server.hosts if it should", code="host_not_allowed")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_ours(urlsplit(origin.decode("latin-1")).netloc):
            raise Forbidden("the Origin header does not name this machine; add the name to server.hosts if it should", code="origin_not_allowed")

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]").lower()
        return name == "localhost" or name in self._hosts or host.lower() in self._hosts or is_loopback(name)


def check_query(query: bytes) -> None:
    """Refuse a credential in a URL, where logs and histories keep it."""
    for name in parse_qs(query.decode("latin-1"), keep_blank_values=True):
        if _IN_QUERY.fullmatch(name.lower().replace("_", "-")):
            raise InvalidRequest(
                "a credential in the query string is not accepted; send it as `Authorization: Bearer` or `x-api-key`", code="credential_in_query"
            )


def _digest(key: Secret) -> bytes:
    return hashlib.sha256(key.reveal().encode()).digest()


def credential(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The client's key from either header. InvalidRequest if both are there and differ."""
    bearer, plain = headers.get(b"authorization"), headers.get(b"x-api-key")
    if bearer is not None:
        scheme, _, value = bearer.partition(b" ")
        if scheme.lower() != b"bearer" or not _CREDENTIAL.fullmatch(value.strip()):
            raise Unauthorized("the Authorization header must be `Bearer KEY`")
        bearer = value.strip()
    if plain is not None and not _CREDENTIAL.fullmatch(plain):
        raise Unauthorized("the x-api-key header does not hold a key")
    if bearer is not None and plain is not None and not hmac.compare_digest(bearer, plain):
        raise InvalidRequest("Authorization and x-api-key hold different keys", code="ambiguous_credentials")
    return bearer if bearer is not None else plain


def is_loopback(host: str | None) -> bool:
    """Whether an address is this machine; a unix socket (None) is."""
    if host is None:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
