"""The pool under httpx's client, and httpx's transports under the gateway."""

from __future__ import annotations

import asyncio
import ssl
import time
import zlib

import faults
import h2.config
import h2.connection
import h2.events
import httpx
import pytest
import respx
import trustme
from conftest import Client, read_all, serving, within
from faults import FaultServer

from gateway.config import Http
from gateway.upstream.choose import choose
from gateway.upstream.httpx_transport import HttpxTransport, PoolTransport
from gateway.upstream.transport import TransportError

# PoolTransport


@pytest.fixture
async def browser():
    async with httpx.AsyncClient(transport=PoolTransport(), timeout=2) as client:
        yield client


async def test_httpx_asks_through_the_pool_and_reuses_its_connection(browser, server):
    for _ in range(3):
        answer = await browser.post(server.url("ok", "/v1?a=b"), json={"model": "m"})
        assert answer.json()["id"] == "c1"
    assert server.connections == 1
    assert server.requests[0].path == "/ok/v1?a=b"
    assert server.requests[0].body == b'{"model":"m"}'
    assert server.requests[0].header(b"accept-encoding") == b"identity"


async def test_httpx_streams_through_the_pool(browser, server):
    async with browser.stream("POST", server.url("ok_stream"), json={}) as answer:
        assert (await answer.aread()).endswith(faults.DONE)
    async with browser.stream("POST", server.url("stall_mid_stream"), json={}) as answer:
        async for piece in answer.aiter_bytes():
            assert piece
            break
    await within(0.2, lambda: server.gone)


@pytest.mark.parametrize("name", ["gzip_ok", "zstd_unasked", "deflate_raw"])
async def test_httpx_gets_a_body_that_is_decoded_once(browser, server, name):
    assert (await browser.get(server.url(name))).content == faults.JSON_BODY


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("garbage", httpx.RemoteProtocolError),
        ("gzip_bomb", httpx.RemoteProtocolError),
        ("close_before_headers", httpx.ReadError),
        ("close_mid_chunked", httpx.ReadError),
        ("slow_headers", httpx.ReadTimeout),
        ("stall_mid_stream", httpx.ReadTimeout),
    ],
)
async def test_httpx_gets_its_own_errors(browser, server, name, error):
    with pytest.raises(error):
        await browser.post(server.url(name), json={}, timeout=httpx.Timeout(0.1, connect=0.1))


async def test_httpx_gets_connect_errors(browser):
    with pytest.raises(httpx.ConnectError, match="refused"):
        await browser.get(faults.refused())
    with pytest.raises(httpx.UnsupportedProtocol):
        await browser.get("ftp://127.0.0.1/")


async def test_httpx_without_a_timeout_waits_for_ever(browser, server):
    assert (await browser.get(server.url("ok"), timeout=None)).content == faults.JSON_BODY


async def test_httpx_may_follow_redirects_itself(browser, server):
    assert (await browser.get(server.url("s302_internal"))).status_code == 302


# HttpxTransport


def mocked(handler) -> Client:
    return Client(HttpxTransport(httpx.MockTransport(handler)))


async def test_a_mock_transport_answers():
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(429, json={"error": {}}, headers={"Retry-After": "3"})

    given = [(b"Authorization", b"Bearer k"), (b"Host", b"evil"), (b"content-length", b"9")]
    exchange = await mocked(handler).open("https://api.example/v1/chat?x=%20", b'{"a":1}', headers=given)
    assert (exchange.status, exchange.header(b"retry-after"), await read_all(exchange)) == (429, b"3", b'{"error":{}}')
    await exchange.aclose()
    assert (str(seen[0].url), seen[0].content) == ("https://api.example/v1/chat?x=%20", b'{"a":1}')
    assert seen[0].headers.multi_items() == [("authorization", "Bearer k"), ("host", "api.example"), ("accept-encoding", "identity"), ("content-length", "7")]


