"""`/v1/responses` beyond the ordinary completion: earlier answers that requests refer to, and the routes about them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request as Web
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from gateway.api.answering import json_response, visit_of
from gateway.api.bodies import check_type, parse_object, read_body
from gateway.api.completions import Completions
from gateway.api.state import Visit
from gateway.chat import Body, Chunk, Json, Model, Request, dumps
from gateway.errors import GatewayError

_ENDS = ("response.completed", "response.incomplete")
_LIFE = (*_ENDS, "response.created", "response.queued", "response.in_progress", "response.failed")


class NotServed(GatewayError):
    status, type, code = 501, "invalid_request_error", "not_implemented"
    should_retry = False


@dataclass(frozen=True, slots=True)
class Responses(Completions):
    """`POST /v1/responses`: what a request refers to is written out first, and its answer is kept."""

    refers = True

    async def whole(self, visit: Visit, request: Request) -> Request:
        body, stored, tenant = request.body.fresh(), visit.state.stored(), visit.record.tenant
        visit.asked = request.body
        await stored.find_for(tenant, body)
        whole = stored.expand(tenant, body)
        return request if whole is body else self.made(visit, Body(dumps(whole), whole), request.model, request.stream, request.headers)

    async def answer(self, model: Model, request: Request, send: Send, visit: Visit) -> GatewayError | None:
        assert visit.asked is not None
        return await super(Responses, self).answer(Keeping(model, visit, visit.asked.fresh()), request, send, visit)


class Keeping:
    """A Model whose complete answers are kept for later requests to refer to, and say which one they follow."""

    def __init__(self, model: Model, visit: Visit, asked: Json) -> None:
        self._model = model
        self._visit = visit
        self._asked = asked

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        previous, stored = self._asked.get("previous_response_id"), self._visit.state.stored()
        async with aclosing(self._model.generate(request)) as chunks:
            async for chunk in chunks:
                if chunk.whole or chunk.event in _LIFE:
                    value = chunk.json()
                    answer = value if chunk.whole else value.get("response")
                    if previous and isinstance(answer, dict):
                        answer["previous_response_id"] = previous
                        chunk = Chunk(dumps(value), event=chunk.event, whole=chunk.whole, content=chunk.content, more=chunk.more, json=value)
                    if isinstance(answer, dict) and (chunk.whole or chunk.event in _ENDS):
                        stored.put(self._visit.record.tenant, self._asked, answer)
                        await stored.settled()
                yield chunk


def routes(prefix: str) -> list[Route]:
    return [
        Route(f"{prefix}/responses/input_tokens", input_tokens, methods=["POST"]),
        Route(f"{prefix}/responses/compact", compact, methods=["POST"]),
        Route(f"{prefix}/responses/{{ident}}", one, methods=["GET", "DELETE"]),
        Route(f"{prefix}/responses/{{ident}}/cancel", cancel, methods=["POST"]),
        Route(f"{prefix}/responses/{{ident}}/input_items", items, methods=["GET"]),
    ]


async def one(web: Web) -> Response:
    visit, ident = visit_of(web), web.path_params["ident"]
    stored = visit.state.stored()
    await stored.find(visit.record.tenant, ident)
    if web.method != "DELETE":
        return json_response(web, stored.get(visit.record.tenant, ident))
    deleted = stored.delete(visit.record.tenant, ident)
    await stored.settled()
    return json_response(web, deleted)


async def cancel(web: Web) -> Response:
    visit, ident = visit_of(web), web.path_params["ident"]
    await visit.state.stored().find(visit.record.tenant, ident)
    return json_response(web, visit.state.stored().cancel(visit.record.tenant, ident))


async def items(web: Web) -> Response:
    visit, ident = visit_of(web), web.path_params["ident"]
    await visit.state.stored().find(visit.record.tenant, ident)
    return json_response(web, visit.state.stored().items(visit.record.tenant, ident))


async def input_tokens(web: Web) -> Response:
    body = await read_json(web)
    visit = visit_of(web)
    await visit.state.stored().find_for(visit.record.tenant, body)
    whole = visit.state.stored().expand(visit.record.tenant, body)
    from gateway.dialects import responses  # a dialect is loaded where it is spoken

    return json_response(web, {"object": "response.input_tokens", "input_tokens": responses.count_input_tokens(whole)})


async def compact(web: Web) -> Response:
    await read_json(web)
    raise NotServed("compacting a conversation is not served here; send the whole conversation")


async def read_json(web: Web) -> Json:
    """The JSON body of an ordinary route, under the same bounds as everywhere."""
    visit = visit_of(web)
    check_type(visit.headers)
    return parse_object(await read_body(web.receive, visit.headers, visit.state.server.max_body, visit.state.server.body_timeout))
