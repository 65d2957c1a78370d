"""`mock://`: a provider inside this process, with the demo model and with every fault that a real one can have.

It answers as HTTP would (status, headers, JSON or event-stream bytes, piece by piece), so
that everything above it takes the ordinary path. The faults are knobs in the query of the
base URL, `mock://name/v1?status=429&retry_after=3`:

    status=N             this status; from 400 with an error body of the usual form
    retry_after=TEXT     the Retry-After header
    html                 an HTML page as the body; status 502 if none is given
    body=TEXT            this body as it is
    refuse               no connection
    empty                a stream without content, a plain answer with empty content
    error_after_role     200, then an error: after the role of a stream, as the body of a plain answer
    bad_json_at=N        the N-th content event (from 1) is not JSON; a plain body is
    stall_after=N        silence after N content events; a plain body stops half way
    cut_after=N          the connection ends after N content events; a plain body ends half way
    slow_headers=TIME    silence before the status line; `latency=` is the same, both add up
    slow_ttft=TIME       silence before the first event of a stream, or before a plain answer
    gap=TIME             between content events, 15 ms by default; or tokens_per_second=N
    reply=TEXT           the answer's text, without reasoning
    usage=off            no usage
    fail_first=N         the faults (a 500 where there is none) meet the first N requests only

A TIME is `500ms`, `3s` or bare seconds. A fault that counts content events comes before the
finish at the latest: a stream that is to be cut never ends cleanly.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gateway.chat import dumps, loads
from gateway.config.fields import unknown
from gateway.config.kinds import duration
from gateway.upstream import demo
from gateway.upstream.demo_reply import Reply
from gateway.upstream.transport import Headers, TransportError, Url

Json = dict[str, Any]

GAP = 0.015
_FOREVER = float("inf")
_LONGEST_SLEEP = 3_600.0
_JSON, _SSE, _HTML = b"application/json", b"text/event-stream; charset=utf-8", b"text/html; charset=utf-8"
_UNKNOWN = "mock:// serves chat/completions, completions, embeddings and models"
_FAILED = "mock: the server had an error while it processed your request"
_PAGE = b"<!DOCTYPE html>\n<html><body><center><h1>502 Bad Gateway</h1></center><hr><center>mock</center></body></html>\n"


class _Cut:
    """The step of a body at which the connection ends."""


_CUT = _Cut()
Step = bytes | float | _Cut
"""bytes of the body, seconds of silence, or its broken end"""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What a `mock://` URL asks for; the module's text says what each one does. Times are seconds."""

    status: int | None = None
    retry_after: str | None = None
    html: bool = False
    body: bytes | None = None
    refuse: bool = False
    empty: bool = False
    error_after_role: bool = False
    bad_json_at: int | None = None
    stall_after: int | None = None
    cut_after: int | None = None
    slow_headers: float = 0.0
    latency: float = 0.0
    slow_ttft: float = 0.0
    gap: float | None = None
    tokens_per_second: float | None = None
    reply: str | None = None
    usage: bool = True
    fail_first: int | None = None

    @classmethod
    def parse(cls, base_url: str) -> Knobs:
        """ValueError with every fault, one a line."""
        knobs, faults = _read(base_url)
        if faults:
            raise ValueError("\n".join(faults))
        return knobs

    def for_request(self, number: int) -> Knobs:
        """The knobs that meet the `number`-th request (from 1)."""
        if self.fail_first is None:
            return self
        healthy = Knobs(gap=self.gap, tokens_per_second=self.tokens_per_second, reply=self.reply, usage=self.usage)
        if number > self.fail_first:
            return healthy
        failing = replace(self, fail_first=None)
        return replace(failing, status=500) if failing == healthy else failing

    def pause(self, *, stream: bool) -> float:
        """Seconds between two pieces; a plain answer waits only where a pace was asked for."""
        if self.tokens_per_second is not None:
            return 1 / self.tokens_per_second
        return self.gap if self.gap is not None else GAP if stream else 0.0


def check(base_url: str) -> list[str]:
    """Every fault of a `mock://` URL, [] where there is none."""
    return _read(base_url)[1]


