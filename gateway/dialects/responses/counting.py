"""How many tokens a Responses request is, without the model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.chat import Json, dumps
from gateway.dialects.responses.terms import listed, mapping

_PER_TOKEN = 4  # bytes of UTF-8 text, the usual rule of thumb; prose in most languages lies between 3 and 5
_PER_ITEM = 4  # role and separators around each item
_PER_IMAGE = 765  # a picture of 1024 x 1024 in high detail (OpenAI's vision guide for gpt-4o)
_PER_LOW_IMAGE = 85
_PER_FILE_TOKEN = 8  # characters of base64: an attached document is mostly not text


def count_input_tokens(body: Json) -> int:
    """An estimate of the input tokens: instructions, items, tools and text format. At least 1; not a bill."""
    given = body.get("input")
    tokens = (_bytes(body.get("instructions")) + _bytes(given)) / _PER_TOKEN
    tokens += sum(_PER_ITEM + _weight(item) for item in listed(given))
    for tool in listed(body.get("tools")):
        tokens += len(dumps(tool)) / _PER_TOKEN
    if form := mapping(body.get("text")).get("format"):
        tokens += len(dumps(form)) / _PER_TOKEN
    return max(1, round(tokens))


def _bytes(value: Any) -> int:
    return len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0


def _weight(item: Mapping[str, Any]) -> float:
    """Tokens of one item: its texts, arguments, outputs and names; pictures and files by rule."""
    kind = item.get("type")
    if kind == "input_image":
        return _PER_LOW_IMAGE if item.get("detail") == "low" else _PER_IMAGE
    if kind == "input_file":
        return (_bytes(item.get("file_data")) or _PER_IMAGE * _PER_FILE_TOKEN) / _PER_FILE_TOKEN
    weight = 0.0
    for key, value in item.items():
        if key in ("content", "text", "refusal", "arguments", "input", "output", "name", "summary", "encrypted_content"):
            weight += sum(_weight(part) for part in listed(value)) if isinstance(value, list) else _bytes(value) / _PER_TOKEN
    return weight
