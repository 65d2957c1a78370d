"""What can go wrong with a provider, each fault as it looks in a stream and in a plain answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.chat import loads
from gateway.drill.server import HTML, OK, Call, chunk, plain
from gateway.drill.voices import Voice

WAIT = 3
"""seconds that the rate limit's Retry-After asks for; too long to be waited for"""

_PULSE = 0.05
_STATUS_LINES = {
    400: b"HTTP/1.1 400 Bad Request\r\n",
    401: b"HTTP/1.1 401 Unauthorized\r\n",
    402: b"HTTP/1.1 402 Payment Required\r\n",
    429: b"HTTP/1.1 429 Too Many Requests\r\n",
    502: b"HTTP/1.1 502 Bad Gateway\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\n",
}


class Reply:
    """The answer to one request of the gateway, in the provider's voice. `spoke` is called when content goes out in a stream."""

    def __init__(self, call: Call, voice: Voice, spoke: Callable[[], None]) -> None:
        self.call = call
        self.voice = voice
        self.stream = wants_stream(call, voice)
        self._spoke = spoke

    async def head(self) -> None:
        """Status line and headers; those of a plain answer promise the whole of it."""
        if self.stream:
            await self.call.write(OK + b"content-type: " + self.voice.stream_type + b"\r\ntransfer-encoding: chunked\r\n\r\n")
        else:
            await self.call.write(plain(self.voice.whole()).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")

    async def begin(self) -> None:
        """The head, and of a stream everything before its content."""
        await self.head()
        if self.stream:
            await self.send(self.voice.pieces().opening)

    async def half(self) -> None:
        """Half of the content: of a stream its first piece, of a plain answer half of its bytes."""
        await self.begin()
        if self.stream:
            self._spoke()
            await self.send(self.voice.pieces().content[0])
        else:
            whole = self.voice.whole()
            await self.call.write(whole[: len(whole) // 2])

    async def send(self, events: bytes) -> None:
        if events:
            await self.call.write(chunk(events))

    async def end(self) -> None:
        await self.call.write(b"0\r\n\r\n")

    async def refuse(self, status: int, message: str, *headers: bytes) -> None:
        await self.call.write(plain(self.voice.error(status, message), _STATUS_LINES[status], *headers))


def wants_stream(call: Call, voice: Voice) -> bool:
    """Whether the request asks for a stream, in its body or, where the dialect says it there, in its path."""
    if voice.dialect in ("gemini", "converse"):
        return "stream" in call.path.partition("?")[0].rpartition("/")[2].lower()
    body = loads(call.body)
    return isinstance(body, dict) and body.get("stream") is True


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    name    as the table shows it
    kinds   the failure classes that it may be taken for; none: it is no failure
    play    what is answered; None: the connection is refused
    """

    name: str
    kinds: tuple[str, ...]
    play: Callable[[Reply], Awaitable[None]] | None


async def sound(reply: Reply) -> None:
    """No fault at all."""
    if not reply.stream:
        await reply.call.write(plain(reply.voice.whole()))
        return
    await reply.begin()
    pieces = reply.voice.pieces()
    for piece in (*pieces.content, pieces.closing):
        await reply.send(piece)
    await reply.end()


async def _no_answer(reply: Reply) -> None:
    await reply.call.until_gone()


async def _slow_first_token(reply: Reply) -> None:
    await reply.begin()
    await reply.call.until_gone()


async def _pulse_only(reply: Reply) -> None:
    """Signs of life for ever, and never any content."""
    await reply.begin()
    while reply.stream:
        await reply.send(reply.voice.pulse())
        await asyncio.sleep(_PULSE)
    await reply.call.until_gone()


async def _stall(reply: Reply) -> None:
    await reply.half()
    await reply.call.until_gone()


async def _cut_before_content(reply: Reply) -> None:
    await reply.begin()
    raise ConnectionAbortedError


async def _reset(reply: Reply) -> None:
    reply.call.reset()
    raise ConnectionResetError


async def _cut_after_content(reply: Reply) -> None:
    await reply.half()
    raise ConnectionAbortedError


async def _end_without_finish(reply: Reply) -> None:
    """The body ends as it should, the answer does not."""
    if reply.stream:
        await reply.half()
        await reply.end()
    else:
        whole = reply.voice.whole()
        await reply.call.write(plain(whole[: len(whole) // 2]))


async def _empty_answer(reply: Reply) -> None:
    if not reply.stream:
        await reply.call.write(plain(reply.voice.whole("")))
        return
    await reply.head()
    await reply.send(reply.voice.empty())
    await reply.end()


async def _nothing(reply: Reply) -> None:
    if not reply.stream:
        await reply.call.write(plain(b""))
        return
    await reply.head()
    await reply.end()


async def _error_inside_200(reply: Reply) -> None:
    if not reply.stream:
        await reply.call.write(plain(reply.voice.error(503, "the server is overloaded")))
        return
    await reply.begin()
    await reply.send(reply.voice.error_event(503, "the server is overloaded"))
    await reply.end()


async def _bad_json(reply: Reply) -> None:
    if not reply.stream:
        whole = reply.voice.whole()
        await reply.call.write(plain(whole[: len(whole) // 2] + b"nonsense"))
        return
    await reply.begin()
    await reply.send(reply.voice.broken_event())
    await reply.end()


async def _html_200(reply: Reply) -> None:
    await reply.call.write(plain(HTML, kind=b"text/html"))


async def _html_502(reply: Reply) -> None:
    await reply.call.write(plain(HTML, _STATUS_LINES[502], kind=b"text/html"))


async def _rate_limit(reply: Reply) -> None:
    await reply.refuse(429, "Rate limit reached, slow down", b"retry-after: %d" % WAIT)


async def _overloaded(reply: Reply) -> None:
    await reply.refuse(503, "The server is overloaded")


async def _wrong_key(reply: Reply) -> None:
    await reply.refuse(401, "Incorrect API key provided")


async def _no_balance(reply: Reply) -> None:
    await reply.refuse(402, "Insufficient Balance")


async def _bad_request(reply: Reply) -> None:
    await reply.refuse(400, "messages.0: this text cannot be read")


_BROKEN = ("server", "protocol", "connect")
_SILENT = ("first_token_timeout", "timeout")

FAULTS = (
    Fault("none", (), sound),
    Fault("connection refused", ("connect",), None),
    Fault("connection reset", _BROKEN, _reset),
    Fault("no answer", _SILENT, _no_answer),
    Fault("slow first token", _SILENT, _slow_first_token),
    Fault("keep-alives only", _SILENT, _pulse_only),
    Fault("stall after content", ("timeout", "first_token_timeout"), _stall),
    Fault("cut before content", _BROKEN, _cut_before_content),
    Fault("cut after content", _BROKEN, _cut_after_content),
    Fault("end without finish", _BROKEN, _end_without_finish),
    Fault("empty answer", ("protocol",), _empty_answer),
    Fault("nothing at all", ("protocol",), _nothing),
    Fault("error inside 200", ("overload", "server", "protocol"), _error_inside_200),
    Fault("bad JSON", ("protocol",), _bad_json),
    Fault("HTML with 200", ("protocol",), _html_200),
    Fault("HTML with 502", ("server",), _html_502),
    Fault("429, retry after 3 s", ("rate_limit",), _rate_limit),
    Fault("503 overloaded", ("overload", "server"), _overloaded),
    Fault("401 wrong key", ("auth",), _wrong_key),
    Fault("402 no balance", ("balance",), _no_balance),
    Fault("400 bad request", ("bad_request",), _bad_request),
)
