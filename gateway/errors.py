"""Every failure that the gateway can name.

    GatewayError
    ├── ConfigError            the file cannot be used; holds all its faults
    ├── InvalidRequest  400    the caller's request; the next provider would refuse it too
    │   ├── Unauthorized       401
    │   ├── Forbidden          403
    │   ├── NotFound           404
    │   ├── MethodNotAllowed   405
    │   ├── Conflict           409
    │   ├── TooLarge           413
    │   ├── UnsupportedMedia   415
    │   └── LimitReached       429
    ├── Overloaded      503    we cannot take the request now
    ├── UpstreamError   502    one exchange with one provider failed; `kind` is a class of gateway.failures
    │   ├── AdapterError       a hook or rule failed or overran; nothing was sent
    │   ├── Skipped            the adapter left this provider out
    │   └── StreamCut          the answer broke off after its first content
    ├── ChainExhausted  502    no target of the chain gave an answer
    ├── FetchFailed     502    a tool's request to a site outside had no usable answer
    │   └── FetchRefused       its address is none that a tool may reach; nothing was sent
    └── ClientGone      499    nobody is there to read the answer

`status`, `type`, `code` and `param` follow OpenAI's error object. `try_next` says whether
the next target of a chain may be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class GatewayError(Exception):
    """A failure that the client may see."""

    status = 500
    type = "server_error"
    code: str | None = "internal_error"
    param: str | None = None
    try_next = False
    retry_after: float | None = None
    """seconds after which asking again makes sense; None: unknown"""
    should_retry: bool | None = None
    """the `x-should-retry` header; None: the client's own rule applies"""
    events: Sequence[tuple[str | None, dict[str, Any]]] = ()
    """names and data with which a stream that has begun ends, in the client's dialect; none: the error alone"""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if param is not None:
            self.param = param
        if retry_after is not None:
            self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message  # which may have got more exact on its way up

    def body(self) -> dict[str, Any]:
        """OpenAI's error object, without the envelope."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a config file: where (dotted path, line and column from 1) and what."""

    path: str
    message: str
    line: int = 0
    column: int = 0


class ConfigError(GatewayError):
    """The config cannot be used. `faults` holds everything that was found, in file order.

    `sound` is the config without what is faulty, where something was left: more may be wrong in it.
    """

    code = "config_error"

    def __init__(self, faults: Iterable[Fault], file: str = "config", sound: Any = None) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: (fault.line, fault.column)))
        self.file = file
        self.sound = sound
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """`FILE:LINE:COL: path: what` for each fault; the file alone where its line is not known."""
        places = [f"{self.file}:{f.line}:{f.column}" if f.line else self.file for f in self.faults]
        return [f"{place}: {f.path}: {f.message}" if f.path else f"{place}: {f.message}" for place, f in zip(places, self.faults, strict=True)]


class InvalidRequest(GatewayError):
    """The caller's own fault; `param` names the field."""

    status, type = 400, "invalid_request_error"
    code: str | None = None
    should_retry: bool | None = False


class Unauthorized(InvalidRequest):
    status, code = 401, "invalid_api_key"


class Forbidden(InvalidRequest):
    status, type, code = 403, "permission_error", "forbidden"


class NotFound(InvalidRequest):
    status, code = 404, "not_found"


class MethodNotAllowed(InvalidRequest):
    status, code = 405, "method_not_allowed"

    def __init__(self, message: str, allow: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allow = allow


class Conflict(InvalidRequest):
    status, type, code = 409, "conflict_error", "conflict"


class TooLarge(InvalidRequest):
    status, code = 413, "request_too_large"


class UnsupportedMedia(InvalidRequest):
    status, code = 415, "unsupported_media_type"


class LimitReached(InvalidRequest):
    """A limit of the caller's key; `retry_after` says when it is free again."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"
    should_retry = None


class Overloaded(GatewayError):
    status, type, code = 503, "service_unavailable_error", "gateway_overloaded"


NO_CONTENT = "the answer has no content"
"""what the failure `protocol` says of an answer without text, reasoning, tool call or refusal"""


class UpstreamError(GatewayError):
    """One exchange with one provider failed.

    `kind` is the failure class, `upstream_status` the provider's HTTP status (None: there
    was none), `error` the provider's own `{message, type, param, code}` as far as it sent one.
    `message` is already free of secrets and at most 300 characters of the provider's text.
    """

    status, type, code = 502, "upstream_error", "upstream_error"
    try_next = True

    def __init__(
        self, kind: str, message: str, *, upstream_status: int | None = None, retry_after: float | None = None, error: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.kind = kind
        self.upstream_status = upstream_status
        self.error: Mapping[str, Any] = error or {}


class AdapterError(UpstreamError):
    """A hook or a rule of an adapter failed; the message names file and line."""

    def __init__(self, message: str) -> None:
        super().__init__("adapter", message)


class Skipped(UpstreamError):
    """The adapter left its provider out of this request (`ctx.skip("why")`)."""

    def __init__(self, why: str) -> None:
        super().__init__("adapter", why)


class StreamCut(UpstreamError):
    """The answer broke off after content had reached the client: no other provider may go on."""

    code = "stream_interrupted"
    try_next = False


class ChainExhausted(GatewayError):
    """Every target failed or was left out; `attempts` tells each one's part."""

    status, type, code = 502, "upstream_error", "providers_exhausted"

    def __init__(
        self,
        message: str,
        attempts: list[dict[str, Any]],
        *,
        status: int = 502,
        code: str | None = None,
        retry_after: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message, code=code, retry_after=retry_after)
        self.attempts = attempts
        self.status = status
        self.should_retry = should_retry

    def body(self) -> dict[str, Any]:
        return {**super().body(), "attempts": self.attempts}


class FetchFailed(GatewayError):
    """A tool's own request had no usable answer. The message names host and port, never a path or a query."""

    status, type, code = 502, "upstream_error", "fetch_failed"


class FetchRefused(FetchFailed):
    """The address is none that a tool may reach: not public, oddly spelt, another scheme or port."""

    code = "fetch_refused"


class ClientGone(GatewayError):
    """The client closed its connection; everything that served it ends."""

    status, code = 499, "client_gone"
