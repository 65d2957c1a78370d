"""The scalar kinds: what a duration, a size, a secret, a URL may look like.

Each converter takes a text and raises ValueError with the words that follow the value in
the fault; it never repeats the value itself, which may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gateway.config.fields import FilePath, Json, Scalar, suggest
from gateway.config.values import Secret

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
COUNTS = {"": 1, "k": 10**3, "M": 10**6}
TEN_YEARS = 3650 * 86400.0

_NUMBER = r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,9})?"
_DURATION = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_SIZE = re.compile(rf"({_NUMBER})({'|'.join(SIZES)})")
_COUNT = re.compile(rf"({_NUMBER})(k|M|)")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_REAL = re.compile(_NUMBER)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_-]+)*\.?")


def duration(text: str) -> float:
    """Seconds of `500ms`, `5s`, `10m`, `1h`, `30d`; `0` needs no unit."""
    match = _DURATION.fullmatch(text)
    if match is None and text != "0":
        raise ValueError("is not a duration such as 500ms, 5s, 10m, 1h or 30d")
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if seconds > TEN_YEARS:
        raise ValueError("is longer than ten years")
    return seconds


def show_duration(seconds: Any) -> str:
    if seconds is None:
        return ""
    unit = next((u for u in ("d", "h", "m", "s") if seconds >= UNITS[u] and seconds % UNITS[u] == 0), "ms" if seconds < 1 else "s")
    shown = f"{seconds / UNITS[unit]:.6f}".rstrip("0").rstrip(".")
    return "0" if seconds == 0 else f"{shown}{unit}"


def size(text: str) -> int:
    """Bytes of `32MiB`, `64KiB`, `10MB`, `512B`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("is not a size such as 64KiB, 32MiB or 1GiB")
    return int(float(match[1]) * SIZES[match[2]])


def show_size(count: Any) -> str:
    unit = next(u for u in ("GiB", "MiB", "KiB", "B") if count % SIZES[u] == 0)
    return f"{count // SIZES[unit]}{unit}"


def count(text: str) -> int:
    """A whole number, also `200k` or `2M`."""
    match = _COUNT.fullmatch(text)
    value = float(match[1]) * COUNTS[match[2]] if match else 0.5
    if value != int(value):
        raise ValueError("is not a count such as 600, 200k or 2M")
    return int(value)


def show_count(value: Any) -> str:
    if value is None:
        return ""
    suffix = "M" if value and value % 10**6 == 0 else "k" if value and value % 1000 == 0 else ""
    return f"{value // COUNTS[suffix]}{suffix}"


def integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("is not a whole number")
    return int(text)


def amount(text: str) -> float:
    if not _REAL.fullmatch(text):
        raise ValueError("is not a number of 0 or more")
    return float(text)


def boolean(text: str) -> bool:
    low = text.lower()
    if low not in ("true", "false", "yes", "no", "on", "off"):
        raise ValueError("is neither true nor false")
    return low in ("true", "yes", "on")


def day(text: str) -> date:
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a date such as 2027-01-31") from None


def secret(text: str) -> Secret:
    """A key as it can stand in a header: visible ASCII, no blanks."""
    if not text:
        raise ValueError("is empty")
    if not all("!" <= c <= "~" for c in text):
        raise ValueError("holds a blank, a line break or a character outside ASCII")
    return Secret(text)


def name(text: str) -> str:
    """A name that may stand in a header: letters, digits, dot, hyphen, underscore."""
    if not _NAME.fullmatch(text):
        raise ValueError("is not a name: letters, digits, . _ and -, at most 64 of them")
    return text


def model_name(text: str) -> str:
    if not text or len(text) > 200 or not all("!" <= c <= "~" for c in text):
        raise ValueError("is not a model's name: visible ASCII characters, at most 200")
    return text


def host(text: str) -> str:
    """A host name or an IP address, without port."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        if not _HOST.fullmatch(bare) or len(bare) > 253:
            raise ValueError("is not a host name or address") from None
    return bare


def host_port(text: str) -> str:
    """A host as a Host header has it: with or without a port."""
    bare, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in bare.strip("[]") and not bare.startswith("[")):
        host(text)
    elif not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("is not a host or host:port")
    else:
        host(bare)
    return text.lower()


def origin(text: str) -> str:
    """`*`, or the origin of a web page: scheme://host[:port]."""
    if text != "*":
        parts = _url(text, ("http", "https"))
        if parts.path or parts.query:
            raise ValueError("is not an origin such as https://app.example.com")
    return text


def base_url(text: str) -> str:
    """http(s)://host[:port][/path], mock://[?knobs] or local://; a slash at the end of a path is dropped."""
    parts = _url(text, ("http", "https", "mock", "local"))
    if parts.scheme == "mock" or (parts.scheme == "local" and not parts.query):
        return text
    if parts.query or "?" in text:
        raise ValueError("may not have a query; paths are appended to it")
    if parts.path.rstrip("/").endswith(("/chat/completions", "/responses", "/messages", "/completions")):
        raise ValueError("names an endpoint; give the part before it, paths are appended")
    return text.rstrip("/")


def url(text: str) -> str:
    """http(s)://host[:port][/path][?query]."""
    _url(text, ("http", "https"))
    return text


def is_plain(address: str) -> bool:
    """The URL sends what it carries unencrypted to another machine."""
    parts = urlsplit(address)
    if parts.scheme != "http":
        return False
    where = parts.hostname or ""
    try:
        return not ipaddress.ip_address(where).is_loopback
    except ValueError:
        return where != "localhost" and not where.endswith(".localhost")


