"""The pool over TLS, with a certificate authority made for the test."""

from __future__ import annotations

import asyncio
import ssl

import faults
import pytest
import trustme
from conftest import Client, read_all, serving, within
from faults import FaultServer

from gateway.upstream import tls
from gateway.upstream.pool import Pool
from gateway.upstream.transport import TransportError


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def secure(authority):
    """A TLS server for localhost and 127.0.0.1, what clients told it, and a client that trusts it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    names: list[str | None] = []
    context.sni_callback = lambda wire, name, _: names.append(name)
    trusting = tls.context()
    authority.configure_trust(trusting)
    pool = Pool(tls=trusting)
    async with FaultServer(tls=context) as server:
        yield server, Client(pool), names
        await pool.aclose()


async def test_requests_share_one_verified_connection(secure):
    server, client, names = secure
    for _ in range(3):
        assert await client.fetch(server.url("ok").replace("127.0.0.1", "localhost")) == (200, faults.JSON_BODY)
    assert server.connections == 1
    assert names == ["localhost"]


async def test_an_address_is_verified_too(secure):
    server, client, _ = secure
    assert await client.fetch(server.url("ok_stream")) == (200, faults.event("hel") + faults.event("lo") + faults.event("", True) + faults.DONE)


async def test_only_http11_is_negotiated(secure):
    server, client, _ = secure
    await client.fetch(server.url("ok"))
    assert server.requests[0].writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_64_mib_pass(secure):
    server, client, _ = secure
    _, body = await client.fetch(server.url("one_chunk_64m"), seconds=20)
    assert len(body) == 64 << 20


async def test_a_large_request_passes(secure):
    server, client, _ = secure
    await client.fetch(server.url("ok"), b"a" * 1_000_000)
    assert len(server.requests[0].body) == 1_000_000


@pytest.mark.parametrize("name", ["content_length_short", "close_mid_chunked", "rst_mid_stream"])
async def test_a_cut_is_a_cut(secure, name):
    server, client, _ = secure
    with pytest.raises(TransportError) as caught:
        await client.fetch(server.url(name))
    assert caught.value.kind == "cut"


async def test_a_cancelled_read_ends_at_the_server(secure):
    server, client, _ = secure
    exchange = await client.open(server.url("stall_mid_stream"))
    task = asyncio.create_task(read_all(exchange, 5))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await exchange.aclose()
    await within(0.2, lambda: server.gone)


async def test_100_stale_connections_lose_and_double_nothing(secure):
    server, client, _ = secure
    server.close_after = 1
    for _ in range(100):
        assert await client.fetch(server.url("ok")) == (200, faults.JSON_BODY)
    assert len(server.requests) == 100


async def test_an_unknown_authority_is_refused_in_words(secure):
    server, _, _ = secure
    pool = Pool()
    with pytest.raises(TransportError, match=r"certificate was not accepted: .*(unable to get|self-signed)") as caught:
        await Client(pool).open(server.url("ok"))
    assert caught.value.kind == "connect"
    assert not caught.value.sent
    assert server.requests == []
    await pool.aclose()


async def test_a_certificate_for_another_name_is_refused_in_words(secure):
    server, client, _ = secure

    async def here(host, port):
        return ["127.0.0.1"]

    pool = Pool(tls=client.transport._tls, resolver=here)
    with pytest.raises(TransportError, match=r"not valid for 'other\.example'"):
        await Client(pool).open(server.url("ok").replace("127.0.0.1", "other.example"))
    await pool.aclose()


async def test_tls_to_a_plain_port_says_so(client):
    async def plain(reader, writer):
        await reader.read(10)
        writer.write(faults.plain(b"", b"HTTP/1.1 400 Bad Request\r\n"))

    async with serving(plain) as url:
        with pytest.raises(TransportError, match="does not speak TLS") as caught:
            await client.open(url.replace("http:", "https:"))
        assert caught.value.kind == "connect"


async def test_plain_http_to_a_tls_port_is_no_answer(secure):
    server, client, _ = secure
    with pytest.raises(TransportError) as caught:
        await client.open(server.url("ok").replace("https:", "http:"))
    assert caught.value.kind in ("cut", "protocol")


async def test_a_silent_handshake_ends_at_the_connect_deadline(client):
    async def silent(reader, writer):
        await reader.read()

    async with serving(silent) as url:
        with pytest.raises(TransportError, match="no connection within"):
            await client.open(url.replace("http:", "https:"), connect=0.2)


async def test_a_handshake_that_is_hung_up_on_says_so(client):
    async def rude(reader, writer):
        await reader.read(10)
        writer.transport.abort()

    async with serving(rude) as url:
        with pytest.raises(TransportError) as caught:
            await client.open(url.replace("http:", "https:"))
        assert caught.value.kind == "connect"
        assert len(str(caught.value)) > len("127.0.0.1:12345: ")
