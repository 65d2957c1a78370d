"""Going on with a plain-text answer that broke off: the next target gets what was said and continues it.

The text so far becomes the last message of the request, an assistant's, and what comes back
is spliced into the same stream under the same id, model and created. Only text can be
continued like that: not tool calls, reasoning (it may be signed, and is not repeated), JSON
modes, several choices, log probabilities; and only a target that accepts a trailing
assistant message can do it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gateway.chat import Body, Chunk, Json, Request, dumps
from gateway.errors import GatewayError, StreamCut

if TYPE_CHECKING:
    from gateway.routing.chain import Chain

_TOKEN = 4  # characters of an answer for a token
_LIMITS = ("max_tokens", "max_completion_tokens")
_STAMP = ("id", "created", "model", "system_fingerprint", "service_tier")
_SAID = frozenset(("role", "content"))


def resumable(request: Request) -> bool:
    """Whether the answer to a request could be continued by somebody else."""
    if request.endpoint != "chat" or request.dialect != "chat" or not request.stream or not request.fallback:
        return False
    body = request.body.fresh()
    form = body.get("response_format")
    text = form is None or (isinstance(form, dict) and form.get("type") == "text")
    return text and body.get("n") in (None, 1) and not body.get("logprobs") and "audio" not in (body.get("modalities") or ())


async def resumed(chain: Chain, request: Request) -> AsyncGenerator[Chunk]:
    """The chunks of a chain's answer, and of those that go on with it. Raises what the chain does; the last cut where nobody can go on."""
    said, record = Said(), request.record
    plan, cut = chain.plan(request), None
    while True:
        try:
            async with aclosing(chain.answer(plan)) as chunks:
                async for chunk in chunks:
                    if (own := said.spliced(chunk) if cut is not None else said.noted(chunk)) is not None:
                        yield own
            record.usage = said.summed(record.usage)
            return
        except StreamCut as error:
            cut = error
        except GatewayError:
            if cut is None:
                raise
            raise cut from None
        targets = [t for t in plan.unasked if chain.providers[t.provider].adapter.trailing_assistant == "accept"]
        said.usage, record.usage = said.summed(record.usage), None
        if not (targets and said.continuable and plan.goes_on(cut)):
            record.usage = said.usage
            raise cut
        record.note("resume=prefill")
        said.begin_again()
        plan = chain.plan(said.continued(request), targets)


class Said:
    """What the client has read so far. `usage`: of the exchanges that broke off, as far as it is known."""

    def __init__(self) -> None:
        self.usage: Json | None = None
        self._text = ""
        self._plain = True
        self._stamp: Json | None = None
        self._trim = False

    @property
    def continuable(self) -> bool:
        """It is text, more can follow, and there is some to go on from."""
        return self._plain and bool(self._text.strip())

    def noted(self, chunk: Chunk) -> Chunk:
        """Take note of a chunk; gives it back."""
        data = chunk.json()
        if self._stamp is None:
            self._stamp = {name: data[name] for name in _STAMP if name in data}
        for choice in data.get("choices") or ():
            delta = choice.get("delta") or {}
            text = delta.get("content")
            if isinstance(text, str):
                self._text += text
            other = any(value for name, value in delta.items() if name not in _SAID) or (text is not None and not isinstance(text, str))
            if other or choice.get("index") or choice.get("finish_reason") or choice.get("logprobs"):
                self._plain = False
        return chunk

    def continued(self, request: Request) -> Request:
        """The request for the rest."""
        body = request.body.fresh()
        text, messages = self._text.rstrip(), list(body.get("messages") or ())  # Anthropic refuses a trailing blank (2026)
        last = messages[-1] if messages else None
        if isinstance(last, dict) and last.get("role") == "assistant" and isinstance(last.get("content"), str):
            messages[-1] = {**last, "content": last["content"] + text}
        else:
            messages.append({"role": "assistant", "content": text})
        body["messages"] = messages
        for name in _LIMITS:
            if type(body.get(name)) is int:
                body[name] = max(1, body[name] - len(self._text) // _TOKEN)
        return replace(request, body=Body(dumps(body), body))

    def begin_again(self) -> None:
        """Another answer goes on: the blanks at the end of the text were not sent, so it may repeat them."""
        self._trim = self._text != self._text.rstrip()

    def spliced(self, chunk: Chunk) -> Chunk | None:
        """A chunk of the continuing answer as a part of the first one; None where nothing of it is left."""
        self.noted(chunk)
        data = {**chunk.json(), **(self._stamp or {})}
        data["choices"] = [self._choice(choice) for choice in data.get("choices") or ()]
        if data.get("usage"):
            data["usage"] = self.summed(data["usage"])
        elif data["choices"] and not any(_speaks(choice) for choice in data["choices"]):
            return None
        return Chunk(dumps(data), content=chunk.content, more=chunk.more, json=data)

    def summed(self, usage: Json | None) -> Json | None:
        """A usage together with that of what broke off."""
        return _sum(self.usage, usage) if self.usage and usage else usage or self.usage

    def _choice(self, choice: Json) -> Json:
        delta = {name: value for name, value in (choice.get("delta") or {}).items() if name != "role"}
        text = delta.get("content")
        if self._trim and isinstance(text, str):
            delta["content"] = text.lstrip()
            self._trim = not delta["content"]
        return {**choice, "delta": delta}


def _speaks(choice: Json) -> bool:
    return bool(choice.get("finish_reason")) or any(choice["delta"].values())


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> Json:
    """Two usages as one: numbers are added, tables entry by entry, of anything else the later holds."""
    out: Json = dict(one)
    for name, value in other.items():
        before = out.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            out[name] = _sum(before, value)
        elif type(before) is int and type(value) is int:
            out[name] = before + value
        else:
            out[name] = value if value is not None else before
    return out
