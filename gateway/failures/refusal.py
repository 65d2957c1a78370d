"""A provider's error body, in whichever of the many shapes, read into one."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.chat import loads

_LONGEST = 4000  # characters of a text that matchers and people get to see
_MESSAGES = ("message", "msg", "Message", "detail", "error_msg", "error_description", "status_msg", "failed_generation", "title")
_NAMES = re.compile(r"unsupported (?:parameter|value): ['\"`]([\w.-]+)|invalid (temperature|top_p): only", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an error body says.

    `text` is everything that can be matched, in lower case: message, code, type and the codes
    of inner errors, but nothing that echoes the request. `codes` are its codes as texts,
    MiniMax's as `base:NUMBER`. `status` is an HTTP status that the body names, `delay` a
    protobuf duration such as `34.4s`.
    """

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None
    text: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None
    delay: str | None = None


def read(body: bytes | Mapping[str, Any] | list[Any]) -> Refusal:
    """The refusal in a body: parsed or raw JSON of any shape, plain text, HTML, or nothing."""
    value: Any = body
    if isinstance(body, bytes):
        try:
            value = loads(body)
        except ValueError:
            value = _plain(body.decode("utf-8", "replace"))
    while isinstance(value, list) and value:  # Gemini's compatible endpoint wraps its error in an array
        value = value[0]
    if isinstance(value, str):
        message = value[:_LONGEST].strip()
        return Refusal(message=message, text=message.lower())
    return _read(value) if isinstance(value, Mapping) else Refusal()


def _plain(text: str) -> str:
    """The words of a text that may be an HTML page: its title, else what is left without tags."""
    text = text[: 4 * _LONGEST].strip()
    if not text.startswith("<"):
        return text
    title = re.search(r"<title[^>]*>([^<]*)</title>", text, re.IGNORECASE)
    words = title[1] if title and title[1].strip() else re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE)
    return " ".join(html.unescape(words).split())


def _read(body: Mapping[str, Any]) -> Refusal:
    source = _source(body)
    inner = _inner(source)
    message = _message(source, inner)
    kind = _word(source.get("type")) or _word(source.get("status")) or _word(source.get("__type"))
    code = _word(source.get("code")) or _word(source.get("status_code")) or (_word(body.get("code")) if source is not body else None)
    param = _word(source.get("param")) or _field_in(source.get("detail"))
    extras = [*_codes_inside(source), *([inner.text] if inner else [])]
    text = " ".join(part for part in (message, kind, code, param, *extras) if part)[: 2 * _LONGEST].lower()
    if param is None and (named := _NAMES.search(message)):
        param = named[1] or named[2].lower()
    codes = {part for part in (code, *extras) if part} | (inner.codes if inner else set())
    if "base_resp" in body and code:
        codes = {f"base:{code}"}
    status = _status(source.get("code")) or _status(source.get("http_code")) or _status(source.get("status")) or (inner.status if inner else None)
    return Refusal(message, kind, code, param, text, frozenset(codes), status, _delay(source))


def _source(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a body that holds the error's fields."""
    error = body.get("error")
    if isinstance(error, Mapping):
        return error
    if isinstance(error, str) and error:  # {"code": .., "error": "text"} of xAI, {"error": "text"} of Ollama and LM Studio
        return {"message": error, "code": body.get("code"), "type": body.get("type") if body.get("type") != "error" else None}
    for name in ("response", "base_resp"):
        part = body.get(name)
        if isinstance(part, Mapping):
            return _source(part) if name == "response" else part
    errors = body.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], Mapping):
        return errors[0]
    if body.get("type") == "error":  # an event of the Responses dialect names itself so, it is no error type
        return {**body, "type": None}
    return body


def _message(source: Mapping[str, Any], inner: Refusal | None) -> str:
    own = next((text for name in _MESSAGES if (text := _words(source.get(name)))), "")
    if inner is None or not inner.message or inner.message in own:
        return own[:_LONGEST]
    # OpenRouter says "Provider returned error" and puts the provider's own body into metadata.raw
    return (inner.message if not own or own == "Provider returned error" else f"{own}: {inner.message}")[:_LONGEST]


def _inner(source: Mapping[str, Any]) -> Refusal | None:
    metadata = source.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if isinstance(raw, str):
        return read(raw.encode("utf-8", "replace"))
    return read(raw) if isinstance(raw, Mapping) else None


def _words(value: Any) -> str:
    """A message as text; FastAPI's `detail` is a list of `{loc, msg, type}`."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "; ".join(text for item in value[:5] if (text := _words(item)))
    if isinstance(value, Mapping):
        place = value.get("loc")
        where = ".".join(str(part) for part in place) + ": " if isinstance(place, list) and place else ""
        kind = value.get("type")
        what = next((text for name in _MESSAGES if (text := _words(value.get(name)))), "")
        return where + what + (f" ({kind})" if where and isinstance(kind, str) else "")
    return ""


def _field_in(detail: Any) -> str | None:
    """The field that FastAPI complains about."""
    place = detail[0].get("loc") if isinstance(detail, list) and detail and isinstance(detail[0], Mapping) else None
    return next((part for part in reversed(place) if isinstance(part, str)), None) if isinstance(place, list) else None


def _codes_inside(source: Mapping[str, Any]) -> Iterator[str]:
    """Codes of inner errors and details: Azure's innererror, Google's and Anthropic's details."""
    inner = source.get("innererror")
    if isinstance(inner, Mapping) and isinstance(inner.get("code"), str):
        yield inner["code"]
    details = source.get("details")
    for item in details if isinstance(details, list) else [details]:
        if isinstance(item, Mapping):
            for name in ("reason", "code", "error_code", "type"):
                if isinstance(item.get(name), str):
                    yield item[name]
    if source.get("type") and isinstance(source.get("status"), str):
        yield source["status"]


def _delay(source: Mapping[str, Any]) -> str | None:
    """Google's RetryInfo: `details[].retryDelay`."""
    details = source.get("details")
    for item in details if isinstance(details, list) else ():
        delay = item.get("retryDelay") if isinstance(item, Mapping) else None
        if isinstance(delay, str):
            return delay
    return None


def _word(value: Any) -> str | None:
    """A code or type as text; providers send numbers and numbers as text alike."""
    if isinstance(value, str):
        return value.strip()[:200] or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _status(value: Any) -> int | None:
    text = _word(value)
    return int(text) if text is not None and re.fullmatch(r"[45]\d\d", text) else None
