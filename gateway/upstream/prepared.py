"""What one attempt sends, and what is needed to read its answer."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.adapters import Context, Hooks
from gateway.chat import Json
from gateway.upstream.transport import Headers, Url

PATHS = {"chat": "/chat/completions"}
"""Where each endpoint is, below a provider's base URL."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One request, ready to be sent.

    include_usage  the client wants a usage chunk at the end of its stream
    empty_ok       an answer without content is an answer
    """

    url: Url
    headers: Headers
    body: Json
    hooks: Hooks
    context: Context
    include_usage: bool
    empty_ok: bool

    @property
    def shown_url(self) -> str:
        """The URL for people."""
        return f"{self.url.scheme}://{self.url.authority.decode('ascii')}{self.url.target.decode('ascii')}"
