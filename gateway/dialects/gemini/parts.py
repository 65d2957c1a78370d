"""The parts of a chat message's content as Gemini parts."""

from __future__ import annotations

from typing import Any

from gateway.chat import Json
from gateway.dialects.media import data_url, file_data, is_data, media_type, url_of
from gateway.dialects.messages.terms import mapping
from gateway.errors import Skipped

_AUDIO = {"mp3": "audio/mp3", "wav": "audio/wav"}


def content_parts(content: Any, texts_only: bool = False) -> list[Json]:
    """What a chat message's `content` says, as new parts, none of them empty.

    `texts_only`: of the model's own turns and of instructions. Raises Skipped for a part that
    Gemini cannot be given.
    """
    return [part for item in (content if isinstance(content, list) else [content]) if (part := _part(item, texts_only))]


def _part(item: Any, texts_only: bool) -> Json | None:
    if isinstance(item, str):
        return {"text": item} if item else None
    if not isinstance(item, dict):
        return None
    kind = item.get("type")
    if kind in ("text", "input_text", "output_text", "refusal", None):
        text = item.get("refusal" if kind == "refusal" else "text")
        return {"text": text} if isinstance(text, str) and text else None
    if texts_only:
        return None
    if kind == "image_url":
        return _media(url_of(item.get("image_url"), "an image"), "image/jpeg")
    if kind == "video_url":
        return _media(url_of(item.get("video_url"), "a video"), "video/mp4")
    if kind == "input_audio":
        return _audio(mapping(item.get("input_audio")))
    if kind == "file":
        media, data, _ = file_data(item.get("file"))
        return {"inlineData": {"mimeType": media, "data": data}}
    raise Skipped(f"the Gemini dialect cannot carry content of type {str(kind)[:40]!r}")


def _media(url: str, fallback: str) -> Json:
    if is_data(url):
        media, data = data_url(url)
        return {"inlineData": {"mimeType": media or fallback, "data": data}}
    return {"fileData": {"mimeType": media_type(url, fallback), "fileUri": url}}


def _audio(audio: Json) -> Json:
    data, form = audio.get("data"), audio.get("format")
    if not isinstance(data, str) or not data:
        raise Skipped("audio without data")
    return {"inlineData": {"mimeType": _AUDIO.get(str(form), f"audio/{form or 'wav'}"), "data": data}}
