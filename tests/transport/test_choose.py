"""Which transport a provider gets."""

from __future__ import annotations

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from gateway.config import Http
from gateway.upstream.choose import choose, env_proxy
from gateway.upstream.httpx_transport import HttpxTransport
from gateway.upstream.pool import Pool
from gateway.upstream.transport import Url

PROXY = {"HTTPS_PROXY": "http://proxy.example:3128"}


def test_the_pool_serves_the_ordinary_case():
    assert isinstance(choose(Http(), "https://api.example/v1", {}), Pool)


@pytest.mark.parametrize("http", [Http(http2=True), Http(proxy="http://proxy.example:3128"), Http(proxy="proxy.example:3128")])
def test_httpx_serves_what_the_pool_cannot(http):
    assert isinstance(choose(http, "https://api.example/v1", {}), HttpxTransport)


def test_a_client_certificate_is_loaded_at_once(tmp_path):
    cert = trustme.CA().issue_cert("client.example")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    cert.cert_chain_pems[0].write_to_path(chain)
    cert.private_key_pem.write_to_path(key)
    assert isinstance(choose(Http(cert=(chain, key)), "https://api.example", {}), HttpxTransport)
    with pytest.raises(ValueError, match="client certificate cannot be used"):
        choose(Http(cert=(tmp_path / "missing.pem",)), "https://api.example", {})


def test_an_encrypted_key_is_an_error_and_no_question(tmp_path):
    cert = trustme.CA().issue_cert("client.example")
    key = serialization.load_pem_private_key(cert.private_key_pem.bytes(), None)
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"pw"))
    (tmp_path / "key.pem").write_bytes(locked)
    cert.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    with pytest.raises(ValueError, match="client certificate cannot be used"):
        choose(Http(cert=(tmp_path / "chain.pem", tmp_path / "key.pem")), "https://api.example", {})


def test_the_environments_proxy_is_used():
    assert isinstance(choose(Http(), "https://api.example", PROXY), HttpxTransport)


@pytest.mark.parametrize("proxy", ["socks5://h:1", "ftp://h", "http://", "http://h:x", "http://u:secret@h:99999"])
def test_a_proxy_that_is_none_is_refused_without_being_shown(proxy):
    with pytest.raises(ValueError, match="a proxy must be") as caught:
        choose(Http(proxy=proxy), "https://api.example", {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("https://h.example", {"HTTPS_PROXY": "a"}, "a"),
        ("https://h.example", {"https_proxy": "b", "HTTPS_PROXY": "a"}, "b"),
        ("https://h.example", {"HTTP_PROXY": "a"}, None),
        ("http://h.example", {"HTTP_PROXY": "a"}, "a"),
        ("http://h.example", {"HTTP_PROXY": "a", "REQUEST_METHOD": "GET"}, None),
        ("http://h.example", {"http_proxy": "a", "REQUEST_METHOD": "GET"}, "a"),
        ("http://h.example", {"ALL_PROXY": "c"}, "c"),
        ("https://h.example", {"all_proxy": "c", "HTTPS_PROXY": "a"}, "a"),
        ("https://h.example", {"HTTPS_PROXY": ""}, None),
        ("http://127.0.0.1:11434", {"HTTP_PROXY": "a"}, None),
        ("http://127.8.8.8", {"HTTP_PROXY": "a"}, None),
        ("http://localhost:11434", {"ALL_PROXY": "a"}, None),
        ("http://box.localhost", {"ALL_PROXY": "a"}, None),
        ("http://[::1]:11434", {"HTTP_PROXY": "a"}, None),
    ],
)
def test_proxy_variables(url, env, proxy):
    assert env_proxy(Url.parse(url), env) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("*", "https://h.example", True),
        ("h.example", "https://h.example", True),
        ("example", "https://h.example", True),
        (".example", "https://h.example", True),
        ("*.example", "https://h.example", True),
        ("H.Example , other", "https://h.example", True),
        ("ample", "https://h.example", False),
        ("h.example.org", "https://h.example", False),
        ("h.example:443", "https://h.example", True),
        ("h.example:8443", "https://h.example", False),
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("10.1.2.3:443", "https://10.1.2.3", True),
        ("2001:db8::/32", "https://[2001:db8::5]", True),
        ("[2001:db8::5]", "https://[2001:db8::5]", True),
        ("", "https://h.example", False),
        (" , ,", "https://h.example", False),
    ],
)
def test_no_proxy(no_proxy, url, direct):
    assert (env_proxy(Url.parse(url), {**PROXY, "NO_PROXY": no_proxy}) is None) is direct
    assert (env_proxy(Url.parse(url), {**PROXY, "no_proxy": no_proxy}) is None) is direct
