"""What one attempt sends, and what is needed to read its answer."""

from __future__ import annotations

import msgspec

from gateway.adapters import Context, Hooks, Settings
from gateway.chat import Json
from gateway.upstream.transport import Headers, Url

RELAYED = (
    "embeddings",
    "moderations",
    "images/generations",
    "images/edits",
    "images/variations",
    "audio/speech",
    "audio/transcriptions",
    "audio/translations",
    "rerank",
    "messages/count_tokens",
)
"""Endpoints that are passed on rather than translated."""

PATHS = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "messages": "/messages",
    "completions": "/completions",
    **{name: f"/{name}" for name in RELAYED},
}
"""Where each endpoint, or the endpoint of each dialect, is below a provider's base URL."""

INSIDE = "inside"
"""The host of what is answered on this machine without an address: mock:// and local://."""


class Prepared(msgspec.Struct, frozen=True):
    """One request, ready to be sent.

    body            the JSON body; {} for one that is not JSON
    data            the body's bytes as they are sent
    options         the provider's options as they hold for this target
    client_dialect  what the client speaks; `context.dialect` is what the provider is spoken to in
    client          the client's own body, where an answer in its dialect has to repeat parts of it
    include_usage   the client wants a usage chunk at the end of its stream
    empty_ok        an answer without content is an answer
    """

    url: Url
    headers: Headers
    body: Json
    data: bytes
    hooks: Hooks
    context: Context
    options: Settings
    client_dialect: str
    client: Json | None
    include_usage: bool
    empty_ok: bool

    @property
    def shown_url(self) -> str:
        """The URL for people."""
        if self.url.host == INSIDE:
            return f"{self.context.provider}:{self.url.target.decode('ascii')}"
        return f"{self.url.scheme}://{self.url.authority.decode('ascii')}{self.url.target.decode('ascii')}"
