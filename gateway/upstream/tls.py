"""What https connections verify with, and what to say when that fails."""

from __future__ import annotations

import functools
import os
import ssl

import certifi


def context(cert: tuple[str | os.PathLike[str], ...] | None = None) -> ssl.SSLContext:
    """A client context that verifies names against the system's store, or certifi's where the system has none.

    `cert`: (certificate,) or (certificate, key), PEM files, shown to servers that ask.
    ALPN offers http/1.1. OSError or ssl.SSLError where a file cannot be used.
    """
    made = ssl.create_default_context()
    if not _system_store():
        made.load_verify_locations(cafile=certifi.where())
    made.set_alpn_protocols(["http/1.1"])
    if cert:
        # An empty password, because OpenSSL would ask the terminal for that of an encrypted key.
        made.load_cert_chain(cert[0], cert[1] if len(cert) > 1 else None, password="")
    return made


@functools.cache
def default_context() -> ssl.SSLContext:
    """The one context that all pools share: reading the store takes 10 to 30 ms."""
    return context()


def _system_store() -> bool:
    """Whether OpenSSL finds certificates where it looks (SSL_CERT_FILE and SSL_CERT_DIR count)."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return True
    try:
        return bool(paths.capath and os.listdir(paths.capath))
    except OSError:
        return False


def reason(error: BaseException) -> str:
    """Why a TLS connection failed, in words; never empty."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message or error.reason or 'verification failed'}"
    if isinstance(error, ssl.SSLError):
        what = (error.reason or "handshake failed").replace("_", " ").lower()
        hint = " (it does not speak TLS on this port)" if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE") else ""
        return f"TLS failed: {what}{hint}"
    return "it closed the connection during the TLS handshake"
