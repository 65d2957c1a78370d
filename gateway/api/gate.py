"""The door: every request passes here first. Plain ASGI around the routes, deny by default."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.answering import send_error
from gateway.api.auth import check_query, is_loopback
from gateway.api.charging import identify
from gateway.api.state import State, Visit
from gateway.chat import Record
from gateway.errors import GatewayError, InvalidRequest
from gateway.keys import Holder, UnknownKey

log = logging.getLogger("thinkgate")

OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/console"})
"""Paths that need no key; nor do the console's files below /console/. /metrics is open to clients on this machine."""

_MESSAGES = ("/messages", "/messages/count_tokens")  # their clients expect errors in Anthropic's form
_MODELS = ("/v1/models", "/models")  # those of Anthropic's clients too

_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class UpgradeRequired(InvalidRequest):
    """426 makes clients that try a WebSocket first (Codex) use HTTP at once; on other statuses they retry for seconds."""

    status, code = 426, "upgrade_required"


class Gate:
    """Gives each request its Visit (id, record, credentials checked), or the answer that it gets instead.

    `direct` are the paths whose application is called without the detour over Starlette:
    its routing and two wrappers of `send` would cost a fifth of the gateway's own CPU time.
    """

    def __init__(self, app: ASGIApp, direct: Mapping[str, ASGIApp], state: Callable[[], State]) -> None:
        self._app = app
        self._direct = direct
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = self._state()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        messages = scope["path"].endswith(_MESSAGES) or (b"anthropic-version" in headers and scope["path"].startswith(_MODELS))
        record = Record(id=request_id(headers), endpoint="messages" if messages else "other")
        visit = Visit(state, record, headers, scope.get("query_string", b""))
        scope["visit"] = visit
        try:
            check_shape(scope)
            path, client = scope["path"], scope["client"][0] if scope.get("client") else None
            if visit.query:
                check_query(visit.query)
            if path.startswith("/admin"):
                state.auth.check_admin(headers, client)
            elif not is_open(path, client):
                identify(visit, await asking(state, headers, client))
            if b"upgrade" in headers and headers[b"upgrade"].lower() == b"websocket":
                raise UpgradeRequired("WebSocket is not served here; use HTTP")
        except GatewayError as error:
            state.telemetry.finish(record, error.status, "none", error.code)
            await send_error(send, record, error)
            return
        await self._direct.get(scope["path"], self._app)(scope, receive, send)


async def asking(state: State, headers: dict[bytes, bytes], client: str | None) -> Holder | str:
    """Who asks. A key that nobody knows may have been made on another replica a moment ago, so the store is asked before it is refused."""
    try:
        return state.auth.check(headers, client)
    except UnknownKey:
        if not await state.ledger.seek():
            raise
    return state.auth.check(headers, client)


def request_id(headers: dict[bytes, bytes]) -> str:
    """The client's `x-request-id` where it is a plain word, else a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _ID.fullmatch(given):
        return given.decode("ascii")
    # to be told apart, not to be guessed: the kernel's numbers cost 5 us. By time first: each row of the store then stands in its
    # index beside the last one, where random ids write a page for each row (18 us of 23 in a store of 50,000 rows, 2026-12)
    return f"req_{int(time.time() * 1000):012x}{random.getrandbits(48):012x}"


def is_open(path: str, client: str | None) -> bool:
    return path in OPEN or path.startswith("/console/") or (path == "/metrics" and is_loopback(client))


def check_shape(scope: Scope) -> None:
    """Refuse what different HTTP implementations read differently: it is how requests are smuggled."""
    if scope.get("http_version") not in ("1.0", "1.1", "2"):
        raise InvalidRequest("unsupported HTTP version")
    hosts = lengths = codings = 0
    for name, value in scope["headers"]:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            lengths += 1
        elif name == b"transfer-encoding":
            codings += 1
            if value.strip().lower() != b"chunked":
                raise InvalidRequest("the only transfer encoding accepted is chunked")
    if hosts != 1 and not (hosts == 0 and scope.get("http_version") != "1.1"):
        raise InvalidRequest("exactly one Host header is needed")
    if lengths > 1 or codings > 1 or (lengths and codings):
        raise InvalidRequest("conflicting lengths of the body")
    path = scope["path"]
    if "\x00" in path or "\\" in path or "/../" in path or path.endswith("/..") or "//" in path:
        raise InvalidRequest("the path is not acceptable")
