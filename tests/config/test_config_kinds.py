"""The scalar kinds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import kinds
from gateway.config.values import Secret


@pytest.mark.parametrize(
    ("convert", "text", "value"),
    [
        (kinds.duration, "500ms", 0.5),
        (kinds.duration, "5s", 5.0),
        (kinds.duration, "1.5s", 1.5),
        (kinds.duration, "10m", 600.0),
        (kinds.duration, "1h", 3600.0),
        (kinds.duration, "30d", 2_592_000.0),
        (kinds.duration, "0", 0.0),
        (kinds.size, "32MiB", 33_554_432),
        (kinds.size, "64KiB", 65_536),
        (kinds.size, "10MB", 10_000_000),
        (kinds.size, "512B", 512),
        (kinds.count, "600", 600),
        (kinds.count, "200k", 200_000),
        (kinds.count, "2M", 2_000_000),
        (kinds.count, "1.5k", 1500),
        (kinds.integer, "-3", -3),
        (kinds.amount, "0.27", 0.27),
        (kinds.boolean, "off", False),
        (kinds.boolean, "Yes", True),
        (kinds.host, "[::1]", "::1"),
        (kinds.host, "gateway.example.com", "gateway.example.com"),
        (kinds.host_port, "Example.com:8080", "example.com:8080"),
        (kinds.host_port, "[::1]:80", "[::1]:80"),
        (kinds.origin, "*", "*"),
        (kinds.origin, "https://app.example.com:8443", "https://app.example.com:8443"),
        (kinds.base_url, "https://api.example.com/v1/", "https://api.example.com/v1"),
        (kinds.base_url, "http://[::1]:9000", "http://[::1]:9000"),
        (kinds.base_url, "mock://?status=429", "mock://?status=429"),
        (kinds.base_url, "local://", "local://"),
        (kinds.base_url, "http://model_server:8000/v1", "http://model_server:8000/v1"),
        (kinds.proxy, "http://user:pass@proxy:3128", "http://user:pass@proxy:3128"),
        (kinds.header_value, "a b\tc", "a b\tc"),
        (kinds.secret, "sk-1", Secret("sk-1")),
    ],
)
def test_what_a_text_means(convert: Any, text: str, value: Any) -> None:
    assert convert(text) == value


@pytest.mark.parametrize(
    ("convert", "text"),
    [
        *((kinds.duration, t) for t in ("5", "05s", "5 s", "5S", "-5s", "1m30", "s", "1e3s", "9999999999d", "5sec", "٥s", "12:30:45")),
        *((kinds.size, t) for t in ("32", "32mib", "32M", "-1B", "1_000B", "MiB")),
        *((kinds.count, t) for t in ("017", "1_000", "1.5", "2m", "2K", "-1", "0x10", "", "1e3", "9" * 40)),
        *((kinds.integer, t) for t in ("017", "1.0", "+1", "1_0", "", "0x1F", "12:30")),
        *((kinds.amount, t) for t in ("-1", ".5", "nan", ".inf", "1,5")),
        *((kinds.boolean, t) for t in ("1", "y", "", "truee")),
        *((kinds.day, t) for t in ("2027-13-01", "20270101", "tomorrow", "2027-1-1")),
        *((kinds.secret, t) for t in ("", "a b", "a\n", "schlüssel")),
        *((kinds.name, t) for t in ("", "a/b", "a b", "-a", "ä", "a" * 65)),
        *((kinds.host, t) for t in ("", "a b", "http://a", "a:80", "a..b", "-a")),
        *((kinds.host_port, t) for t in ("a:x", "a:99999", "::1:80:", "")),
        *((kinds.origin, t) for t in ("example.com", "https://a.com/x", "https://a.com/", "null")),
        *(
            (kinds.base_url, t)
            for t in (
                "api.example.com",
                "ftp://a",
                "https://",
                "https:///v1",
                "https://a b",
                "https://user:pass@a.com",
                "https://a.com/v1?x=1",
                "https://a.com/v1#x",
                "https://a.com:99999",
                "https://a.com:x",
                "https://ä.com",
                "https://a.com/v1/chat/completions",
                "https://[::1",
                "https:/a.com",
                "https://a.com\\b",
                "file:///etc/passwd",
                "local://?x=1",
            )
        ),
        *((kinds.proxy, t) for t in ("proxy:3128", "socks5://a", "http://", "http://a:x", "http://a/path")),
        *((kinds.header_name, t) for t in ("", "a b", "Host", "content-length", "Transfer-Encoding", "connection", "a:", "ä")),
        *((kinds.header_value, t) for t in ("a\r\nb: c", "ä", " a", "a\x00")),
    ],
)
def test_what_is_refused(convert: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*(invalid literal|could not convert))"):
        convert(text)


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://api.example.com", True),
        ("http://10.0.0.1", True),
        ("http://ollama:11434", True),
        ("http://127.0.0.1:1", False),
        ("http://localhost", False),
        ("http://[::1]", False),
        ("https://api.example.com", False),
        ("mock://", False),
    ],
)
def test_what_is_sent_unencrypted_to_another_machine(url: str, plain: bool) -> None:
    assert kinds.is_plain(url) is plain


CONVERTERS = [c for c in vars(kinds).values() if callable(c) and getattr(c, "__module__", "") == kinds.__name__ and not isinstance(c, type)]
READERS = [c for c in CONVERTERS if c.__name__ in {"duration", "size", "count", "integer", "amount", "boolean", "day", "secret", "name", "model_name"}]
READERS += [kinds.host, kinds.host_port, kinds.origin, kinds.base_url, kinds.url, kinds.proxy, kinds.header_name, kinds.header_value]
READERS += [kinds.STORE.convert, kinds.words("off", "on").convert]


@given(st.text() | st.from_regex(r"(https?|mock)://[\[\]:@/?#a-z0-9.%]{0,20}"), st.sampled_from(READERS))
def test_a_converter_gives_a_value_or_a_value_error(text: str, convert: Any) -> None:
    try:
        convert(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either outcome is right, but a refusal says why


@given(st.integers(1, 3650 * 86400))
def test_a_shown_duration_reads_back(seconds: int) -> None:
    shown = kinds.show_duration(float(seconds))

    assert kinds.duration(shown) == seconds


@given(st.integers(1, 2**40))
def test_a_shown_size_or_count_reads_back(value: int) -> None:
    assert kinds.size(kinds.show_size(value)) == value
    assert kinds.count(kinds.show_count(value)) == value
