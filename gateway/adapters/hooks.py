"""The contract between the gateway and an adapter file: what it declares, which hooks it may hold, what they get and give."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, NoReturn

from gateway.config import FAILURE_CLASSES, suggest
from gateway.errors import AdapterError, Skipped

log = logging.getLogger("thinkgate.adapters")

Hook = Callable[..., Any]
"""A hook of an adapter file: plain JSON values (and the Context) in, a plain JSON value or None out; raises AdapterError or Skipped."""

HOOKS = ("transform_request", "transform_response", "transform_chunk", "finish", "classify_error", "repair", "build_request")

DATA = ("base_url", "auth", "env", "dialect", "framing", "default_model", "trailing_assistant", "models", "options", "thinking")
"""What an adapter file may declare besides hooks."""

_WARN_LENGTH = 200
_NOTES = 64
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class Adapter:
    """One loaded adapter file, or hook file: its data and those hooks that it has.

    name      the file's name without its ending; it stands in notes and messages
    path      where it was loaded from; None: made in memory
    language  "lua" | "python"
    auth      "bearer" | "none" | "header:NAME"
    env       the environment variable that usually holds the key
    dialect   what the provider speaks: chat, responses, messages, completions, gemini, converse
    framing   how it streams: sse, ndjson, eventstream
    trailing_assistant  "accept" | "refuse": may the last message be the assistant's
    models    per-model sections, frozen JSON data, read by gateway.adapters.rules
    options   declared options with their defaults, frozen JSON data
    thinking  the declared thinking rule, frozen JSON data, read by gateway.adapters.rules
    lines     where each hook begins
    digest    of the file's bytes: equal in every process that has the same file
    """

    name: str
    path: Path | None = None
    language: str = "lua"
    base_url: str | None = None
    auth: str = "bearer"
    env: str | None = None
    dialect: str = "chat"
    framing: str = "sse"
    default_model: str | None = None
    trailing_assistant: str = "accept"
    models: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    thinking: Mapping[str, Any] | None = None
    hooks: Mapping[str, Hook] = field(default_factory=lambda: MappingProxyType({}))
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    digest: str = ""


class Context:
    """What hooks get as `ctx`: one for each attempt.

    `thinking` is the wish that holds here ("auto", "off", "on" or a level), `options` the
    provider's options over the adapter's defaults, `state` a place of the attempt's own.
    `notes` collects the entries for `x-thinkgate-transforms`; `source` names the file whose
    hook runs; `seconds` is the time spent in hooks; `held` counts the text that Lua hooks put
    into `state` since it was last weighed. A hook sets `force_stream` to have the
    upstream asked for a stream whose chunks become the plain answer. For `build_request` in
    Python: `url` is the base URL, `body` the bytes that are sent, `api_key` the key that is used.
    """

    __slots__ = (
        "api_key",
        "attempt",
        "body",
        "dialect",
        "endpoint",
        "force_stream",
        "held",
        "model",
        "notes",
        "options",
        "provider",
        "seconds",
        "source",
        "state",
        "stream",
        "thinking",
        "url",
    )

    def __init__(
        self,
        provider: str = "",
        model: str = "",
        endpoint: str = "chat",
        dialect: str = "chat",
        stream: bool = False,
        attempt: int = 1,
        thinking: str = "auto",
        options: Mapping[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        notes: list[str] | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.endpoint = endpoint
        self.dialect = dialect
        self.stream = stream
        self.attempt = attempt
        self.thinking = thinking
        self.options: Mapping[str, Any] = {} if options is None else options
        self.state: dict[str, Any] = {} if state is None else state
        self.notes: list[str] = [] if notes is None else notes
        self.force_stream = False
        self.url = ""
        self.body = b""
        self.api_key: str | None = None
        self.source = ""
        self.seconds = 0.0
        self.held = 0

    def note(self, text: str) -> None:
        """Add one entry to `x-thinkgate-transforms`, once."""
        if text not in self.notes and len(self.notes) < _NOTES:
            self.notes.append(text)

    def warn(self, text: str) -> None:
        """Tell the client (`adapter.warn="text"` in x-thinkgate-transforms) and the log, once each."""
        shown = _UNPRINTABLE.sub(" ", str(text))[:_WARN_LENGTH].replace('"', "'")
        entry = f'{self.source}.warn="{shown.encode("ascii", "backslashreplace").decode()}"'
        if entry not in self.notes:
            self.note(entry)
            log.warning("%s: %s (provider=%s model=%s)", self.source, shown, self.provider, self.model)

    def log(self, text: str) -> None:
        """Write a line to the gateway's log."""
        log.info("%s: %s (provider=%s model=%s)", self.source, _UNPRINTABLE.sub(" ", str(text))[:1000], self.provider, self.model)

    def skip(self, why: str) -> NoReturn:
        """Leave this provider out of the request: raises Skipped."""
        raise Skipped(f"{self.source}: {_UNPRINTABLE.sub(' ', str(why))[:300]}" if self.source else str(why)[:300])


