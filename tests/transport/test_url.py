"""Url.parse: the parts of an address, or a ValueError that does not repeat it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.upstream.transport import Url

PARTS = {
    "https://api.deepseek.com": ("https", "api.deepseek.com", 443, b"/", b"api.deepseek.com"),
    "http://LOCALHOST:8000/v1/chat": ("http", "localhost", 8000, b"/v1/chat", b"localhost:8000"),
    "http://h:80/": ("http", "h", 80, b"/", b"h"),
    "https://h:80/": ("https", "h", 80, b"/", b"h:80"),
    "http://[::1]:9000/a": ("http", "::1", 9000, b"/a", b"[::1]:9000"),
    "http://[2001:DB8:0::1]/": ("http", "2001:db8::1", 80, b"/", b"[2001:db8::1]"),
    "https://h/a?key=1&b=%20": ("https", "h", 443, b"/a?key=1&b=%20", b"h"),
    "https://h?x=1": ("https", "h", 443, b"/?x=1", b"h"),
    "https://h/a#fragment": ("https", "h", 443, b"/a", b"h"),
    "https://h/m/ü:generate": ("https", "h", 443, b"/m/%C3%BC:generate", b"h"),
    "https://bücher.example/": ("https", "xn--bcher-kva.example", 443, b"/", b"xn--bcher-kva.example"),
    "http://my_service:1/a/../b": ("http", "my_service", 1, b"/a/../b", b"my_service:1"),
    "https://api.example./": ("https", "api.example.", 443, b"/", b"api.example."),
}


@pytest.mark.parametrize("text", PARTS)
def test_the_parts_of_an_address(text):
    url = Url.parse(text)
    assert (url.scheme, url.host, url.port, url.target, url.authority) == PARTS[text]


@given(st.text(max_size=40).map(lambda tail: f"http://{tail}") | st.text(max_size=40))
@example("http://[::1")
@example("http://\u2100.example/")
@example("http://a%00b/")
@example("http://h/\ud800")
@example("http://h:\u0661/")
@example("http://[fe80::1%25a\xe9]/")
def test_any_text_is_a_clean_url_or_a_value_error(text):
    try:
        url = Url.parse(text)
    except ValueError:
        return
    assert re.fullmatch(rb"/[!-~]*|\?[!-~]*", url.target)
    assert re.fullmatch(rb"[!-~]+", url.authority)
    assert 0 < url.port < 65536


@given(
    st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,2}", fullmatch=True),
    st.integers(1, 65535),
    st.from_regex(r"(/[A-Za-z0-9._~:@!$&'()*+,;=%-]{0,9}){0,3}", fullmatch=True),
)
def test_a_plain_url_keeps_its_path_byte_for_byte(host, port, path):
    assert Url.parse(f"http://{host}:{port}{path}") == Url("http", host, port, (path or "/").encode())
