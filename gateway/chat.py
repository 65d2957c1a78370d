"""What travels through the gateway: a request, its record, and the chunks of its answer.

Every level (provider, chain, agent) is a `Model`: it answers `generate(request)` with
chunks. A plain answer is a stream of one chunk. Bytes stay bytes until somebody must read
them: `Chunk.json()` parses once, on demand.

What is made for every request is a msgspec.Struct: making a frozen dataclass of this size
costs five times as much.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import orjson

from gateway.config import Target
from gateway.errors import UpstreamError

Json = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_LARGE = 256 * 1024


def loads(raw: bytes | str) -> Any:
    """The value of a JSON text, integers of any size exact. ValueError if it is not JSON.

    msgspec instead of orjson here: orjson silently turns integers outside 64 bits into floats.
    """
    if len(raw) > _LARGE and gc.isenabled():
        # millions of new lists set off the collector again and again, for nothing: four fifths of the time (measured, 2026-11)
        gc.disable()
        try:
            return _parsed(raw)
        finally:
            gc.enable()
    return _parsed(raw)


def _parsed(raw: bytes | str) -> Any:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def dumps(value: Any) -> bytes:
    """The shortest JSON text of a value, UTF-8, key order kept. ValueError if it has none."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer outside 64 bits, or something that has no JSON form
        try:
            return _encode(value)
        except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
            raise ValueError(str(error)) from None


class Attempt(msgspec.Struct, gc=False):
    """One exchange with one target, or why there was none.

    `kind` is the failure class (None while it runs and when it succeeded), `status` the
    provider's HTTP status, `ms` milliseconds from the first try to connect to the end of
    the attempt, or to the first content where it went on to answer.
    """

    provider: str
    model: str
    kind: str | None = None
    status: int | None = None
    ms: int = 0
    message: str | None = None
    skipped: str | None = None
    retry_after: float | None = None

    def public(self) -> Json:
        """The form in error bodies, `/admin/requests` and the log."""
        out: Json = {"provider": self.provider, "model": self.model, "class": self.kind, "status": self.status, "ms": self.ms}
        if self.message is not None:
            out["message"] = self.message
        if self.retry_after is not None:
            out["retry_after"] = self.retry_after
        if self.skipped is not None:
            out["skipped"] = self.skipped
        return out

    def label(self) -> str:
        """`provider=status`, or `provider=class` where no error status came."""
        if self.kind is not None and (self.status is None or self.status < 400):
            return f"{self.provider}={self.kind}"
        return f"{self.provider}={self.status or 200}"


class Record(msgspec.Struct):
    """All that becomes known about one request while it is served: the one mutable record.

    Headers, the log line, metrics and the admin routes read it; chain and provider write it.
    Times are `time.perf_counter()` seconds; `usage` is in OpenAI's chat form, `cost` in USD
    (None: no price is known). `cache` is `hit` or `miss` where an answer could have been kept.
    """

    id: str
    endpoint: str = "chat"
    model: str = ""
    stream: bool = False
    key: str | None = None
    tenant: str = ""
    started: float = msgspec.field(default_factory=time.perf_counter)
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    transforms: list[str] = msgspec.field(default_factory=list)
    provider: str | None = None
    target_model: str | None = None
    content_type: str = ""
    upstream_headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    upstream_seconds: float = 0.0
    hook_seconds: float = 0.0
    first_content: float | None = None
    fail: Callable[[Json], Sequence[tuple[str | None, Json]]] | None = None
    """how an agent's stream that has begun ends in failure, under its own id; None: any new writer may say it"""
    usage: Json | None = None
    cost: float | None = None
    tools: list[str] = msgspec.field(default_factory=list)
    cache: str | None = None
    chunks: int = 0
    run_id: str | None = None
    session: str | None = None

    def answered(self) -> tuple[str | None, str | None]:
        """Provider and model that answered; where none did, those that were asked last."""
        if self.provider is None:
            for attempt in reversed(self.attempts):
                if attempt.skipped is None:
                    return attempt.provider, attempt.model
        return self.provider, self.target_model

    def note(self, text: str) -> None:
        """Add one entry to `x-thinkgate-transforms`, once."""
        if text not in self.transforms:
            self.transforms.append(text)