class Hooks:
    """The hooks of one provider: its adapter's, then those of its hook files, in order.

    What a hook gives is checked for its outer shape; AdapterError names the file and the
    hook. The time spent is added to `ctx.seconds`.
    """

    __slots__ = ("_by_name", "_files", "adapter", "digest")

    def __init__(self, adapter: Adapter, extras: Sequence[Adapter] = ()) -> None:
        self.digest = " ".join([file.digest for file in (adapter, *extras)])
        self.adapter = adapter
        self._files = (adapter, *extras)
        self._by_name = {name: tuple((file, file.hooks[name]) for file in self._files if name in file.hooks) for name in HOOKS}

    def has(self, name: str) -> bool:
        """Whether any file has this hook."""
        return bool(self._by_name[name])

    def transform_request(self, body: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """The body after every file's hook."""
        for file, hook in self._by_name["transform_request"]:
            given = _run(file, hook, ctx, body, ctx)
            if type(given) is not dict:
                raise _wrong(file, "transform_request", given, 'the body (ctx.skip("why") leaves a provider out)')
            body = given
        return body

    def transform_response(self, body: dict[str, Any], ctx: Context) -> dict[str, Any] | None:
        """The answer after every file's hook; None: dropped."""
        for file, hook in self._by_name["transform_response"]:
            given = _run(file, hook, ctx, body, ctx)
            if given is None:
                return None
            if type(given) is list and len(given) == 1:
                given = given[0]
            if type(given) is not dict:
                raise _wrong(file, "transform_response", given, "one answer or nil")
            body = given
        return body

    def transform_chunk(self, chunk: dict[str, Any], ctx: Context) -> list[dict[str, Any]]:
        """What becomes of one chunk of a stream: none, one or more chunks."""
        chunks = [chunk]
        for file, hook in self._by_name["transform_chunk"]:
            chunks = _each(file, hook, chunks, ctx)
        return chunks

    def finish(self, ctx: Context) -> list[dict[str, Any]]:
        """The chunks that were held back; what one file flushes still passes the files after it."""
        chunks: list[dict[str, Any]] = []
        for file in self._files:
            if chunks and "transform_chunk" in file.hooks:
                chunks = _each(file, file.hooks["transform_chunk"], chunks, ctx)
            if "finish" in file.hooks:
                chunks = [*chunks, *_chunks(file, "finish", _run(file, file.hooks["finish"], ctx, ctx))]
        return chunks

    def classify_error(self, error: dict[str, Any], ctx: Context) -> dict[str, Any] | None:
        """`{class, retry_after, message}` of the first file that knows this `{status, headers, body}`; None: nobody does."""
        for file, hook in self._by_name["classify_error"]:
            given = _run(file, hook, ctx, error, ctx)
            if given is not None:
                return _classified(file, given)
        return None

    def repair(self, body: dict[str, Any], kind: str, ctx: Context) -> dict[str, Any] | None:
        """The body to send once more after a failure of class `kind`; None: no file can help."""
        for file, hook in self._by_name["repair"]:
            given = _run(file, hook, ctx, body, kind, ctx)
            if given is not None:
                if type(given) is not dict:
                    raise _wrong(file, "repair", given, "the body or nil")
                return given
        return None

    def build_request(self, body: dict[str, Any], ctx: Context) -> dict[str, Any] | None:
        """`{path, query, headers}`, those of later files over those of earlier ones; None: no file has the hook."""
        built: dict[str, Any] | None = None
        for file, hook in self._by_name["build_request"]:
            given = _run(file, hook, ctx, body, ctx)
            if given is not None:
                built = _built(file, given, {} if built is None else built)
        return built


def _run(file: Adapter, hook: Hook, ctx: Context, *args: Any) -> Any:
    outer, ctx.source = ctx.source, file.name
    started = perf_counter()
    try:
        return hook(*args)
    finally:
        ctx.seconds += perf_counter() - started
        ctx.source = outer


def _each(file: Adapter, hook: Hook, chunks: list[dict[str, Any]], ctx: Context) -> list[dict[str, Any]]:
    if len(chunks) == 1:
        return _chunks(file, "transform_chunk", _run(file, hook, ctx, chunks[0], ctx))
    return [out for chunk in chunks for out in _chunks(file, "transform_chunk", _run(file, hook, ctx, chunk, ctx))]


def _chunks(file: Adapter, name: str, given: Any) -> list[dict[str, Any]]:
    if given is None:
        return []
    if type(given) is dict:
        return [given]
    if type(given) is list and all(type(item) is dict for item in given):
        return given
    raise _wrong(file, name, given, "a chunk, a list of chunks or nil")


def _classified(file: Adapter, given: Any) -> dict[str, Any]:
    if type(given) is not dict:
        raise _wrong(file, "classify_error", given, "{class=, retry_after=, message=} or nil")
    kind, retry_after, message = given.get("class"), given.get("retry_after"), given.get("message")
    if kind not in FAILURE_CLASSES:
        raise AdapterError(f"{_at(file, 'classify_error')}: classify_error gave the unknown class {str(kind)[:60]!r}{suggest(str(kind), FAILURE_CLASSES)}")
    if retry_after is not None and (type(retry_after) not in (int, float) or retry_after < 0):
        raise AdapterError(f"{_at(file, 'classify_error')}: classify_error gave a retry_after that is no number of seconds")
    if message is not None and type(message) is not str:
        raise AdapterError(f"{_at(file, 'classify_error')}: classify_error gave a message that is no string")
    return {"class": kind, "retry_after": retry_after, "message": message}


def _built(file: Adapter, given: Any, earlier: dict[str, Any]) -> dict[str, Any]:
    if type(given) is not dict or given.keys() - {"path", "query", "headers"}:
        raise _wrong(file, "build_request", given, "{path=, query=, headers=}")
    built = dict(earlier)
    if given.get("path") is not None:
        if type(given["path"]) is not str:
            raise AdapterError(f"{_at(file, 'build_request')}: build_request gave a path that is no string")
        built["path"] = given["path"]
    for name in ("query", "headers"):
        if given.get(name) is not None:
            built[name] = {**(built.get(name) or {}), **_texts(file, name, given[name])}
    return built


def _texts(file: Adapter, name: str, given: Any) -> dict[str, str]:
    if type(given) is not dict:
        raise AdapterError(f"{_at(file, 'build_request')}: build_request gave {name} that are no object")
    texts = {}
    for key, value in given.items():
        if type(value) not in (str, int, float) or _UNPRINTABLE.search(f"{key}{value}"):
            raise AdapterError(f"{_at(file, 'build_request')}: build_request gave a value for {name}.{str(key)[:60]} that is no printable text")
        texts[str(key)] = str(value)
    return texts


def _wrong(file: Adapter, hook: str, given: Any, wanted: str) -> AdapterError:
    return AdapterError(f"{_at(file, hook)}: {hook} gave {_kind(given)}; it gives {wanted}")


def _kind(value: Any) -> str:
    return {type(None): "nil", dict: "an object", list: "a list", str: "a string", bool: "a boolean"}.get(type(value), "a number")


def _at(file: Adapter, hook: str) -> str:
    """The file and the line at which the hook begins."""
    return f"{label(file)}:{file.lines[hook]}" if hook in file.lines else label(file)


def label(adapter: Adapter) -> str:
    """How messages name the file: `adapters/deepseek.lua`."""
    return display(adapter.path) if adapter.path else adapter.name


def display(path: Path) -> str:
    """A file's last folder and name, so that messages stay short and hold no home folder."""
    return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


def freeze(value: Any) -> Any:
    """JSON data as it cannot be changed: mappings are read-only, lists are tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """A copy of frozen JSON data that may go into a body."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value