def _url(text: str, schemes: tuple[str, ...]) -> SplitResult:
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("is not a URL: it holds a blank, a backslash or a character outside ASCII")
    try:
        parts = urlsplit(text)
        good_port = parts.port != 0
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in schemes or "://" not in text:
        raise ValueError(f"is not a URL that begins with {' or '.join(f'{s}://' for s in schemes)}")
    if "@" in parts.netloc:
        raise ValueError("may not hold a user or password")
    if "#" in text:
        raise ValueError("may not have a fragment (#)")
    if parts.scheme in ("mock", "local"):
        parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100)
        return parts
    if not parts.hostname or not good_port:
        raise ValueError("names no host" if not parts.hostname else "has no usable port")
    try:
        host(parts.hostname)
    except ValueError:
        raise ValueError("names no usable host") from None
    return parts


def proxy(text: str) -> str:
    """http(s)://[user:password@]host:port."""
    parts = urlsplit(text) if text.isascii() and text.isprintable() else SplitResult("", "", "", "", "")
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("is not a proxy such as http://host:3128")
    return text


def address(*schemes: str) -> Callable[[str], str]:
    """A converter for URLs of stores, which may hold a password."""

    def convert(text: str) -> str:
        if not text.isprintable() or not text.startswith(tuple(f"{s}://" for s in schemes)):
            raise ValueError(f"does not begin with {' or '.join(f'{s}://' for s in schemes)}")
        return text

    return convert


def store(text: str) -> str:
    """The URL of a store: a file of SQLite, its memory, or PostgreSQL."""
    address("sqlite", "postgresql", "postgres")(text)
    scheme, _, rest = text.partition("://")
    if scheme == "sqlite" and rest and (not rest.startswith("/") or any(c in rest for c in "?#")):
        raise ValueError("is not sqlite:///FILE, sqlite:////ABSOLUTE/FILE or sqlite:// (in memory), without parameters")
    return text


FRAMING = ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "proxy-connection", "expect")
"""headers that the transport alone sets; a wrong one splits requests or goes to another host"""


def header_name(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError("is not a header's name")
    if text.lower() in FRAMING:
        raise ValueError("is set by the transport and cannot be given")
    return text


def header_value(text: str) -> str:
    if not all(" " <= c <= "~" or c == "\t" for c in text) or text != text.strip():
        raise ValueError("holds a line break, a character outside ASCII or a blank at an end")
    return text


def words(*known: str) -> Scalar:
    """One of a few words."""

    def convert(text: str) -> str:
        if text not in known:
            raise ValueError(f"is none of {', '.join(known)}{suggest(text, known)}")
        return text

    return Scalar("word", convert, {"enum": [*known, *(value for word, value in (("off", False), ("on", True)) if word in known)]})  # as YAML 1.1 reads them


def within(kind: Scalar, least: float, most: float = float("inf"), *, above: bool = False) -> Scalar:
    """The same kind with bounds. `above`: the least value itself is excluded."""

    def convert(text: str) -> Any:
        value = kind.convert(text)
        if value < least or value > most or (above and value == least):
            low = f"more than {kind.to_text(least)}" if above else f"at least {kind.to_text(least)}"
            raise ValueError(f"is out of range: {low}" + ("" if most == float("inf") else f", at most {kind.to_text(most)}"))
        return value

    return Scalar(kind.name, convert, kind.json, kind.secret, kind.to_text)


def _pattern(regex: Iterable[str] | re.Pattern[str]) -> dict[str, Any]:
    source = regex.pattern if isinstance(regex, re.Pattern) else "|".join(regex)
    return {"type": "string", "pattern": f"^(?:{source})$"}


DURATION = within(Scalar("duration", duration, {"anyOf": [_pattern(_DURATION), {"const": 0}]}, to_text=show_duration), 0, above=True)
DURATION_OR_ZERO = Scalar("duration", duration, {"anyOf": [_pattern(_DURATION), {"const": 0}]}, to_text=show_duration)
SIZE = within(Scalar("size", size, _pattern(_SIZE), to_text=show_size), 1)
COUNT = within(Scalar("count", count, {"anyOf": [{"type": "integer", "minimum": 0}, _pattern(_COUNT)]}, to_text=show_count), 1)
WHOLE = Scalar("number", integer, {"type": "integer"})
AMOUNT = Scalar("number", amount, {"type": "number", "minimum": 0})
BOOLEAN = Scalar("true/false", boolean, {"enum": [True, False, "on", "off", "yes", "no"]})
DATE = Scalar("date", day, _pattern(_DATE))
SECRET = Scalar("secret", secret, {"type": ["string", "number"]}, secret=True)
NAME = Scalar("name", name, _pattern(_NAME))
MODEL_NAME = Scalar("model", model_name, {"type": ["string", "number"]})
HOST = Scalar("host", host, {"type": "string"})
HOST_PORT = Scalar("host", host_port, {"type": "string"})
ORIGIN = Scalar("origin", origin, {"type": "string"})
BASE_URL = Scalar("URL", base_url, {"type": "string", "pattern": "^(https?|mock|local)://"}, secret=True)
URL = Scalar("URL", url, {"type": "string", "pattern": "^https?://"}, secret=True)
PROXY = Scalar("URL", proxy, {"type": "string", "pattern": "^https?://"}, secret=True)
STORE = Scalar("URL", store, {"type": "string"}, secret=True)
SHARED = Scalar("URL", address("redis", "rediss", "valkey", "valkeys"), {"type": "string"}, secret=True)
HEADER_VALUE = Scalar("text", header_value, {"type": ["string", "number", "boolean"]}, secret=True)
PATH = FilePath()
JSON = Json()
