"""The runs of agents over HTTP: start one, look at it, follow its events, answer it, fork it; and the sessions that they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request as Web
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway import sse
from gateway.agent import Delta, Event, Order, Runs, messages_of, session_id, shown
from gateway.api.admin_keys import whole
from gateway.api.answering import json_response, visit_of
from gateway.api.charging import admit, settle
from gateway.api.headers import response_headers
from gateway.api.responses import read_json
from gateway.api.state import Visit
from gateway.chat import Body, Json, Request, dumps
from gateway.errors import GatewayError, InvalidRequest, NotFound

if TYPE_CHECKING:
    from gateway.agent import Elsewhere, Live

EVERYTHING = "everything"
"""what an administrator sees of a run, beside the visibilities that clients can have"""
_FIELDS = ("input", "session_id", "background", "stream", "metadata", "options")


def routes(prefix: str) -> list[Route]:
    return [
        Route(f"{prefix}/agents/{{name}}/runs", start, methods=["POST"]),
        Route(f"{prefix}/runs/{{id}}", one, methods=["GET"]),
        Route(f"{prefix}/runs/{{id}}/events", events, methods=["GET"]),
        Route(f"{prefix}/runs/{{id}}/cancel", cancel, methods=["POST"]),
        Route(f"{prefix}/runs/{{id}}/approve", approve, methods=["POST"]),
        Route(f"{prefix}/runs/{{id}}/input", more_input, methods=["POST"]),
        Route(f"{prefix}/runs/{{id}}/fork", fork, methods=["POST"]),
        Route(f"{prefix}/sessions/{{id}}", session, methods=["GET", "DELETE"]),
    ]


def admin_routes() -> list[Route]:
    return [
        Route("/admin/runs", page, methods=["GET"]),
        Route("/admin/runs/{id}", everything, methods=["GET"]),
        Route("/admin/runs/{id}/events", all_events, methods=["GET"]),
        Route("/admin/runs/{id}/cancel", cancel, methods=["POST"]),
        Route("/admin/runs/{id}/approve", approve, methods=["POST"]),
        Route("/admin/runs/{id}/input", more_input, methods=["POST"]),
    ]


async def page(web: Web) -> Response:
    """All runs, the newest first."""
    query = web.query_params
    limit, before = whole(query, "limit", 1), whole(query, "before", 0)
    found = await visit_of(web).state.runs.journal.page(100 if limit is None else limit, before, query.get("agent"), query.get("key_name"), query.get("status"))
    return json_response(web, {"data": [{**row.public(), "key": row.key_name or None} for row in found.rows], "next": found.next})


async def everything(web: Web) -> Response:
    """One run with every event and what the run keeps beside it, thoughts that clients may not see included. `events=none` leaves the events out."""
    journal, wanted = visit_of(web).state.runs.journal, web.query_params.get("events", "all")
    if wanted not in ("all", "none"):
        raise InvalidRequest("events is all or none", param="events")
    row, events = await journal.load(web.path_params["id"]) if wanted == "all" else (await journal.row(web.path_params["id"]), [])
    told = [{**event.public(), "time": event.time, "key": event.key, "state": event.state} for event in events]
    return json_response(web, {**row.public(), "key": row.key_name or None, "input": row.input, "waiting": row.waiting, "events": told})


async def start(web: Web) -> Response:
    """202 and the queued run with `background`, else the finished run; its events with `stream`."""
    visit, name = visit_of(web), web.path_params["name"]
    visit.record.endpoint, visit.record.model = "runs", f"agent/{name}"
    failed: GatewayError | None = None
    status, streams = 500, False
    try:
        body = await read_json(web)
        if visit.holder is not None:
            visit.holder.check(visit.record.model)
        runs = _runs(visit, name)
        order = _order(visit, name, body, web)
        await admit(visit, Request(Body(dumps(body)), visit.record.model, visit.record, endpoint="runs"))
        live = await runs.begin(order)
        _name(visit, live)
        if order.background:
            status = 202
            if visit.admission is not None:  # the run is one request of its key for as long as it is under way
                runs.hold(live.id, partial(visit.admission.settle, usd=0.0))
                visit.admission = None
            return json_response(web, {**live.row.public(), "run_id": live.id}, 202)
        if body.get("stream") is True:
            streams = True
            return _stream(web, live.listen(), runs.visibility(name), partial(_left, live, visit))
        await live.done()
        live.account(visit.record)
        status = 200
        return json_response(web, live.row.public())
    except GatewayError as error:
        status, failed = error.status, error
        raise
    finally:
        if not streams:
            settle(visit, status, failed)


def _order(visit: Visit, name: str, body: Json, web: Web) -> Order:
    unknown = [field for field in body if field not in _FIELDS]
    if unknown:
        raise InvalidRequest(f"unknown field `{unknown[0]}`; known: {', '.join(_FIELDS)}", param=unknown[0])
    for field, kind, word in (
        ("background", bool, "true or false"),
        ("stream", bool, "true or false"),
        ("metadata", dict, "an object"),
        ("options", dict, "an object"),
    ):
        if body.get(field) is not None and not isinstance(body[field], kind):
            raise InvalidRequest(f"`{field}` must be {word}", param=field)
    return Order(
        agent=name,
        messages=messages_of(body.get("input")),
        appends=isinstance(body.get("input"), str),  # one new message, also where it is what the session began with ("hello" again)
        tenant=visit.record.tenant,
        key=visit.record.key,
        session_id=session_id(body.get("session_id") or (body.get("metadata") or {}).get("session_id") or web.headers.get("x-session-id")),
        background=bool(body.get("background")),
        metadata=body.get("metadata") or {},
        options=body.get("options") or {},
        idempotency_key=web.headers.get("idempotency-key"),
    )


async def one(web: Web) -> Response:
    visit = visit_of(web)
    row = await visit.state.runs.row(web.path_params["id"], visit.record.tenant)
    visit.record.run_id, visit.record.session = row.id, row.session_id
    return json_response(web, row.public())


async def events(web: Web) -> Response:
    """Every event so far, then those to come, until the run is over. `Last-Event-ID` (or `?after=`) says what the client has."""
    visit, after = visit_of(web), _after(web)
    runs = visit.state.runs
    row = await runs.row(web.path_params["id"], visit.record.tenant)
    return _stream(web, runs.follow(row.id, after), runs.visibility(row.agent))


async def all_events(web: Web) -> Response:
    """The same of anybody's run, with the time of each, and with the thoughts that clients may not see."""
    after, runs = _after(web), visit_of(web).state.runs
    row = await runs.journal.row(web.path_params["id"])
    return _stream(web, runs.follow(row.id, after), EVERYTHING)


