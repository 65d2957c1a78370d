"""The built-in demo model: a chat request in, the answer of a streaming, thinking, tool-calling model out.

Pure functions. The content depends on the request alone; ids are new each time, because
reasoning is remembered by tool-call id.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.chat import dumps
from gateway.upstream.demo_reply import Reply, answer, text_of
from gateway.upstream.demo_schema import BadSchema
from gateway.upstream.demo_tools import Call

Json = dict[str, Any]

NAME = "demo"
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_ARGUMENTS = re.compile(r".{1,40}", re.DOTALL)  # nobody reads them, so they need not come word by word
_MOST_CHOICES = 128
_MOST_DIMENSIONS = 4_096


class Refused(ValueError):
    """The request is not one that a provider would take; `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class Answer:
    """The answer to one chat request, in either form of the wire.

    body   the parsed request
    reply  what to say instead of what the demo model would
    """

    def __init__(self, body: Mapping[str, Any], reply: Reply | None = None, *, usage: bool = True) -> None:
        _check(body)
        self._body = body
        try:
            self._reply, self.finish = _limited(body, reply if reply is not None else answer(body))
        except BadSchema as error:
            raise Refused(str(error), "tools" if body.get("tools") else "response_format") from None
        self._choices = range(body.get("n") or 1)
        self._usage = usage
        self._id = f"chatcmpl-{uuid.uuid4().hex[:24]}"
        self._created = int(time.time())

    def completion(self) -> Json:
        """The plain answer."""
        choices = [{"index": index, "message": self._message(), "logprobs": None, "finish_reason": self.finish} for index in self._choices]
        out = {**self._head("chat.completion"), "choices": choices}
        return {**out, "usage": self.usage()} if self._usage else out

    def chunks(self) -> Iterator[Json]:
        """The events of the stream, without `[DONE]`."""
        options = self._body.get("stream_options")
        asked = self._usage and isinstance(options, Mapping) and bool(options.get("include_usage"))
        head = self._head("chat.completion.chunk")
        more: Json = {"usage": None} if asked else {}
        for index in self._choices:
            for delta in self._deltas():
                yield {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}], **more}
            yield {**head, "choices": [{"index": index, "delta": {}, "logprobs": None, "finish_reason": self.finish}], **more}
        if asked:
            yield {**head, "choices": [], "usage": self.usage()}

    def usage(self) -> Json:
        """Four characters are a token."""
        body, reply = self._body, self._reply
        asked = sum(4 + tokens(text_of(message)) for message in body["messages"] if isinstance(message, Mapping))
        asked += tokens(dumps(body["tools"]).decode()) if body.get("tools") else 0
        thought = tokens(reply.reasoning) * len(self._choices)
        said = (tokens(reply.text) + sum(tokens(call.name) + tokens(_written(call)) for call in reply.calls)) * len(self._choices)
        return {
            "prompt_tokens": asked,
            "completion_tokens": thought + said,
            "total_tokens": asked + thought + said,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }

    def _head(self, kind: str) -> Json:
        return {"id": self._id, "object": kind, "created": self._created, "model": str(self._body.get("model") or NAME)}

    def _message(self) -> Json:
        reply = self._reply
        message: Json = {"role": "assistant", "content": reply.text or (None if reply.calls else ""), "refusal": None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [_entry(call, _written(call)) for call in reply.calls]
        return message

    def _deltas(self) -> Iterator[Json]:
        yield {"role": "assistant", "content": "", "refusal": None}
        yield from ({"reasoning_content": piece} for piece in _PIECE.findall(self._reply.reasoning))
        yield from ({"content": piece} for piece in _PIECE.findall(self._reply.text))
        for position, call in enumerate(self._reply.calls):
            yield {"tool_calls": [{"index": position, **_entry(call, "")}]}
            kind, field = ("custom", "input") if isinstance(call.arguments, str) else ("function", "arguments")
            yield from ({"tool_calls": [{"index": position, kind: {field: piece}}]} for piece in _ARGUMENTS.findall(_written(call)))


def _check(body: Mapping[str, Any]) -> None:
    """Refuse what every provider would: fields of the wrong kind."""
    messages, stop = body.get("messages"), body.get("stop")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise Refused("messages must be a list with at least one message", "messages")
    if not isinstance(stop, str | None) and not (isinstance(stop, list) and all(isinstance(one, str) for one in stop)):
        raise Refused("stop must be a text or a list of texts", "stop")
    if not isinstance(body.get("tools"), list | None):
        raise Refused("tools must be a list", "tools")
    for name, most in (("n", _MOST_CHOICES), ("max_tokens", math.inf), ("max_completion_tokens", math.inf)):
        value = body.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most):
            raise Refused(f"{name} must be a whole number from 1", name)


def has_content(chunk: Mapping[str, Any]) -> bool:
    """Whether an event carries text, reasoning or a part of a tool call."""
    return any(choice["delta"].get(name) for choice in chunk["choices"] for name in ("content", "reasoning_content", "tool_calls"))


def tokens(text: str) -> int:
    return math.ceil(len(text) / 4)


def _written(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else dumps(call.arguments).decode()


def _entry(call: Call, arguments: str) -> Json:
    ident = f"call_{uuid.uuid4().hex[:24]}"
    if isinstance(call.arguments, str):
        return {"id": ident, "type": "custom", "custom": {"name": call.name, "input": arguments}}
    return {"id": ident, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _limited(body: Mapping[str, Any], reply: Reply) -> tuple[Reply, str]:
    """The reply within `stop` and the token limit, and its finish reason.

    Reasoning is left out where it would leave no room for the answer: a real model would
    spend the whole limit on it, which helps nobody who tries something.
    """
    if reply.calls:
        return reply, "tool_calls"
    stops = body.get("stop")
    ends = [at for stop in ([stops] if isinstance(stops, str) else stops or ()) if stop and (at := reply.text.find(stop)) >= 0]
    text = reply.text[: min(ends)] if ends else reply.text
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if not isinstance(limit, int) or tokens(reply.reasoning) + tokens(text) <= limit:
        return Reply(reply.reasoning, text), "stop"
    return Reply("", text[: 4 * limit]), "stop" if tokens(text) <= limit else "length"


# ---- the other endpoints -----------------------------------------------------------------------------


def models() -> Json:
    return {"object": "list", "data": [{"id": NAME, "object": "model", "created": 1_764_460_800, "owned_by": "thinkgate"}]}


def embeddings(body: Mapping[str, Any]) -> Json:
    """Vectors of length 1 in which texts with the same words are near; `encoding_format` base64 is little-endian float32."""
    inputs = _inputs(body.get("input"))
    size = body.get("dimensions", 256)
    if not isinstance(size, int) or not 1 <= size <= _MOST_DIMENSIONS:
        raise Refused(f"dimensions must be between 1 and {_MOST_DIMENSIONS}", "dimensions")
    vectors = [_vector(text, size) for text in inputs]
    encoded: list[Any] = [_base64(vector) for vector in vectors] if body.get("encoding_format") == "base64" else list(vectors)
    data = [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(encoded)]
    used = sum(tokens(text) for text in inputs)
    return {"object": "list", "data": data, "model": str(body.get("model") or NAME), "usage": {"prompt_tokens": used, "total_tokens": used}}


def _inputs(given: Any) -> list[str]:
    """The texts of an embeddings request; token ids count as words."""
    if isinstance(given, str) and given:
        return [given]
    if isinstance(given, list) and given and all(isinstance(item, int) for item in given):
        return [" ".join(map(str, given))]
    if isinstance(given, list) and given and all(isinstance(item, str) for item in given):
        return list(given)
    if isinstance(given, list) and given and all(isinstance(item, list) for item in given):
        return [" ".join(map(str, item)) for item in given]
    raise Refused("input must be a text, a list of texts, or token ids", "input")


def _vector(text: str, size: int) -> list[float]:
    vector = [0.0] * size
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for at in range(0, 16, 4):
            number = int.from_bytes(digest[at : at + 4], "big")
            vector[number % size] += 1.0 if number >> 31 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else [1.0, *vector[1:]]


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def text_completion(body: Mapping[str, Any]) -> Json:
    """The chat request that a legacy completions request amounts to."""
    prompt = body.get("prompt", "")
    text = prompt if isinstance(prompt, str) else "\n".join(map(str, prompt)) if isinstance(prompt, list) else ""
    rest = {key: value for key, value in body.items() if key not in ("prompt", "messages", "tools", "response_format")}
    return {**rest, "messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"}}


def as_text(answer: Mapping[str, Any]) -> Json:
    """A chat completion or chunk in the form of the legacy completions endpoint."""
    said = [(choice, choice.get("message") or choice.get("delta") or {}) for choice in answer["choices"]]
    choices = [{"index": c["index"], "text": part.get("content") or "", "logprobs": None, "finish_reason": c["finish_reason"]} for c, part in said]
    return {**answer, "id": answer["id"].replace("chatcmpl-", "cmpl-"), "object": "text_completion", "choices": choices}
