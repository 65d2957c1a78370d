"""The parts of a message's content between the two dialects: text, images, files, audio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.chat import Json, dumps
from gateway.dialects.responses.terms import listed, mapping, text_of
from gateway.errors import Skipped

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", None)


def chat_content(parts: Any) -> str | list[Json]:
    """Chat content: one string where all is text, which every chat host takes, else parts."""
    if isinstance(parts, str):
        return parts
    out = [part for item in listed(parts) if (part := chat_part(item))]
    if all(part["type"] == "text" for part in out):
        return "\n\n".join(part["text"] for part in out)
    return out


def chat_part(part: Json) -> Json | None:
    """One part; None where there is nothing to say. Raises Skipped for what only OpenAI can look up."""
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": part["text"]} if text_of(part.get("text")) else None
    if kind == "refusal":
        return {"type": "text", "text": part["refusal"]} if text_of(part.get("refusal")) else None
    if kind == "input_image":
        return _image(part)
    if kind == "input_file":
        return _file(part)
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": mapping(part.get("input_audio"))}
    if kind in ("image_url", "file"):
        return part
    raise Skipped(f"chat cannot carry content of type {str(kind)[:40]!r}")


def _image(part: Json) -> Json:
    url = part.get("image_url")
    if isinstance(url, dict):  # chat's own form, which some clients send here
        url = url.get("url")
    if not isinstance(url, str) or not url:
        raise Skipped("an image that is not in the request: only the provider that has the file can look it up")
    detail = part.get("detail")
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if isinstance(detail, str) and detail != "auto" else {})}}


def _file(part: Json) -> Json:
    known = {key: part[key] for key in ("filename", "file_data", "file_id") if part.get(key)}
    if "file_data" not in known and "file_id" not in known:
        raise Skipped("chat cannot carry a file by its URL")
    return {"type": "file", "file": known}


def is_picture(part: Json) -> bool:
    """Whether a part of a tool's output has no place in chat's tool messages, which hold text."""
    return part.get("type") not in _TEXTS


def own_content(content: Any) -> str | list[Json]:
    """Responses content for that of a user's, system's or tool's chat message: a string stays one."""
    if isinstance(content, list):
        return [part for item in content if (part := _own_part(item))]
    if content is None or isinstance(content, str):
        return content or ""
    return dumps(content).decode()


def _own_part(part: Any) -> Json | None:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "input_text", "text": part["text"]} if isinstance(part.get("text"), str) else None
    if kind == "refusal":
        return {"type": "input_text", "text": text_of(part.get("refusal"))}
    if kind == "image_url":
        image = part.get("image_url")
        image = image if isinstance(image, dict) else {"url": image}
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
    if kind == "file":
        return {"type": "input_file", **{key: value for key, value in mapping(part.get("file")).items() if value is not None}}
    if kind == "input_audio" or str(kind).startswith("input_"):
        return part
    raise Skipped(f"the Responses dialect cannot carry content of type {str(kind)[:40]!r}")


def said(content: Any) -> str:
    """The text of an assistant's chat message."""
    if isinstance(content, list):
        return "".join(_texts(content))
    return text_of(content)


def _texts(parts: Iterable[Any]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("type") in _TEXTS:
            yield text_of(part.get("text"))


def chat_annotations(parts: Iterable[Json]) -> list[Json]:
    """The web sources of output texts, in chat's form."""
    found = [note for part in parts for note in listed(part.get("annotations")) if note.get("type") == "url_citation"]
    return [{"type": "url_citation", "url_citation": {key: value for key, value in note.items() if key != "type"}} for note in found]


def own_annotations(notes: Any) -> list[Json]:
    """Chat's annotations in the form of output texts."""
    cited = [mapping(note.get("url_citation")) for note in listed(notes) if note.get("type") == "url_citation"]
    blank = {"url": "", "title": "", "start_index": 0, "end_index": 0}
    return [{"type": "url_citation", **blank, **note} for note in cited]
