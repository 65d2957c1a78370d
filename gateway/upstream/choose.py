"""Which transport a provider gets, by its base URL, its `http:` settings and the proxy variables of the environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.config import Http
from gateway.upstream.pool import Pool
from gateway.upstream.tls import context, default_context
from gateway.upstream.transport import Transport, Url


def choose(http: Http, base_url: str, env: Mapping[str, str]) -> Transport:
    """Our pool, or httpx's transport where a proxy, HTTP/2 or a client certificate is needed; what a `mock://` or `local://` URL stands for.

    A proxy of the settings always holds; one of the environment (HTTPS_PROXY, HTTP_PROXY,
    ALL_PROXY, in either case) holds unless NO_PROXY names the host or it is this machine.
    ValueError where the proxy is no http(s) URL or a certificate cannot be used.
    """
    if base_url.startswith("mock://"):
        from gateway.upstream.mock import Mock  # with the demo model: for who asks for it

        return Mock(base_url)
    if base_url.startswith("local://"):
        from gateway.upstream.local import Local  # the same

        return Local()
    url = Url.parse(base_url)
    proxy = http.proxy or env_proxy(url, env)
    if not proxy and not http.http2 and not http.cert:
        return Pool(tls=default_context() if url.scheme == "https" else None)
    return _httpx(http, _checked(proxy) if proxy else None)


def _httpx(http: Http, proxy: str | None) -> Transport:
    import httpx  # takes a quarter of the start-up time, and most configs never need it

    from gateway.upstream.httpx_transport import HttpxTransport

    try:
        tls = context(http.cert)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"the client certificate cannot be used: {error.strerror or type(error).__name__}") from None
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0)
    return HttpxTransport(httpx.AsyncHTTPTransport(verify=tls, http2=http.http2, limits=limits, proxy=proxy, trust_env=False))


def _checked(proxy: str) -> str:
    """The proxy's URL; one without a scheme is http, as curl reads it. Its text is never shown: it may hold a password."""
    text = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError("a proxy must be http://HOST:PORT or https://HOST:PORT")
    return text


def env_proxy(url: Url, env: Mapping[str, str]) -> str | None:
    """The proxy that the environment asks for, None where there is none for this URL."""
    if _loopback(url.host) or _excluded(url, env.get("no_proxy") or env.get("NO_PROXY") or ""):
        return None
    for name in (f"{url.scheme}_proxy", "all_proxy"):
        # In a CGI process HTTP_PROXY is the client's `Proxy:` header, not a setting (httpoxy, CVE-2016-5385).
        upper = "" if name == "http_proxy" and "REQUEST_METHOD" in env else env.get(name.upper())
        if found := env.get(name) or upper:
            return found
    return None


def _loopback(host: str) -> bool:
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _excluded(url: Url, no_proxy: str) -> bool:
    return any(_matches(url, entry) for entry in (part.strip().lower() for part in no_proxy.split(",")) if entry)


def _matches(url: Url, entry: str) -> bool:
    """`*`, a name with all below it (a leading dot or `*.` is the same), an address or a network; a port if it has one."""
    if entry == "*":
        return True
    host = url.host.rstrip(".")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit():
        if int(port) != url.port:
            return False
        entry = name.strip("[]")
    entry = entry.removeprefix("*").lstrip(".")
    return host == entry or host.endswith(f".{entry}")