async def test_respx_answers():
    router = respx.MockRouter()
    router.post("https://api.example/v1").respond(200, json={"ok": True})
    assert await Client(HttpxTransport(httpx.MockTransport(router.async_handler))).fetch("https://api.example/v1") == (200, b'{"ok":true}')


async def test_a_mocked_stream_comes_piece_by_piece_and_is_closed():
    closed = []

    class Pieces(httpx.AsyncByteStream):
        async def __aiter__(self):
            for piece in (b"one", b"", b"two"):
                yield piece

        async def aclose(self):
            closed.append(True)

    client = mocked(lambda request: httpx.Response(200, stream=Pieces()))
    exchange = await client.open("http://api.example/")
    deadline = asyncio.get_running_loop().time() + 1
    assert [await exchange.read(deadline) for _ in range(4)] == [b"one", b"two", None, None]
    await exchange.aclose()
    await exchange.aclose()
    assert closed


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectError("secret"), "connect"),
        (httpx.ConnectTimeout("secret"), "connect"),
        (httpx.PoolTimeout("secret"), "connect"),
        (httpx.ProxyError("secret"), "connect"),
        (httpx.ReadTimeout("secret"), "timeout"),
        (httpx.ReadError("secret"), "cut"),
        (httpx.WriteError("secret"), "cut"),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), "cut"),
        (httpx.RemoteProtocolError("secret"), "protocol"),
        (httpx.LocalProtocolError("secret"), "protocol"),
        (ExceptionGroup("secret", [OSError()]), "protocol"),
        (ValueError("secret"), "protocol"),
    ],
)
async def test_httpx_errors_become_ours_and_their_texts_stay_inside(error, kind):
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(TransportError) as caught:
        await mocked(handler).open("https://api.example/?key=secret")
    assert caught.value.kind == kind
    assert "secret" not in str(caught.value)
    assert "api.example:443" in str(caught.value)


async def test_a_body_that_ends_early_or_packed_is_noticed():
    packed = zlib.compress(faults.JSON_BODY)
    client = mocked(lambda request: httpx.Response(200, stream=httpx.ByteStream(packed), headers={"content-encoding": "deflate"}))
    assert await client.fetch("http://api.example/") == (200, faults.JSON_BODY)
    client = mocked(lambda request: httpx.Response(200, stream=httpx.ByteStream(packed[:-5]), headers={"content-encoding": "deflate"}))
    with pytest.raises(TransportError) as caught:
        await client.fetch("http://api.example/")
    assert caught.value.kind == "cut"
    client = mocked(lambda request: httpx.Response(200, stream=httpx.ByteStream(b"x"), headers={"content-encoding": "br"}))
    with pytest.raises(TransportError, match="'br'"):
        await client.open("http://api.example/")


# httpx's own transport over sockets


@pytest.fixture
async def wire():
    transport = HttpxTransport(httpx.AsyncHTTPTransport())
    yield Client(transport)
    await transport.aclose()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("garbage", "protocol"),
        ("gzip_bomb", "protocol"),
        ("gzip_trunc", "cut"),
        ("close_before_headers", "cut"),
        ("close_mid_chunked", "cut"),
        ("content_length_short", "cut"),
        ("rst_mid_stream", "cut"),
        ("slow_headers", "timeout"),
        ("drip_headers", "timeout"),
        ("stall_mid_stream", "timeout"),
        ("drip_body_forever", "timeout"),
        ("br_unasked", "protocol"),
    ],
)
async def test_faults_have_the_same_kinds_as_with_the_pool(wire, server, name, kind):
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        await wire.fetch(server.url(name), seconds=0.25)
    assert caught.value.kind == kind
    assert time.monotonic() - began < 1
    assert len(server.requests) == 1


async def test_refused_is_told_in_the_systems_words(wire):
    with pytest.raises(TransportError, match=r"connection refused|no connection") as caught:
        await wire.open(faults.refused())
    assert (caught.value.kind, caught.value.sent) == ("connect", False)