def _after(web: Web) -> int:
    after = web.headers.get("last-event-id") or web.query_params.get("after") or "0"
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise InvalidRequest("Last-Event-ID must be the number of an event", param="Last-Event-ID")
    return int(after)


async def _tenant(web: Web) -> str:
    """Whose runs may be meant: those of the key that asks; an administrator acts for the key that began the run."""
    if not web.scope["path"].startswith("/admin/"):
        return visit_of(web).record.tenant
    return (await visit_of(web).state.runs.journal.row(web.path_params["id"])).tenant


async def cancel(web: Web) -> Response:
    return json_response(web, (await visit_of(web).state.runs.cancel(web.path_params["id"], await _tenant(web))).public())


async def approve(web: Web) -> Response:
    """What a person says of the approval that the run waits for; the run goes on in the background."""
    visit, body = visit_of(web), await read_json(web)
    if not isinstance(body.get("approved"), bool):
        raise InvalidRequest("`approved` must be true or false", param="approved")
    if body.get("arguments") is not None and not isinstance(body["arguments"], dict):
        raise InvalidRequest("`arguments` must be an object", param="arguments")
    row = await visit.state.runs.approve(web.path_params["id"], await _tenant(web), body)
    return json_response(web, row.public())


async def more_input(web: Web) -> Response:
    """The next message of the user, for a run that waits or is incomplete."""
    visit, body = visit_of(web), await read_json(web)
    row = await visit.state.runs.more(web.path_params["id"], await _tenant(web), messages_of(body.get("input")))
    return json_response(web, row.public())


