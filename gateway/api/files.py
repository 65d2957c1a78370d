"""`/v1/files` and `/v1/batches`: passed on to one provider, named by `server.files` or by a request's header."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request as Web
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gateway.api.answering import Presence, visit_of
from gateway.api.bodies import read_body
from gateway.api.headers import response_headers
from gateway.errors import ChainExhausted, InvalidRequest
from gateway.upstream import Exchange, Provider, TransportError

_METHODS = ["GET", "POST", "DELETE"]
_SENT = ("content-type", "content-length", "content-disposition")
_KEPT = (b"content-type", b"accept")


def routes(prefix: str) -> list[Route]:
    return [Route(f"{prefix}/{name}{rest}", forward, methods=_METHODS) for name in ("files", "batches") for rest in ("", "/{rest:path}")]


async def forward(web: Web) -> Response:
    """One exchange with the provider, path, query and body as they came. No fallback: a file lives in one place."""
    visit = visit_of(web)
    provider = _provider(web)
    server = visit.state.server
    body = await read_body(web.receive, visit.headers, server.max_body, server.body_timeout)
    path = web.scope["path"].removeprefix("/v1")
    if any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise InvalidRequest("the path is not acceptable")
    headers = {name.decode(): visit.headers[name].decode("latin-1") for name in _KEPT if name in visit.headers}
    visit.record.endpoint, visit.record.provider = "files", provider.name
    try:
        with Presence(web.scope):
            exchange = await provider.forward(web.method, path, web.scope["query_string"], headers, body, visit.record.id)
    except TransportError as error:
        raise ChainExhausted(visit.state.redact(f"{provider.name}: {error}"), [], code="upstream_unreachable") from None
    kept = [(name, value) for name, value in exchange.headers if name.decode("latin-1") in _SENT and exchange.header(b"content-encoding") is None]
    response = StreamingResponse(_pieces(exchange, provider.settings.timeouts.idle), exchange.status)
    response.raw_headers = [*kept, *response_headers(visit.record)]
    return response


def _provider(web: Web) -> Provider:
    visit = visit_of(web)
    named = visit.headers.get(b"x-thinkgate-provider")
    name = named.decode("latin-1") if named is not None else visit.state.server.files
    if name is None:
        raise InvalidRequest("files and batches go to one provider: set server.files, or send x-thinkgate-provider", code="no_files_provider")
    provider = visit.state.router.providers.get(name)
    if provider is None:
        raise InvalidRequest(f'there is no provider "{name}"', code="unknown_provider", param="x-thinkgate-provider")
    return provider


async def _pieces(exchange: Exchange, idle: float) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    try:
        while (piece := await exchange.read(loop.time() + idle)) is not None:
            yield piece
    finally:
        await exchange.aclose()
