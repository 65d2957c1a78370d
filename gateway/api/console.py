"""The console's own files, open to whoever asks: nothing of the gateway is in them. What they show, the page asks of /admin, with its key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request as Web
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

import gateway
from gateway.api.answering import json_response, visit_of
from gateway.api.headers import response_headers
from gateway.errors import NotFound

FOLDER = Path(gateway.__file__).parent / "console"
PATH = "/console"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # whatever a model or a client made it show: nothing is run or loaded but the files beside it, and no text becomes markup
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asked for again each time, and answered with 304: an update is seen at once
}


@dataclass(frozen=True, slots=True)
class File:
    """One of the files, as it is sent."""

    data: bytes
    type: str
    etag: str


def routes() -> list[Route]:
    return [
        Route("/", root, methods=["GET"]),
        Route(PATH, page, methods=["GET"]),
        Route(PATH + "/{name:path}", file, methods=["GET"]),
    ]


@cache
def files() -> dict[str, File]:
    """All there are, by name. A name that is no key here is served from nowhere: paths are never put together from what a client says."""
    found: dict[str, File] = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _TYPES:
            data = path.read_bytes()
            found[path.name] = File(data, _TYPES[path.suffix], f'"{hashlib.sha256(data).hexdigest()[:20]}"')
    return found


async def root(web: Web) -> Response:
    """To the console; HEAD tells clients that look first (Claude Code) that somebody is here."""
    if web.method == "HEAD":
        return json_response(web, {"name": "thinkgate", "version": gateway.__version__})
    return _moved(web, PATH)


async def page(web: Web) -> Response:
    """The page of the console."""
    return _sent(web, files()["index.html"])


async def file(web: Web) -> Response:
    """A file of the console. With no name the page itself, which names its files relative to /console."""
    name = web.path_params["name"]
    if not name:
        return _moved(web, f"..{PATH}")
    found = files().get(name)
    if found is None:
        raise NotFound(f"Invalid URL ({web.method} {web.url.path})", code="unknown_url")
    return _sent(web, found)


def _sent(web: Web, found: File) -> Response:
    same = found.etag in [tag.strip().removeprefix("W/") for tag in web.headers.get("if-none-match", "").split(",")]
    response = Response(None if same else found.data, 304 if same else 200, {**_HEADERS, "etag": found.etag}, None if same else found.type)
    response.raw_headers += response_headers(visit_of(web).record)
    return response


def _moved(web: Web, where: str) -> Response:
    response = RedirectResponse(where, 307, headers={"referrer-policy": "no-referrer"})
    response.raw_headers += response_headers(visit_of(web).record)
    return response