async def fork(web: Web) -> Response:
    """A new run with the events up to `seq`, another model, prompt or tool result from there on."""
    visit, body = visit_of(web), await read_json(web)
    seq = body.get("seq")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
        raise InvalidRequest("`seq` must be the number of an event", param="seq")
    for field in ("model", "prompt", "tool_result"):
        if body.get(field) is not None and not isinstance(body[field], str):
            raise InvalidRequest(f"`{field}` must be a text", param=field)
    if visit.holder is not None and body.get("model"):
        visit.holder.check(body["model"])
    row = await visit.state.runs.fork(web.path_params["id"], visit.record.tenant, seq, body.get("model"), body.get("prompt"), body.get("tool_result"))
    return json_response(web, row.public())


async def session(web: Web) -> Response:
    """What a session holds: its messages, thoughts, plan and todo; or the end of it."""
    visit, ident = visit_of(web), web.path_params["id"]
    runs, agent = visit.state.runs, web.query_params.get("agent")
    if web.method == "DELETE":
        return json_response(web, await runs.forget_session(visit.record.tenant, ident, agent))
    return json_response(web, await runs.session(visit.record.tenant, ident, agent))


def _runs(visit: Visit, name: str) -> Runs:
    runs = visit.state.runs
    if not runs.knows(name):
        raise NotFound(f'there is no agent "{name}"; GET /v1/models lists them', code="model_not_found", param="agent")
    return runs


def _name(visit: Visit, live: Live | Elsewhere) -> None:
    visit.record.run_id, visit.record.session = live.id, live.row.session_id


async def _left(live: Live | Elsewhere, visit: Visit) -> None:
    """Who asked for a run and its events has all of them, or listens no more."""
    try:
        await live.leave()
    finally:
        live.account(visit.record)
        settle(visit, 200, None)


def _stream(web: Web, items: AsyncGenerator[Event | Delta], visibility: str, over: Callable[[], Awaitable[None]] | None = None) -> Response:
    """Named events with the journal's numbers as ids; a piece of text is an event without one, for whoever listens now.

    `over` is awaited at the end, whatever that is.
    """
    visit = visit_of(web)
    response = _Followed(items, visibility, visit.state.server.keepalive, over)
    response.raw_headers += response_headers(visit.record, visit.limits)
    return response


class _Followed(StreamingResponse):
    """A stream of events. What ends with it ends outside of Starlette's cancel scope: in there a client that leaves cuts short each `await` of a `finally`."""

    def __init__(self, items: AsyncGenerator[Event | Delta], visibility: str, keepalive: float, over: Callable[[], Awaitable[None]] | None) -> None:
        self._items = items
        self._over = over
        self._next: asyncio.Task[Event | Delta] | None = None
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(self._texts(visibility, keepalive), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            try:
                if self._next is not None:
                    self._next.cancel()
                    await asyncio.wait((self._next,))
                await self._items.aclose()
            finally:
                if self._over is not None:
                    await self._over()

    async def _texts(self, visibility: str, keepalive: float) -> AsyncIterator[bytes]:
        while True:
            self._next = self._next or asyncio.ensure_future(anext(self._items))
            done, _ = await asyncio.wait((self._next,), timeout=keepalive or None)
            if not done:
                yield sse.COMMENT
                continue
            came, self._next = self._next, None
            try:
                text = _written(came.result(), visibility)
            except StopAsyncIteration:
                return
            if text is not None:
                yield text


def _written(item: Event | Delta, visibility: str) -> bytes | None:
    if isinstance(item, Delta):
        if item.kind != "content" and not (item.kind == "reasoning" and visibility in ("full", EVERYTHING)):
            return None
        return sse.event(dumps({"kind": item.kind, "text": item.text}), "delta")
    seen = shown(item, visibility)
    if seen is None:
        return None
    value = {**seen.public(), "time": seen.time} if visibility == EVERYTHING else seen.public()
    return b"id: %d\n" % seen.seq + sse.event(dumps(value), seen.type)