def _read(base_url: str) -> tuple[Knobs, list[str]]:
    given: dict[str, Any] = {}
    faults: list[str] = []
    for name, text in parse_qsl(urlsplit(base_url).query, keep_blank_values=True):
        if name not in _KNOBS:
            faults.append(unknown("knob", name, _KNOBS))
        elif name in given:
            faults.append(f"{name}: given twice")
        else:
            try:
                given[name] = _KNOBS[name](text)
            except ValueError as error:
                given[name] = None
                faults.append(f"{name}: {error}")
    if "gap" in given and "tokens_per_second" in given:
        faults.append("tokens_per_second: gap says the same, give one of them")
    return (Knobs() if faults else Knobs(**given)), faults


def _flag(text: str) -> bool:
    if text.lower() not in ("", "1", "on", "true", "yes", "0", "off", "false", "no"):
        raise ValueError("must be on or off")
    return text.lower() not in ("0", "off", "false", "no")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError("must be a whole number from 0")
    return int(text)


def _status(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 200 <= int(text[:9]) <= 599:
        raise ValueError("must be a status from 200 to 599")
    return int(text)


def _time(text: str) -> float:
    try:
        return float(_count(text)) if text.isdigit() else float(text) if text.replace(".", "", 1).isdigit() else duration(text)
    except ValueError:
        raise ValueError("must be a time such as 500ms, 3s or bare seconds") from None


def _pace(text: str) -> float:
    if not text.replace(".", "", 1).isdigit() or float(text) <= 0:
        raise ValueError("must be a number above 0")
    return float(text)


def _header(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ValueError("must be printable ASCII")
    return text


_BY_NAME: dict[str, Callable[[str], Any]] = {"status": _status, "retry_after": _header, "body": str.encode, "reply": str, "tokens_per_second": _pace}
_BY_TYPE: dict[str, Callable[[str], Any]] = {"bool": _flag, "int | None": _count, "float": _time, "float | None": _time}
_KNOBS: dict[str, Callable[[str], Any]] = {f.name: _BY_NAME.get(f.name) or _BY_TYPE[str(f.type)] for f in fields(Knobs)}


class Mock:
    """A Transport for one `mock://` base URL; ValueError if its knobs are wrong.

    `open` looks at the URL's path alone. `requests` counts what came.
    """

    def __init__(self, base_url: str) -> None:
        self._knobs = Knobs.parse(base_url)
        self.requests = 0

    async def open(self, method: bytes, url: Url, headers: Headers, body: bytes, *, connect: float, deadline: float) -> MockExchange:
        """Answer one request; the status line comes after `slow_headers`. Raises TransportError."""
        self.requests += 1
        knobs = self._knobs.for_request(self.requests)
        if knobs.refuse:
            raise TransportError("connect", f"{url.place}: connection refused")
        await _silence(asyncio.get_running_loop().time() + knobs.slow_headers + knobs.latency, deadline)
        return _answer(knobs, url.target.decode("ascii").partition("?")[0], body)

    async def aclose(self) -> None:
        """Nothing is open."""


class MockExchange:
    """One answer, played step by step."""

    def __init__(self, status: int, headers: Headers, steps: Iterable[Step]) -> None:
        self.status = status
        self.headers = headers
        self._steps = iter(steps)
        self._ready = 0.0

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    async def read(self, deadline: float) -> bytes | None:
        """The next piece; a pause that a deadline interrupted goes on in the next call."""
        while True:
            await _silence(self._ready, deadline)
            step = next(self._steps, None)
            if isinstance(step, float):
                self._ready = asyncio.get_running_loop().time() + step
            elif isinstance(step, _Cut):
                raise TransportError("cut", "mock: the connection ended before the answer did", sent=True)
            else:
                return step

    async def aclose(self) -> None:
        self._steps = iter(())


async def _silence(until: float, deadline: float) -> None:
    """Wait until a moment of the loop's clock; TransportError `timeout` where the deadline comes first."""
    loop = asyncio.get_running_loop()
    while (now := loop.time()) < until:
        if now >= deadline:
            raise TransportError("timeout", "mock: the time is up", sent=True)
        await asyncio.sleep(min(until - now, deadline - now, _LONGEST_SLEEP))


# ---- what is answered --------------------------------------------------------------------------------


def _answer(knobs: Knobs, path: str, body: bytes) -> MockExchange:
    if knobs.html:
        return _exchange(knobs.status or 502, _HTML, [_PAGE], knobs)
    if knobs.body is not None:
        kind = _SSE if knobs.body.startswith((b"data:", b"event:", b":")) else _JSON if knobs.body[:1] in (b"{", b"[") else b"text/plain; charset=utf-8"
        return _exchange(knobs.status or 200, kind, [knobs.body], knobs)
    if knobs.status is not None and knobs.status >= 300:
        return _refusal(knobs.status, knobs)
    try:
        return _served(knobs, path, body)
    except demo.Refused as error:
        return _exchange(400, _JSON, [_error(str(error), "invalid_request_error", None, error.param)], knobs)


def _served(knobs: Knobs, path: str, raw: bytes) -> MockExchange:
    path = path.rstrip("/")
    if path.endswith("/models"):
        return _exchange(knobs.status or 200, _JSON, [dumps(demo.models())], knobs)
    legacy = path.endswith("/completions") and not path.endswith("/chat/completions")
    if not path.endswith(("/completions", "/embeddings")):
        return _exchange(404, _JSON, [_error(_UNKNOWN, "invalid_request_error", "unknown_url")], knobs)
    try:
        body = loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise demo.Refused("the body is not a JSON object", "body")
    if path.endswith("/embeddings"):
        return _exchange(knobs.status or 200, _JSON, _plain(demo.embeddings(body), knobs), knobs)
    said = "" if knobs.empty else knobs.reply
    answer = demo.Answer(demo.text_completion(body) if legacy else body, None if said is None else Reply(text=said), usage=knobs.usage)
    form: Callable[[Json], Json] = demo.as_text if legacy else dict
    if body.get("stream") is True:
        return _exchange(knobs.status or 200, _SSE, _stream(answer, form, knobs), knobs)
    return _exchange(knobs.status or 200, _JSON, _plain(form(answer.completion()), knobs), knobs)


def _exchange(status: int, kind: bytes, steps: Iterable[Step], knobs: Knobs) -> MockExchange:
    headers: Headers = [(b"content-type", kind), (b"x-request-id", f"req_{uuid.uuid4().hex}".encode("ascii"))]
    if knobs.retry_after is not None:
        headers.append((b"retry-after", knobs.retry_after.encode("ascii")))
    return MockExchange(status, headers, steps)


def _stream(answer: demo.Answer, form: Callable[[Json], Json], knobs: Knobs) -> Iterator[Step]:
    yield knobs.slow_ttft
    if not knobs.empty:
        gap = knobs.pause(stream=True)
        content = 0
        for position, chunk in enumerate(answer.chunks()):
            carries = demo.has_content(chunk)
            ends = all(choice["finish_reason"] for choice in chunk["choices"])
            if position and (broken := _broken(content, ends=ends, knobs=knobs)) is not None:
                yield from broken
                return
            content += carries
            if carries and content > 1:
                yield gap
            yield b'data: {"id":"chatcmpl-broken","choices":[{"ind\n\n' if carries and content == knobs.bad_json_at else _event(dumps(form(chunk)))
    yield _event(b"[DONE]")


def _broken(content: int, *, ends: bool, knobs: Knobs) -> Iterable[Step] | None:
    """What follows the role and `content` content events instead of the next event; `ends`: that one would end the answer."""
    if knobs.error_after_role:
        return [_event(_error())]
    if knobs.cut_after is not None and (ends or content >= knobs.cut_after):
        return [_CUT]
    if knobs.stall_after is not None and (ends or content >= knobs.stall_after):
        return [_FOREVER]
    return None


def _plain(body: Json, knobs: Knobs) -> Iterator[Step]:
    raw = _error() if knobs.error_after_role else dumps(body)
    yield knobs.slow_ttft
    if "choices" in body:
        usage = body.get("usage") or {}
        yield knobs.pause(stream=False) * float(usage.get("completion_tokens", 0))
    half = len(raw) // 2
    faults = (knobs.cut_after, knobs.stall_after, knobs.bad_json_at)
    yield raw if faults == (None, None, None) else raw[:half]
    if knobs.cut_after is not None:
        yield _CUT
    if knobs.stall_after is not None:
        yield _FOREVER


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("billing_error", "insufficient_balance"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("overloaded_error", "overloaded"),
    529: ("overloaded_error", "overloaded"),
}


def _refusal(status: int, knobs: Knobs) -> MockExchange:
    kind, code = _ERRORS.get(status) or (("server_error", "server_error") if status >= 500 else ("invalid_request_error", None))
    name = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else f"status {status}"
    return _exchange(status, _JSON, [_error(f"mock: {name}", kind, code)], knobs)


def _error(
    message: str = _FAILED,
    kind: str = "server_error",
    code: str | None = "server_error",
    param: str | None = None,
) -> bytes:
    return dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})
