"""The parts of a chat message's content as Converse blocks: text, images, documents, videos."""

from __future__ import annotations

import re
from typing import Any

from gateway.chat import Json
from gateway.dialects.media import data_url, file_data, is_data, url_of
from gateway.errors import Skipped

MARK = "_mark"
"""A key of the gateway's own: the cache point that is to stand behind the block. It never stays in a request."""

_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_VIDEOS = {"video/quicktime": "mov", "video/x-matroska": "mkv", "video/3gpp": "three_gp", "video/x-ms-wmv": "wmv", "video/x-flv": "flv"}
_ODD = re.compile(r"[^A-Za-z0-9\s()\[\]-]|\s(?=\s)")


def content_blocks(message: Json, texts_only: bool = False) -> list[Json]:
    """What a chat message says, as new blocks, none of them blank ("The text field in the ContentBlock object is blank", 400).

    `texts_only`: of assistant turns and instructions. Raises Skipped for a part that Converse
    cannot be given.
    """
    content = message.get("content")
    blocks = [block for part in (content if isinstance(content, list) else [content]) if (block := _block(part, texts_only))]
    if blocks:
        blocks[-1] = marked(blocks[-1], message.get("cache_control"))
    return blocks


def marked(block: Json, cache_control: Any) -> Json:
    """The block with the cache point for Anthropic's `cache_control`, if that is one."""
    if not isinstance(cache_control, dict):
        return block
    lives = {"ttl": cache_control["ttl"]} if cache_control.get("ttl") in ("5m", "1h") else {}
    return {**block, MARK: {"cachePoint": {"type": "default", **lives}}}


def _block(part: Any, texts_only: bool) -> Json | None:
    if isinstance(part, str):
        return {"text": part} if part.strip() else None
    if not isinstance(part, dict):
        return None
    block = _of_kind(part, part.get("type"), texts_only)
    return block and marked(block, part.get("cache_control"))


def _of_kind(part: Json, kind: Any, texts_only: bool) -> Json | None:
    if kind in ("text", "input_text", "output_text", "refusal", None):
        text = part.get("refusal" if kind == "refusal" else "text")
        return {"text": text} if isinstance(text, str) and text.strip() else None
    if texts_only:
        return None
    if kind == "image_url":
        return {"image": _media(url_of(part.get("image_url"), "an image"), "png")}
    if kind == "video_url":
        return {"video": _media(url_of(part.get("video_url"), "a video"), "mp4")}
    if kind == "file":
        return {"document": _document(part.get("file"))}
    raise Skipped(f"the Converse dialect cannot carry content of type {str(kind)[:40]!r}")


def _media(url: str, fallback: str) -> Json:
    if not is_data(url):
        raise Skipped("the Converse dialect takes images and videos only in the request itself, not by URL")
    media, data = data_url(url)
    return {"format": _VIDEOS.get(media) or media.partition("/")[2] or fallback, "source": {"bytes": data}}


def _document(file: Any) -> Json:
    media, data, name = file_data(file)
    form = _DOCUMENTS.get(media) or ("txt" if media.startswith("text/") else None)
    if form is None:
        raise Skipped(f"the Converse dialect cannot carry a file of type {media[:60]!r}")
    return {"format": form, "name": _ODD.sub("", name.rpartition(".")[0] or name).strip()[:200] or "document", "source": {"bytes": data}}


def name_apart(blocks: list[Json], used: set[str]) -> None:
    """Give documents of one name different ones, as a request may hold no two of a name."""
    for block in blocks:
        document = block.get("document")
        if document is None:
            continue
        name, number = document["name"], 2
        while document["name"] in used:
            document["name"], number = f"{name} {number}", number + 1
        used.add(document["name"])
