"""The completion endpoints: plain ASGI callables, because everything else costs more than the gateway itself."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.types import Receive, Scope, Send

from gateway.api.answering import EventStream, Presence, answer_plain, send_error, send_json
from gateway.api.bodies import check_type, parse_object, read_body
from gateway.api.charging import admit, settle
from gateway.api.headers import response_headers
from gateway.api.state import Visit
from gateway.chat import Body, Json, Model, Request, dumps
from gateway.errors import ClientGone, GatewayError, InvalidRequest, MethodNotAllowed, Overloaded
from gateway.routing import Chain, explain, wants_kept

log = logging.getLogger("thinkgate")

_QUESTION = {"chat": "messages", "messages": "messages", "responses": "input", "completions": "prompt"}
_BETA = b"beta=true"
"""The one query that goes on to a provider: Anthropic's SDKs and Claude Code ask for the beta route of Messages so."""
_FORWARDED = (b"anthropic-version", b"anthropic-beta", b"openai-beta")
"""Headers of the client that reach a provider which is spoken to in the client's own dialect."""
_NO = (b"off", b"0", b"false", b"no")
_TO_AGENTS = (b"x-session-id", b"x-agent-events")
"""Headers that say something to an agent; no provider gets them."""


@dataclass(frozen=True, slots=True)
class Endpoint(ABC):
    """`POST` of one endpoint in one dialect: from the request's body to the answer's last byte."""

    endpoint: str
    dialect: str
    refers: ClassVar[bool] = False
    """requests may refer to what is kept: `whole` writes it out"""

    async def whole(self, visit: Visit, request: Request) -> Request:
        """The request with what it refers to. Raises InvalidRequest where that is gone."""
        return request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit: Visit = scope["visit"]
        record, state = visit.record, visit.state
        record.endpoint = self.endpoint
        status, label = 200, "none"
        failed: GatewayError | None = None
        state.telemetry.in_flight += 1
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{scope['path']} accepts POST only", ("POST",))
            raw = await read_body(receive, visit.headers, state.server.max_body, state.server.body_timeout)
            request = self.request(visit, raw)
            if self.refers:
                request = await self.whole(visit, request)
            if visit.holder is not None:
                visit.holder.check(request.model)
            model, label = state.router.find(request.model)
            if is_dry_run(visit.headers):
                await self._dry_run(visit, state.router.chain(request.model), request, send)
                return
            await admit(visit, request)
            with Presence(scope):
                failed = await self.answer(state.cache.over(model) if visit.kept and isinstance(model, Chain) else model, request, send, visit)
        except ClientGone as gone:
            status, failed = gone.status, gone
        except GatewayError as error:
            status, failed = error.status, error
            await send_error(send, record, error, visit.limits)
        except asyncio.CancelledError:  # the server ends, not the client
            status, failed = 503, Overloaded("the gateway is shutting down", code="shutting_down")
            await self._refuse(send, visit, failed)
        except ConnectionError as error:
            failed = error.__cause__ if isinstance(error.__cause__, GatewayError) else None
            raise
        except Exception:
            log.exception("id=%s unexpected failure", record.id)
            status, failed = 500, GatewayError("the gateway failed; the log has the reason under this request id")
            await self._refuse(send, visit, failed)
        finally:
            visit.end = None
            state.telemetry.in_flight -= 1
            counts = settle(visit, status, failed)
            state.telemetry.finish(record, status, label, None if failed is None else getattr(failed, "kind", None) or failed.code, counts)
            failed = None  # its traceback holds this frame

    @abstractmethod
    def request(self, visit: Visit, raw: bytes) -> Request:
        """The request of a body. Raises InvalidRequest and its kin."""

    @abstractmethod
    async def answer(self, model: Model, request: Request, send: Send, visit: Visit) -> GatewayError | None:
        """Write the answer; the failure with which a begun one ended. Raises GatewayError before anything was written."""

    def made(self, visit: Visit, body: Body, model: str, stream: bool, headers: Mapping[str, str]) -> Request:
        visit.record.model = model
        if model.startswith("agent/"):
            headers = {**headers, **{name.decode(): visit.headers[name].decode("latin-1") for name in _TO_AGENTS if name in visit.headers}}
        only = visit.headers.get(b"x-thinkgate-provider")
        return Request(
            body=body,
            model=model,
            record=visit.record,
            stream=stream,
            endpoint=self.endpoint,
            dialect=self.dialect,
            headers=headers,
            beta=visit.query == _BETA and self.endpoint.startswith("messages"),
            only=only.decode("latin-1") if only is not None else None,
            fallback=visit.headers.get(b"x-thinkgate-fallback", b"").lower() not in _NO,
        )

    async def _dry_run(self, visit: Visit, chain: Chain, request: Request, send: Send) -> None:
        shown = explain(chain, request, {}, visit.state.redact)
        await send_json(send, 200, dumps(shown), response_headers(visit.record, visit.limits))

    @staticmethod
    async def _refuse(send: Send, visit: Visit, error: GatewayError) -> None:
        """Tell the client that it will get no answer, or no more of it."""
        if visit.end is not None:
            await visit.end(error)
        else:
            await send_error(send, visit.record, error, visit.limits)


@dataclass(frozen=True, slots=True)
class Completions(Endpoint):
    """Chat completions, Responses, Messages and legacy completions."""

    def request(self, visit: Visit, raw: bytes) -> Request:
        headers, record = visit.headers, visit.record
        check_type(headers)
        body = parse_object(raw)
        record.model = text_field(body, "model")
        self._check(body)
        stream = body.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise InvalidRequest("`stream` must be true or false", param="stream")
        record.stream = bool(stream)
        visit.kept = wants_kept(headers.get(b"x-thinkgate-cache"), body)
        return self.made(visit, Body(raw, body), record.model, record.stream, forwarded(headers))

    async def answer(self, model: Model, request: Request, send: Send, visit: Visit) -> GatewayError | None:
        if not request.stream:
            await answer_plain(model, request, send, visit)
            return None
        stream = EventStream(request, send, visit)
        await stream.run(model)
        return stream.failed

    def _check(self, body: Json) -> None:
        """The one field without which there is nothing to answer; all else is the provider's to judge."""
        name = _QUESTION[self.endpoint]
        value = body.get(name)
        if value is None and not (name == "input" and ("previous_response_id" in body or "prompt" in body)):
            raise InvalidRequest(f"`{name}` is missing", param=name, code="missing_required_parameter")
        if name == "messages" and not (isinstance(value, list) and all(isinstance(message, dict) for message in value)):
            raise InvalidRequest("`messages` must be a list of objects", param="messages")


def is_dry_run(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client only wants to see what would be sent."""
    wish = headers.get(b"x-thinkgate-dry-run")
    return wish is not None and wish.lower() not in _NO


def forwarded(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The client's headers that may reach a provider."""
    return {name.decode(): headers[name].decode("latin-1") for name in _FORWARDED if name in headers}


def text_field(body: dict[str, Any], name: str) -> str:
    """A text that a body must have. InvalidRequest without it."""
    value = body.get(name)
    if value is None:
        raise InvalidRequest(f"`{name}` is missing", param=name, code="missing_required_parameter")
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"`{name}` must be a text", param=name)
    return value
