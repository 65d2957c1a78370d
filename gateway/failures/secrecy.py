"""Texts of others made safe to show: no secrets, no control characters, not endless."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import quote as percent
from urllib.parse import quote_plus

_MASK = "***"
_LIMIT = 300
_SHORTEST = 4  # a shorter "secret" would mask ordinary words and so betray itself
_PATTERNS = re.compile(
    r"""
    (?P<keep>
        \b(?:bearer|basic)\s+(?=\S*[\d._\-]|\S{16})                     # an Authorization header
      | [?&;](?:api[_-]?key|key|access_?token|token|sig|signature|x-amz-signature)=  # credentials in a URL
      | \b(?:api[ _-]?key|x-api-key|token|secret|password)(?:\sprovided)?\s*[:=]\s*["'`]?(?=\S*\d|\S{16})
      | ://(?=[^\s/@]+@)                                                 # user:password@host
    )
    [^\s"'`,;&<>)\]}@]{4,}
  | \b(?:sk|pk|rk|gsk|xai|hf|ghp|r8|tvly|nvapi|pplx|vk)[-_][\w\-]{8,}     # keys that name their vendor
  | \bAIza[\w\-]{16,}
  | \bAKIA[0-9A-Z]{12,}
  | \beyJ[\w\-]{6,}\.[\w\-]{4,}\.[\w\-]*                                   # a JSON web token
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def redact(text: str, secrets: Sequence[str]) -> str:
    """The text without the secrets (as they are, in base64, URL-encoded) and without what looks like one.

    Control characters, direction marks and lone surrogates come out escaped, so that the text can go into any log.
    """
    known = _known(tuple(secrets))
    if known is not None:
        text = known.sub(_MASK, text)
    text = _PATTERNS.sub(lambda found: (found["keep"] or "") + _MASK, text)
    return _UNSAFE.sub(_escaped, text)


def quote(text: str, secrets: Sequence[str]) -> str:
    """The text redacted, on one line and at most 300 characters long."""
    safe = redact(" ".join(text.split()), secrets)
    return safe if len(safe) <= _LIMIT else safe[: _LIMIT - 1] + "…"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


@lru_cache(maxsize=64)
def _known(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """One pattern for all forms of all secrets, the longest first."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    if not forms:
        return None
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)), re.IGNORECASE)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield percent(secret, safe="")
    yield quote_plus(secret)
    raw = secret.encode("utf-8", "surrogatepass")
    for shift in range(3):  # inside a longer text the same bytes look different at each of the three alignments
        inner = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        inner = inner[(0, 2, 3)[shift] : len(inner) - (1 if (shift + len(raw)) % 3 else 0)]
        if len(inner) >= 8:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
