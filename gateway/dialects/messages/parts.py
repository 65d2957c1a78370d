"""The parts of a chat message's content as Messages blocks, and back: text, images, documents."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.chat import Json
from gateway.dialects.messages.terms import listed
from gateway.errors import Skipped

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?)(;base64)?,", re.IGNORECASE)
_OWN = ("image", "document", "search_result")


def cached(block: Json, mark: Any) -> Json:
    """The block with a cache breakpoint; null is no breakpoint, and some hosts refuse it."""
    return {**block, "cache_control": mark} if isinstance(mark, dict) else block


def content_blocks(message: Json, texts_only: bool = False) -> list[Json]:
    """What a chat message says, as new blocks, none of them blank.

    `texts_only`: assistant turns may hold nothing else here. Raises Skipped for a part that
    Messages cannot carry.
    """
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    blocks = [block for part in parts if (block := _block(part, texts_only))]
    if blocks and "cache_control" in message:
        blocks[-1] = cached(blocks[-1], message["cache_control"])
    return blocks


def _block(part: Any, texts_only: bool) -> Json | None:
    if isinstance(part, str):
        return _text(part)
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    block: Json | None
    if kind in ("text", "input_text", "output_text", None):
        block = _text(part.get("text"))
    elif kind == "refusal":
        block = _text(part.get("refusal"))
    elif texts_only:
        return None
    elif kind == "image_url":
        block = _image(part.get("image_url"))
    elif kind == "file":
        block = _document(part.get("file"))
    elif kind in _OWN:
        return dict(part)
    else:
        raise Skipped(f"the Messages dialect cannot carry content of type {str(kind)[:40]!r}")
    return block and cached(block, part.get("cache_control"))


def _text(text: Any) -> Json | None:
    return {"type": "text", "text": text} if isinstance(text, str) and text.strip() else None


def _image(image: Any) -> Json:
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str) or not url:
        raise Skipped("an image without a URL")
    if url[:5].lower() != "data:":
        return {"type": "image", "source": {"type": "url", "url": url}}
    media, data = _data(url)
    return {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg" if media == "image/jpg" else media, "data": data}}


def _data(url: str) -> tuple[str, str]:
    """Media type and base64 text of a data URL."""
    head = _DATA_URL.match(url)
    if head is None:
        raise Skipped("an image or file whose data URL cannot be read")
    data = url[head.end() :]
    return head[1].lower(), data if head[3] else base64.b64encode(unquote_to_bytes(data)).decode()


def _document(file: Any) -> Json:
    data = file.get("file_data") if isinstance(file, dict) else None
    if not isinstance(data, str) or not data:
        raise Skipped("a file that is not in the request: its id belongs to another provider")
    media, data = _data(data) if data[:5].lower() == "data:" else ("application/pdf", data)
    source: Json = {"type": "base64", "media_type": media or "application/pdf", "data": data}
    if media.startswith("text/"):
        try:
            source = {"type": "text", "media_type": "text/plain", "data": base64.b64decode(data).decode("utf-8", "replace")}
        except binascii.Error:
            raise Skipped("a file whose base64 data cannot be read") from None
    name = file.get("filename")
    return {"type": "document", "source": source, **({"title": name} if isinstance(name, str) and name else {})}


def chat_part(block: Json) -> Json | None:
    """The chat part for a block of a user turn or a tool result; None where there is nothing to say.

    Raises Skipped for what only Anthropic can look up, such as a file by its id.
    """
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": block["text"]} if isinstance(block.get("text"), str) else None
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _source_url(block.get("source"), "image")}}
    if kind == "document":
        return _file(block)
    if kind == "search_result":
        texts = [part["text"] for part in listed(block.get("content")) if isinstance(part.get("text"), str)]
        return {"type": "text", "text": "\n".join([f"{block.get('title') or ''} ({block.get('source') or ''})", *texts])}
    if kind == "container_upload":
        raise Skipped(f"only the Messages dialect can carry content of type {kind!r}")
    return None


def _source_url(source: Any, what: str) -> str:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    if kind == "url" and isinstance(source.get("url"), str):
        url: str = source["url"]
        return url
    raise Skipped(f"only Anthropic can look up an {what} of source {str(kind)[:40]!r}")


def _file(block: Json) -> Json:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    title = block.get("title") if isinstance(block.get("title"), str) else None
    if isinstance(source, dict) and kind in ("text", "content"):
        inner = source.get("data") if kind == "text" else source.get("content")
        if isinstance(inner, list):
            inner = "\n".join(part["text"] for part in listed(inner) if isinstance(part.get("text"), str))
        return {"type": "text", "text": f"{title}\n{inner}" if title else str(inner or "")}
    if kind == "url":
        return {"type": "text", "text": f"{title or 'document'}: {_source_url(source, 'document')}"}
    return {"type": "file", "file": {"filename": title or "document.pdf", "file_data": _source_url(source, "document")}}
