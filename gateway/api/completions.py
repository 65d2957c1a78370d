"""The completion endpoints: plain ASGI callables, because everything else costs more than the gateway itself."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.api.answering import EventStream, Presence, answer_plain, send_error, send_json
from gateway.api.bodies import check_type, parse_object, read_body
from gateway.api.headers import Headers, response_headers
from gateway.api.state import Visit
from gateway.chat import Body, Json, Request, dumps
from gateway.errors import ClientGone, GatewayError, InvalidRequest, MethodNotAllowed, Overloaded
from gateway.routing import Chain, explain

log = logging.getLogger("thinkgate")

_QUESTION = {"chat": "messages", "messages": "messages", "responses": "input", "completions": "prompt"}
_FORWARDED = (b"anthropic-version", b"anthropic-beta", b"openai-beta")
"""Headers of the client that reach a provider which is spoken to in the client's own dialect."""


@dataclass(frozen=True, slots=True)
class Completions:
    """`POST` of one endpoint in one dialect."""

    endpoint: str
    dialect: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit: Visit = scope["visit"]
        record, state = visit.record, visit.state
        record.endpoint = self.endpoint
        status, failure, label = 200, None, "none"
        stream: EventStream | None = None
        state.telemetry.in_flight.inc()
        try:
            request = await self._read(scope, visit, receive)
            chain, label = state.router.find(request.model)
            if b"x-thinkgate-dry-run" in visit.headers:
                await self._dry_run(visit, chain, request, send)
                return
            async with Presence(receive):
                if request.stream:
                    stream = EventStream(request, send, visit.extra, state.server.keepalive)
                    await stream.run(chain)
                    failure = stream.failed
                else:
                    await answer_plain(chain, request, send, visit.extra)
        except ClientGone as gone:
            status, failure = gone.status, gone
        except GatewayError as error:
            status, failure = error.status, error
            await send_error(send, record, error, visit.extra)
        except asyncio.CancelledError:  # the server ends; what runs gets a proper end
            status, failure = 503, Overloaded("the gateway is shutting down", code="shutting_down")
            await self._abort(stream, failure, send, visit)
        except Exception:
            log.exception("id=%s unexpected failure", record.id)
            status, failure = 500, GatewayError("the gateway failed; the log has the reason under this request id")
            await self._abort(stream, failure, send, visit)
        finally:
            state.telemetry.in_flight.dec()
            state.telemetry.finish(record, status, label, None if failure is None else getattr(failure, "kind", None) or failure.code)

    async def _read(self, scope: Scope, visit: Visit, receive: Receive) -> Request:
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{scope['path']} accepts POST only", ("POST",))
        headers, record = visit.headers, visit.record
        check_type(headers)
        server = visit.state.server
        raw = await read_body(receive, headers, server.max_body, server.body_timeout)
        body = parse_object(raw)
        record.model = _text(body, "model")
        self._check(body)
        stream = body.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise InvalidRequest("`stream` must be true or false", param="stream")
        record.stream = bool(stream)
        only = headers.get(b"x-thinkgate-provider")
        return Request(
            body=Body(raw, body),
            model=record.model,
            record=record,
            stream=record.stream,
            endpoint=self.endpoint,
            dialect=self.dialect,
            headers={name.decode(): headers[name].decode("latin-1") for name in _FORWARDED if name in headers},
            only=only.decode("latin-1") if only is not None else None,
            fallback=headers.get(b"x-thinkgate-fallback", b"").lower() not in (b"off", b"0", b"false", b"no"),
        )

    def _check(self, body: Json) -> None:
        """The one field without which there is nothing to answer; all else is the provider's to judge."""
        name = _QUESTION[self.endpoint]
        value = body.get(name)
        if value is None and not (name == "input" and ("previous_response_id" in body or "prompt" in body)):
            raise InvalidRequest(f"`{name}` is missing", param=name, code="missing_required_parameter")
        if name == "messages" and not (isinstance(value, list) and all(isinstance(message, dict) for message in value)):
            raise InvalidRequest("`messages` must be a list of objects", param="messages")

    async def _dry_run(self, visit: Visit, chain: Chain, request: Request, send: Send) -> None:
        shown = explain(chain, request, {}, visit.state.redact)
        await send_json(send, 200, dumps(shown), [*response_headers(visit.record), *visit.extra])

    @staticmethod
    async def _abort(stream: EventStream | None, error: GatewayError, send: Send, visit: Visit) -> None:
        headers: Headers = visit.extra
        if stream is not None and stream.started:
            await stream.abort(error)
        else:
            await send_error(send, visit.record, error, headers)


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None:
        raise InvalidRequest(f"`{name}` is missing", param=name, code="missing_required_parameter")
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"`{name}` must be a text", param=name)
    return value
