"""`/mcp`: our own tools for MCP clients. The protocol is the SDK's; here are its bounds, its log line and its place behind the gate."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import Message, Receive, Scope, Send

from gateway.agent.mcp.serving import LARGEST
from gateway.api.answering import send_error, send_json
from gateway.api.bodies import read_body
from gateway.api.headers import response_headers
from gateway.api.state import Visit
from gateway.errors import ClientGone, GatewayError, MethodNotAllowed, Overloaded

log = logging.getLogger("thinkgate")


async def mcp(scope: Scope, receive: Receive, send: Send) -> None:
    """One message to the server, or the end of a session. There is nothing to GET: the server never speaks first."""
    visit: Visit = scope["visit"]
    record, state = visit.record, visit.state
    record.endpoint = "mcp"
    status = 0
    failed: GatewayError | None = None

    async def pass_on(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            message["headers"] = [*message["headers"], *response_headers(record)]
        await send(message)

    state.telemetry.in_flight += 1
    try:
        if scope["method"] not in ("POST", "DELETE"):
            raise MethodNotAllowed(f"{scope['path']} accepts POST and DELETE only", ("POST", "DELETE"))
        owner = visit.holder.id if visit.holder is not None else ""
        if scope["method"] == "DELETE":
            await state.mcp.end(visit.headers, owner)
            await send_json(send, 200, b"{}", response_headers(record))
            status = 200
        else:
            raw = await read_body(receive, visit.headers, min(LARGEST, state.server.max_body), state.server.body_timeout)
            await state.mcp.answer(scope, raw, _again(raw, receive), pass_on, owner)
    except ClientGone as gone:
        failed, status = gone, gone.status
    except GatewayError as error:
        failed, status = error, error.status
        await send_error(send, record, error, visit.limits)
    except asyncio.CancelledError:  # the server ends, not the client
        failed = ended = Overloaded("the gateway is shutting down", code="shutting_down")
        status = await _refuse(send, visit, ended, status)
    except Exception:
        log.exception("id=%s unexpected failure", record.id)
        failed = unknown = GatewayError("the gateway failed; the log has the reason under this request id")
        status = await _refuse(send, visit, unknown, status)
    finally:
        state.telemetry.in_flight -= 1
        state.telemetry.finish(record, status, "none", None if failed is None else failed.code)


async def _refuse(send: Send, visit: Visit, error: GatewayError, status: int) -> int:
    """Send the error unless an answer has begun; the status that the client got."""
    if status:
        return status
    await send_error(send, visit.record, error, visit.limits)
    return error.status


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body, which was read, once more."""
    left = [body]

    async def give() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return give
