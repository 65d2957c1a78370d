"""Endpoints that are passed on: embeddings, moderations, images, audio, rerank."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from starlette.types import Send

from gateway.api.answering import failure, send_json
from gateway.api.bodies import parse_object
from gateway.api.completions import Endpoint, forwarded, text_field
from gateway.api.headers import response_headers
from gateway.api.state import Visit
from gateway.chat import Body, Model, Request
from gateway.errors import GatewayError, InvalidRequest, UnsupportedMedia
from gateway.routing import wants_kept
from gateway.upstream import boundary_of, model_span


@dataclass(frozen=True, slots=True)
class Relayed(Endpoint):
    """`POST` of one such endpoint; `endpoint` is its path below /v1."""

    dialect: str = "chat"

    def request(self, visit: Visit, raw: bytes) -> Request:
        kind = visit.headers.get(b"content-type", b"application/json").decode("latin-1")
        media = kind.partition(";")[0].strip().lower()
        if media == "application/json":
            body = parse_object(raw)
            held, model, stream = Body(raw, body), text_field(body, "model"), body.get("stream") is True
            visit.kept = wants_kept(visit.headers.get(b"x-thinkgate-cache"), body)
        elif media == "multipart/form-data":
            span = model_span(raw, boundary_of(kind))
            if span is None:
                raise InvalidRequest("`model` is missing", param="model", code="missing_required_parameter")
            held, model, stream = Body(raw), raw[slice(*span)].decode("utf-8", "replace").strip(), False
        else:
            raise UnsupportedMedia(f'content type "{media[:64]}" is not supported here; send application/json or multipart/form-data')
        visit.record.stream = stream
        return self.made(visit, held, model, stream, {**forwarded(visit.headers), "content-type": kind})

    async def answer(self, model: Model, request: Request, send: Send, visit: Visit) -> GatewayError | None:
        """JSON as one body; everything else piece by piece. What breaks off after its start is cut, never ended cleanly."""
        record, started, whole = request.record, False, None
        try:
            async with aclosing(model.generate(request)) as chunks:
                async for chunk in chunks:
                    if chunk.whole:
                        whole = chunk.data  # written after the end, before which the exchange is not over
                        continue
                    if not started:
                        started, visit.end = True, _left_cut
                        kind = (b"content-type", record.content_type.encode("latin-1"))
                        await send({"type": "http.response.start", "status": 200, "headers": [*response_headers(record, visit.limits), kind]})
                    record.chunks += 1
                    await send({"type": "http.response.body", "body": chunk.data, "more_body": True})
        except GatewayError as error:
            if not started:
                raise
            if record.content_type.startswith("text/event-stream"):
                await send({"type": "http.response.body", "body": failure("chat", error)})
                return error
            raise ConnectionError("the answer broke off") from error  # the server closes the connection without the body's end
        if whole is not None:
            await send_json(send, 200, whole, response_headers(record, visit.limits))
        else:
            await send({"type": "http.response.body", "body": b""})
        return None


async def _left_cut(error: GatewayError) -> None:
    """Sound or text that breaks off has no way to say so but to miss its end."""