async def test_sound_answers_pass_and_share_a_connection(wire, server):
    for name in ("ok", "gzip_ok", "zstd_unasked", "ok"):
        assert await wire.fetch(server.url(name)) == (200, faults.JSON_BODY)
    assert server.connections == 1


async def test_100_stale_connections_lose_and_double_nothing(wire):
    async with FaultServer(close_after=1) as server:
        for _ in range(100):
            assert await wire.fetch(server.url("ok")) == (200, faults.JSON_BODY)
        assert len(server.requests) == 100


async def test_a_fresh_connection_that_breaks_is_not_asked_again(wire, server):
    with pytest.raises(TransportError) as caught:
        await wire.open(server.url("close_before_headers"))
    assert (caught.value.kind, caught.value.reused, len(server.requests)) == ("cut", False, 1)


async def test_a_deadline_that_is_over_ends_an_answer_that_is_always_ready():
    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):
            while True:
                yield b": comment\n\n"

    exchange = await mocked(lambda request: httpx.Response(200, stream=Endless())).open("http://api.example/")
    with pytest.raises(TransportError) as caught:
        await read_all(exchange, 0.05)
    assert caught.value.kind == "timeout"
    await exchange.aclose()


async def test_a_cancelled_request_ends_at_the_server(wire, server):
    for name in ("slow_headers", "stall_mid_stream"):
        task = asyncio.create_task(wire.fetch(server.url(name)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await within(0.2, lambda: len(server.gone) == 2)


async def test_an_http_proxy_is_asked_with_the_whole_url():
    seen = []

    async def proxy(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(2)
        writer.write(faults.plain(b"{}"))
        await reader.read()

    async with serving(proxy) as url:
        transport = choose(Http(), "http://api.example/v1", {"HTTP_PROXY": url.replace("//", "//user:pass@")})
        assert await Client(transport).fetch("http://api.example/v1") == (200, b"{}")
        await transport.aclose()
    assert seen[0].startswith(b"POST http://api.example/v1 HTTP/1.1\r\n")
    assert b"proxy-authorization: basic dxnlcjpwyxnz" in seen[0].lower()


async def test_a_proxy_that_refuses_the_tunnel_is_a_connect_error():
    async def proxy(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async with serving(proxy) as url:
        transport = choose(Http(proxy=url), "https://api.example/v1", {})
        with pytest.raises(TransportError, match="proxy") as caught:
            await Client(transport).open("https://api.example/v1")
        assert (caught.value.kind, caught.value.sent) == ("connect", False)
        await transport.aclose()


def secure_context(authority: trustme.CA, *, client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if client:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_client_certificate_is_shown(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair = authority.issue_cert("client.example")
    pair.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with FaultServer(tls=secure_context(authority, client=True)) as server:
        transport = choose(Http(cert=(tmp_path / "client.pem",)), server.url("ok"), {})
        assert await Client(transport).fetch(server.url("ok")) == (200, faults.JSON_BODY)
        await transport.aclose()


async def test_http2_is_spoken_where_it_is_chosen(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = secure_context(authority)
    context.set_alpn_protocols(["h2"])
    server = await asyncio.get_running_loop().create_server(Http2Server, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    transport = choose(Http(http2=True), url, {})
    for _ in range(2):
        assert await Client(transport).fetch(url) == (200, faults.JSON_BODY)
    await transport.aclose()
    server.close()
    await asyncio.sleep(0.01)


class Http2Server(asyncio.Protocol):
    def connection_made(self, transport) -> None:
        self.transport = transport
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.state.initiate_connection()
        transport.write(self.state.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.state.receive_data(data):
            if isinstance(event, h2.events.StreamEnded):
                self.state.send_headers(event.stream_id, [(":status", "200")])
                self.state.send_data(event.stream_id, faults.JSON_BODY, end_stream=True)
        self.transport.write(self.state.data_to_send())
