"""A turn of the model that failed, as the journal keeps it: a run that is gone through again meets the same failure at the same place."""

from __future__ import annotations

from gateway.chat import Json
from gateway.errors import NO_CONTENT, ChainExhausted, GatewayError, StreamCut, UpstreamError


def keep(error: GatewayError) -> Json:
    """What `recall` needs of it."""
    kept: Json = {"message": error.message, "status": error.status, "type": error.type, "code": error.code}
    if isinstance(error, ChainExhausted):
        kept["attempts"] = error.attempts
    elif isinstance(error, UpstreamError):
        kept |= {"kind": error.kind, "upstream_status": error.upstream_status, "cut": isinstance(error, StreamCut)}
    return kept


def recall(kept: Json) -> GatewayError:
    """The error again, as far as a run and its client can tell."""
    message, code = kept["message"], kept["code"]
    if "attempts" in kept:
        return ChainExhausted(message, kept["attempts"], status=kept["status"], code=code)
    if "kind" in kept:
        return (StreamCut if kept["cut"] else UpstreamError)(kept["kind"], message, upstream_status=kept["upstream_status"])
    error = GatewayError(message, code=code)
    error.status, error.type = kept["status"], kept["type"]
    return error


def kind_of(error: GatewayError) -> str | None:
    """The failure class: of a chain, that of its last attempt."""
    if isinstance(error, ChainExhausted):
        return str(error.attempts[-1].get("class")) if error.attempts else None
    return error.kind if isinstance(error, UpstreamError) else None


def says_nothing(error: GatewayError) -> bool:
    """Whether the last target that was asked did answer, and said nothing: to an agent an empty turn, not an outage."""
    asked = [attempt for attempt in error.attempts if not attempt.get("skipped")] if isinstance(error, ChainExhausted) else []
    return bool(asked) and asked[-1].get("class") == "protocol" and asked[-1].get("message") == NO_CONTENT
