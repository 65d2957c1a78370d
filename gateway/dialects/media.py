"""Images, audio and files that stand in a request itself, as data URLs."""

from __future__ import annotations

import base64
import mimetypes
import re
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from gateway.errors import Skipped

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?)(;base64)?,", re.IGNORECASE)


def is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def data_url(url: str) -> tuple[str, str]:
    """Media type and base64 text of a data URL. Raises Skipped if it cannot be read."""
    head = _DATA_URL.match(url)
    if head is None:
        raise Skipped("an image or file whose data URL cannot be read")
    media = head[1].lower()
    data = url[head.end() :]
    return "image/jpeg" if media == "image/jpg" else media, data if head[3] else base64.b64encode(unquote_to_bytes(data)).decode()


def url_of(value: Any, what: str) -> str:
    """The URL in a part of a chat message, bare or inside an object. Raises Skipped if there is none."""
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url:
        raise Skipped(f"{what} without a URL")
    return url


def media_type(url: str, fallback: str) -> str:
    """The media type that the end of an address tells."""
    return mimetypes.guess_type(urlsplit(url).path)[0] or fallback


def file_data(file: Any) -> tuple[str, str, str]:
    """Media type, base64 text and name of a chat `file`. Raises Skipped where the file is not in the request."""
    data = file.get("file_data") if isinstance(file, dict) else None
    if not isinstance(data, str) or not data:
        raise Skipped("a file that is not in the request: its id belongs to another provider")
    name = file.get("filename")
    name = name if isinstance(name, str) else ""
    media, text = data_url(data) if is_data(data) else ("", data)
    return media or media_type(name, "application/pdf"), text, name