class Body:
    """The JSON text of a request's body, as received."""

    __slots__ = ("_parsed", "raw")

    def __init__(self, raw: bytes, parsed: Json | None = None) -> None:
        self.raw = raw
        self._parsed = parsed

    @property
    def parsed(self) -> Json | None:
        """What was parsed at the door, while nobody has taken it: to be read, not to be kept."""
        return self._parsed

    def fresh(self) -> Json:
        """A copy that nobody else has. What was parsed at the door is given away once, later calls parse anew."""
        parsed, self._parsed = self._parsed, None
        if parsed is None:
            parsed = loads(self.raw)
        return parsed


class Request(msgspec.Struct, frozen=True):
    """One request as the client sent it, and (on the way down) what the chain made of it.

    `body.fresh()` gives a new copy of the JSON body, so that no attempt sees what an earlier
    one edited. `dialect` is the client's, `endpoint` names the route
    (`chat`, `responses`, `messages`, `completions`, `embeddings`, ...). `headers` are those
    of the client's that may reach a provider, `beta`: it asked for Anthropic's beta route,
    `only` narrows the chain to one provider.

    The chain sets `target`, `attempt` (from 1), `repair` (the failure that this attempt
    shall repair before it sends), `deadline` (`loop.time()` seconds until the first content
    must be there) and `empty_ok` (an empty answer is an answer). An agent sets `folds`: a last
    message of the assistant's becomes the end of the one before it where a provider takes none there.
    """

    body: Body
    model: str
    record: Record
    stream: bool = False
    endpoint: str = "chat"
    dialect: str = "chat"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    beta: bool = False
    only: str | None = None
    fallback: bool = True
    target: Target | None = None
    attempt: int = 1
    repair: UpstreamError | None = None
    deadline: float = float("inf")
    empty_ok: bool = False
    folds: bool = False


class Chunk:
    """One event of an answer, or a whole plain one.

    data     the JSON text: of one event, or of the whole body
    event    the event's name, in dialects that name their events
    whole    True: `data` is a complete plain answer
    content  True: it carries text, reasoning, a tool call or a refusal
    more     True: the next chunk is already there; writers may put both into one write
    """

    __slots__ = ("_json", "content", "data", "event", "more", "whole")

    def __init__(
        self, data: bytes, *, event: str | None = None, whole: bool = False, content: bool = False, more: bool = False, json: Json | None = None
    ) -> None:
        self.data = data
        self.event = event
        self.whole = whole
        self.content = content
        self.more = more
        self._json = json

    def json(self) -> Json:
        """The parsed data; read it, do not edit it."""
        if self._json is None:
            self._json = loads(self.data)
        return self._json

    def __repr__(self) -> str:
        return f"Chunk({self.data[:80]!r}{', whole' if self.whole else ''}{', content' if self.content else ''})"


