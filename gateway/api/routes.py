"""The routes and what each answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as Web
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from gateway.api import admin, admin_keys, agents, console, files, responses
from gateway.api.answering import envelope, json_response, send_error, visit_of
from gateway.api.completions import Completions, is_dry_run
from gateway.api.counting import Counting
from gateway.api.gate import Gate
from gateway.api.headers import error_headers
from gateway.api.mcp import mcp
from gateway.api.relay import Relayed
from gateway.api.responses import Responses
from gateway.api.state import State, Visit
from gateway.chat import Json
from gateway.errors import GatewayError, InvalidRequest, MethodNotAllowed, NotFound
from gateway.upstream import RELAYED

log = logging.getLogger("thinkgate")

ENDPOINTS: dict[str, ASGIApp] = {
    "/chat/completions": Completions("chat", "chat"),
    "/responses": Responses("responses", "responses"),
    "/messages": Completions("messages", "messages"),
    "/completions": Completions("completions", "completions"),
    **{f"/{name}": Relayed(name) for name in RELAYED},
    "/messages/count_tokens": Counting("messages/count_tokens"),
}
"""What is served straight from the gate, below /v1 and without it."""

_STARTED = int(time.time())


def build(state: Callable[[], State], lifespan: Lifespan[Starlette], cors: tuple[str, ...]) -> Door:
    """The whole ASGI application. `state` gives the State of the config that is loaded now."""
    direct: dict[str, ASGIApp] = {"/mcp": mcp}
    routes = []
    for prefix in ("/v1", ""):
        direct |= {f"{prefix}{path}": endpoint for path, endpoint in ENDPOINTS.items()}
        routes += [
            *responses.routes(prefix),
            *files.routes(prefix),
            *agents.routes(prefix),
            Route(f"{prefix}/models", models, methods=["GET"]),
            Route(f"{prefix}/models/{{name:path}}", model, methods=["GET"]),
        ]
    routes += [
        *console.routes(),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *admin.routes(),
        *admin_keys.routes(),
        *agents.admin_routes(),
    ]

    @cache
    def document() -> Json:
        from gateway.api import openapi  # for who reads it

        return openapi.document(routes, direct)

    async def described(web: Web) -> Response:
        return json_response(web, document())

    routes.append(Route("/openapi.json", described, methods=["GET"]))
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error, GatewayError: _gateway_error, Exception: _unforeseen})
    app.router.redirect_slashes = False
    return Door(Gate(NeverDry(app), {**direct, "/mcp": NeverDry(mcp)}, state), cors)


class DryRunUnsupported(InvalidRequest):
    """A dry run of what is no chain: doing it all the same would be what the client did not want."""

    code, param = "dry_run_unsupported", "x-thinkgate-dry-run"


class NeverDry:
    """An application that does nothing for a POST that only asks what would be sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and is_dry_run(scope["visit"].headers):
            why = "there is nothing to explain here: x-thinkgate-dry-run is for requests with a chain of targets; nothing was done"
            await send_error(send, scope["visit"].record, DryRunUnsupported(why))
        else:
            await self.app(scope, receive, send)


class Door:
    """The application, behind what web pages of other origins may do: that can change while it runs."""

    def __init__(self, gate: ASGIApp, cors: tuple[str, ...]) -> None:
        self._gate = gate
        self.allow(cors)

    def allow(self, cors: tuple[str, ...]) -> None:
        """Let the pages of these origins call from now on, and no others."""
        self._app = self._gate
        if cors:  # outside the gate: a preflight carries no credentials
            methods = ["GET", "POST", "PATCH", "DELETE"]
            self._app = CORSMiddleware(self._gate, allow_origins=cors, allow_methods=methods, allow_headers=["*"], expose_headers=["*"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def healthz(web: Web) -> Response:
    return json_response(web, {"status": "ok"})


async def readyz(web: Web) -> Response:
    ready, parts = visit_of(web).state.ready()
    return json_response(web, {"status": "ready" if ready else "not ready", **parts}, 200 if ready else 503)


async def metrics(web: Web) -> Response:
    visit = visit_of(web)
    return Response(await visit.state.control.metrics(), media_type="text/plain; version=0.0.4", headers={"x-request-id": visit.record.id})


async def models(web: Web) -> Response:
    """What clients may put into `model`; in Anthropic's shape for clients that speak Messages."""
    visit = visit_of(web)
    names = [name for name in visit.state.router.names() if visit.holder is None or visit.holder.allows(name)]
    if _speaks_messages(visit):
        data: list[Any] = [_anthropic(name) for name in names]
        return json_response(web, {"data": data, "has_more": False, "first_id": names[0] if names else None, "last_id": names[-1] if names else None})
    data = [_entry(name) for name in names]
    return json_response(web, {"object": "list", "data": data, "models": data})


async def model(web: Web) -> Response:
    name = web.path_params["name"]
    visit = visit_of(web)
    messages = _speaks_messages(visit)
    if visit.holder is not None:
        visit.holder.check(name)
    try:
        visit.state.router.find(name)
    except InvalidRequest as error:
        raise NotFound(error.message, code="model_not_found", param="model") from None
    return json_response(web, _anthropic(name) if messages else _entry(name))


def _speaks_messages(visit: Visit) -> bool:
    """Whether the client is one of Anthropic's API, which expects errors in that form too."""
    if b"anthropic-version" not in visit.headers:
        return False
    visit.record.endpoint = "messages/models"
    return True


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _STARTED, "owned_by": "thinkgate"}


def _anthropic(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_STARTED))}


async def _gateway_error(web: Web, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    visit = visit_of(web)
    status, body = envelope(error, visit.record)
    response = JSONResponse(body, status)
    response.raw_headers += error_headers(visit.record, error, visit.limits)
    if isinstance(error, MethodNotAllowed) and error.allow:
        response.headers["allow"] = ", ".join(error.allow)
    return response


async def _unforeseen(web: Web, error: Exception) -> Response:
    """What nobody thought of; the server writes all of it to the log after this."""
    log.error("id=%s unexpected failure: %s", visit_of(web).record.id, type(error).__name__)
    return await _gateway_error(web, GatewayError("the gateway failed; the log has the reason under this request id"))


async def _http_error(web: Web, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{web.method} {web.url.path}"
    if error.status_code == 405:
        routes = [route for route in web.app.routes if isinstance(route, Route) and route.path_regex.match(web.scope["path"])]  # one path may have several
        allow = tuple(sorted({method for route in routes for method in route.methods or ()}))
        return await _gateway_error(web, MethodNotAllowed(f"Method not allowed ({where})", allow))
    return await _gateway_error(web, NotFound(f"Invalid URL ({where})", code="unknown_url"))