class Model(Protocol):
    """Anything that answers: a provider, a chain, an agent."""

    def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield the answer's chunks. Whoever takes the generator closes it (`aclosing`).

        Nothing is yielded before the first content, so that errors raised until then
        (GatewayError) can still become a status. Later ones are `StreamCut`.
        """
        ...


class Accumulator:
    """Turns the chunks of a chat stream into the plain answer that they describe.

    `add` takes parsed chunks in order, `completion()` gives the `chat.completion` so far.
    Fields that it does not know are kept: the last value wins, texts of a delta are joined.
    Tool calls are told apart by id where one came, else by index, else they go on with the
    latest call; a repeated id, type or name is not joined to itself.
    """

    def __init__(self) -> None:
        self._top: Json = {}
        self._choices: dict[int, Json] = {}
        self._calls: dict[int, list[Json]] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        for key, value in chunk.items():
            if key not in ("choices", "object") and (value is not None or key not in self._top):
                self._top[key] = value
        for choice in chunk.get("choices") or ():
            self._add_choice(choice)

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        index = choice.get("index") or 0
        into = self._choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None, "logprobs": None})
        for key, value in choice.items():
            if key == "logprobs" and isinstance(value, dict) and isinstance(into["logprobs"], dict):
                for name, items in value.items():
                    into["logprobs"][name] = [*(into["logprobs"].get(name) or ()), *(items or ())]
            elif key not in ("index", "delta", "message") and value is not None:
                into[key] = value
        message = into["message"]
        for key, value in (choice.get("delta") or {}).items():
            if key == "tool_calls":
                for call in value or ():
                    self._add_call(self._calls.setdefault(index, []), call)
            elif key == "role":
                message["role"] = value or message["role"]
            elif isinstance(value, str) and isinstance(message.get(key), str):
                message[key] += value
            elif isinstance(value, list) and isinstance(message.get(key), list):
                message[key] = _join_details(message[key], value)
            elif value is not None or key not in message:
                message[key] = value

    @staticmethod
    def _add_call(calls: list[Json], delta: Mapping[str, Any]) -> None:
        ident, index = delta.get("id") or None, delta.get("index")
        call = next((c for c in calls if ident and c["id"] == ident), None)
        if call is None and not ident and index is not None:
            call = next((c for c in reversed(calls) if c["_index"] == index), None)
        if call is None and ident and index is not None:
            call = next((c for c in calls if c["_index"] == index and not c["id"]), None)
        if call is None and not ident and index is None and calls:
            call = calls[-1]
        if call is None:
            call = {"id": ident, "type": delta.get("type") or "function", "_index": len(calls) if index is None else index}
            calls.append(call)
        call["id"] = call["id"] or ident
        for key, value in delta.items():
            if key in ("id", "index", "type") or value is None:
                continue
            if key in ("function", "custom") and isinstance(value, dict):
                part = call.setdefault(key, {})
                for name, text in value.items():
                    if name in ("arguments", "input") and isinstance(text, str):
                        part[name] = part.get(name, "") + text
                    elif text:
                        part.setdefault(name, text)
            else:
                call[key] = value

    def completion(self) -> Json:
        choices = []
        for index in sorted(self._choices):
            choice = self._choices[index]
            calls = [{k: v for k, v in call.items() if k != "_index"} for call in self._calls.get(index, ())]
            for call in calls:
                if "function" in call:
                    call["function"].setdefault("arguments", "{}")
            message = {**choice["message"], **({"tool_calls": calls} if calls else {})}
            if calls and message.get("content") == "":
                message["content"] = None  # OpenAI's form of a turn that only calls tools
            choices.append({**choice, "message": message})
        out = {"object": "chat.completion", **self._top, "choices": choices}
        return {key: value for key, value in out.items() if key != "usage" or value is not None}


def _join_details(have: list[Any], new: list[Any]) -> list[Any]:
    """Join list deltas (reasoning_details, content parts): same index and type go on with the text."""
    out = list(have)
    for item in new:
        last = out[-1] if out else None
        same = isinstance(item, dict) and isinstance(last, dict) and item.get("type") == last.get("type") and item.get("index") == last.get("index")
        if same and isinstance(item, dict) and isinstance(last, dict):
            merged = dict(last)
            for key, value in item.items():
                if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(merged.get(key), str):
                    merged[key] += value
                elif value is not None:
                    merged[key] = value
            out[-1] = merged
        else:
            out.append(item)
    return out


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")


def model_name(value: str) -> bool:
    """Whether a text can be the name of a model: safe in a log line, a label and a path."""
    return _NAME.fullmatch(value) is not None and ".." not in value and "//" not in value
