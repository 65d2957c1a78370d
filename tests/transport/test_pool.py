"""The pool's promises: reuse, the one repeat, back pressure, deadlines, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import faults
import pytest
from conftest import Client, read_all, serving, within
from faults import FaultServer

from gateway.upstream.connection import HIGH_WATER
from gateway.upstream.pool import Pool
from gateway.upstream.transport import TransportError

# Reuse


async def test_requests_in_a_row_share_one_connection(client, server):
    for _ in range(50):
        assert await client.fetch(server.url("ok")) == (200, faults.JSON_BODY)
    assert server.connections == 1


async def test_requests_at_once_have_a_connection_each_and_keep_them(client, server):
    for _ in range(3):
        await asyncio.gather(*(client.fetch(server.url("ok")) for _ in range(8)))
    assert server.connections == 8


async def test_a_stream_left_before_its_end_is_closed_and_not_reused(client, server):
    exchange = await client.open(server.url("stall_mid_stream"))
    await exchange.read(asyncio.get_running_loop().time() + 1)
    await exchange.aclose()
    assert await within(0.1, lambda: server.gone) < 0.1
    await client.fetch(server.url("ok"))
    assert server.connections == 2


async def test_an_answer_that_is_all_there_needs_no_reading_to_free_its_connection(client, server):
    exchange = await client.open(server.url("ok"))
    await asyncio.sleep(0.01)
    await exchange.aclose()
    await client.fetch(server.url("ok"))
    assert server.connections == 1


async def test_closing_an_exchange_twice_does_not_touch_the_next_one(client, server):
    first = await client.open(server.url("ok"))
    await read_all(first)
    await first.aclose()
    second = await client.open(server.url("ok_stream"))
    await first.aclose()
    assert (await read_all(second)).endswith(faults.DONE)
    await second.aclose()
    assert server.connections == 1
    with pytest.raises(RuntimeError):
        await first.read(1)


async def test_idle_connections_are_closed_after_their_time(server):
    pool = Pool(idle=0.1)
    client = Client(pool)
    await asyncio.gather(*(client.fetch(server.url("ok")) for _ in range(4)))
    await within(0.5, lambda: len(server.gone) == 4)
    await client.fetch(server.url("ok"))
    assert server.connections == 5
    await pool.aclose()


async def test_a_connection_in_use_is_not_closed_for_idleness(server):
    pool = Pool(idle=0.05)
    client = Client(pool)
    await client.fetch(server.url("ok"))
    exchange = await client.open(server.url("stall_mid_stream"))
    await asyncio.sleep(0.15)
    assert not server.gone
    await exchange.aclose()
    await pool.aclose()


async def test_no_more_idle_connections_are_kept_than_allowed(server):
    pool = Pool(keep=2)
    client = Client(pool)
    await asyncio.gather(*(client.fetch(server.url("ok")) for _ in range(6)))
    await within(0.5, lambda: len(server.gone) == 4)
    await pool.aclose()


async def test_the_pool_forgets_hosts_without_connections(server):
    pool = Pool()
    client = Client(pool)
    await client.fetch(server.url("http10"))
    await within(0.5, lambda: not pool._origins)
    assert not pool._open
    await pool.aclose()


async def test_closing_the_pool_closes_what_is_in_use(client, server):
    await client.fetch(server.url("ok"))
    exchange = await client.open(server.url("stall_mid_stream"))
    await client.transport.aclose()
    await within(0.1, lambda: server.gone)
    with pytest.raises(TransportError):
        await read_all(exchange)
    await exchange.aclose()
    with pytest.raises(TransportError) as caught:
        await client.open(server.url("ok"))
    assert caught.value.kind == "connect"


# The reuse race


async def test_400_races_with_a_closing_server_lose_and_double_nothing(client):
    async with FaultServer(close_after=1) as server:
        for _ in range(400):
            assert await client.fetch(server.url("ok")) == (200, faults.JSON_BODY)
        assert len(server.requests) == 400


async def test_400_races_with_an_idle_timeout_lose_and_double_nothing(client):
    """The server closes 2 ms after each answer, the client asks again after 0 to 4 ms."""
    served = 0

    async def serve(reader, writer):
        nonlocal served
        patience = 1.0
        while True:
            async with asyncio.timeout(patience):  # TimeoutError is an OSError: the end
                await reader.readuntil(b"\r\n\r\n{}")
            patience = 0.002
            served += 1
            writer.write(faults.plain(b"{}"))

    order = random.Random(7)
    async with serving(serve) as url:
        for _ in range(400):
            assert await client.fetch(url) == (200, b"{}")
            await asyncio.sleep(order.random() * 0.004)
    assert served == 400


async def test_a_broken_reused_connection_is_repeated_only_once(server, client):
    await client.fetch(server.url("ok"))
    with pytest.raises(TransportError) as caught:
        await client.open(server.url("close_before_headers"))
    assert caught.value.kind == "cut"
    assert not caught.value.reused, "the second try was on a fresh connection"
    assert [call.fault for call in server.requests] == ["ok", "close_before_headers", "close_before_headers"]


@pytest.mark.parametrize("name", ["partial_status", "garbage", "content_length_short"])
async def test_nothing_is_repeated_when_any_byte_came_back(server, client, name):
    await client.fetch(server.url("ok"))
    with pytest.raises(TransportError):
        await client.fetch(server.url(name))
    assert [call.fault for call in server.requests] == ["ok", name]


async def test_a_request_that_timed_out_on_a_reused_connection_is_not_repeated(server, client):
    await client.fetch(server.url("ok"))
    with pytest.raises(TransportError) as caught:
        await client.open(server.url("slow_headers"), seconds=0.1)
    assert (caught.value.kind, caught.value.reused) == ("timeout", True)
    assert len(server.requests) == 2


async def test_a_request_that_worked_for_long_before_the_cut_is_not_repeated(client, monkeypatch):
    monkeypatch.setattr("gateway.upstream.pool.STALE_WITHIN", 0.05)
    served = 0

    async def serve(reader, writer):
        nonlocal served
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(faults.plain(b"{}"))
        await reader.readuntil(b"\r\n\r\n{}")
        served += 1
        await asyncio.sleep(0.1)

    async with serving(serve) as url:
        await client.fetch(url)
        with pytest.raises(TransportError) as caught:
            await client.open(url)
        assert (caught.value.kind, caught.value.reused, served) == ("cut", True, 1)


async def test_a_server_that_closes_what_it_accepts_is_a_clean_error_each_time(client):
    async def rude(reader, writer):
        writer.transport.abort()

    async with serving(rude) as url:
        for step in range(100):
            with pytest.raises(TransportError) as caught:
                await client.open(url, b"x" * (step * 1000))
            assert caught.value.kind in ("cut", "connect")
    assert not client.transport._open


# Deadlines


async def test_the_deadline_of_the_headers_holds_while_bytes_drip(client, server):
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        await client.open(server.url("drip_headers"), seconds=0.15)
    assert caught.value.kind == "timeout"
    assert 0.1 < time.monotonic() - began < 0.3
    await within(0.1, lambda: server.gone)


async def test_a_deadline_that_is_over_ends_the_answer_though_bytes_are_there(client, server):
    exchange = await client.open(server.url("drip_body_forever"))
    await asyncio.sleep(0.05)
    with pytest.raises(TransportError) as caught:
        await exchange.read(asyncio.get_running_loop().time() - 0.001)
    assert caught.value.kind == "timeout"
    await exchange.aclose()


async def test_deadlines_may_move_both_ways(client, server):
    loop = asyncio.get_running_loop()
    exchange = await client.open(server.url("stall_mid_stream"), seconds=30)
    assert await exchange.read(loop.time() + 0.05)
    began = loop.time()
    with pytest.raises(TransportError):
        await read_all(exchange, 0.2)
    assert 0.15 < loop.time() - began < 0.4
    await exchange.aclose()


async def test_an_early_deadline_of_one_request_does_not_end_the_next(client, server):
    for seconds in (0.05, 2.0):
        await client.fetch(server.url("ok"), seconds=seconds)
    exchange = await client.open(server.url("slow_first_token"), seconds=2)
    read = asyncio.create_task(exchange.read(asyncio.get_running_loop().time() + 0.3))
    await asyncio.sleep(0.1)
    assert not read.done()
    with pytest.raises(TransportError):
        await read
    await exchange.aclose()
    assert server.connections == 1


async def test_no_deadline_is_no_timer(client, server):
    exchange = await client.open(server.url("ok"), seconds=float("inf"))
    assert await read_all(exchange, float("inf")) == faults.JSON_BODY
    await exchange.aclose()


async def test_a_hundred_requests_set_no_hundred_timers(client, server):
    loop = asyncio.get_running_loop()
    if not hasattr(loop, "_scheduled"):
        pytest.skip("only asyncio's own loop can be counted")
    set_at, original = [], loop.call_at

    def counting(when, *args, **kwargs):
        set_at.append(when)
        return original(when, *args, **kwargs)

    loop.call_at = counting
    for _ in range(100):
        await client.fetch(server.url("ok"), seconds=60)
    assert len(set_at) <= 6


# Cancellation


@pytest.mark.parametrize("name", ["slow_headers", "drip_headers"])
async def test_a_request_cancelled_before_the_headers_ends_at_the_server(client, server, name):
    task = asyncio.create_task(client.open(server.url(name)))
    await within(1, lambda: server.requests)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await within(0.1, lambda: server.gone) < 0.1


@pytest.mark.parametrize("name", ["slow_first_token", "stall_mid_stream", "drip_body_forever"])
async def test_a_read_that_is_cancelled_ends_at_the_server(client, server, name):
    exchange = await client.open(server.url(name))
    task = asyncio.create_task(read_all(exchange, 5))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await within(0.1, lambda: server.gone) < 0.1
    await exchange.aclose()


async def test_a_cancelled_connect_leaves_no_socket(client):
    with faults.backlog_full() as url:
        task = asyncio.create_task(client.open(url))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not client.transport._open


async def test_cancelling_at_any_moment_leaves_the_pool_usable(client, server):
    for step in range(40):
        task = asyncio.create_task(client.fetch(server.url("ok_stream")))
        for _ in range(step % 20):
            await asyncio.sleep(0)
        task.cancel()
        try:
            assert (await task)[1].endswith(faults.DONE)
        except asyncio.CancelledError:
            pass
    assert await client.fetch(server.url("ok")) == (200, faults.JSON_BODY)


# Back pressure, writes, headers


async def test_a_reader_that_rests_stops_the_server():
    sent = 0

    async def serve(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(faults.CHUNKED)
        for _ in range(64):
            writer.write(faults.chunk(b"a" * (1 << 20)))
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")

    pool = Pool()
    async with serving(serve) as url:
        exchange = await Client(pool).open(url, seconds=10)
        await asyncio.sleep(0.2)
        stopped_at = sent
        await asyncio.sleep(0.1)
        assert sent == stopped_at < 32, "the server went on sending"
        piece = await exchange.read(asyncio.get_running_loop().time() + 1)
        assert len(piece) <= HIGH_WATER + (256 << 10)
        assert len(piece) + len(await read_all(exchange, 10)) == 64 << 20
        await exchange.aclose()
        await pool.aclose()


class Recorder(asyncio.Protocol):
    """Answers every segment that ends a request; keeps what each read brought."""

    def __init__(self, reads: list[bytes], end: bytes) -> None:
        self.reads, self.end = reads, end

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reads.append(data)
        if data.endswith(self.end):
            self.transport.write(faults.plain(b"{}"))


@contextlib.asynccontextmanager
async def recorded(end: bytes = b"{}"):
    reads: list[bytes] = []
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Recorder(reads, end))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    yield reads, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for recorder in made:
        recorder.transport.abort()
    await asyncio.sleep(0)


async def test_a_small_request_is_one_write_with_exactly_these_bytes(client):
    given = [(b"Content-Type", b"application/json"), (b"HOST", b"evil"), (b"Content-Length", b"9"), (b"accept-encoding", b"br")]
    async with recorded() as (reads, url):
        await client.fetch(f"{url}/v1/chat?x=%20a", headers=given)
        head = b"POST /v1/chat?x=%20a HTTP/1.1\r\nhost: " + url[7:].encode() + b"\r\naccept-encoding: identity\r\nContent-Type: application/json\r\n"
        assert reads == [head + b"content-length: 2\r\n\r\n{}"]


async def test_a_large_body_arrives_whole(client):
    body = b"a" * 3_000_000 + b"#"
    async with recorded(end=b"#") as (reads, url):
        await client.fetch(url, body)
        assert b"".join(reads).endswith(b"content-length: 3000001\r\n\r\n" + body)


async def test_get_has_no_length_and_head_no_body(client, server):
    assert await client.fetch(server.url("ok"), b"", method=b"GET") == (200, faults.JSON_BODY)
    assert server.requests[0].header(b"content-length") is None
    assert await client.fetch(server.url("ok"), b"", method=b"HEAD") == (200, b"")
    assert await client.fetch(server.url("ok")) == (200, faults.JSON_BODY)


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nx: y", b"a\rb", b"a\0b"])
async def test_a_header_with_a_line_break_is_not_sent(client, server, value):
    with pytest.raises(TransportError, match="line break") as caught:
        await client.open(server.url("ok"), headers=[(b"authorization", value)])
    assert not caught.value.sent
    assert value.decode() not in str(caught.value)
    assert server.connections == 0


async def test_header_gives_the_first_value_by_its_lower_case_name(client, server):
    exchange = await client.open(server.url("s429"))
    assert (exchange.header(b"retry-after"), exchange.header(b"nothing")) == (b"3", None)
    assert all(name == name.lower() for name, _ in exchange.headers)
    await exchange.aclose()


# Addresses


async def test_every_address_of_a_name_is_tried_in_order(server):
    asked = []

    async def two(host, port):
        asked.append((host, port))
        return ["127.0.0.2", "127.0.0.1"]  # the server listens on the second one only

    pool = Pool(resolver=two)
    assert await Client(pool).fetch(server.url("ok").replace("127.0.0.1", "api.example")) == (200, faults.JSON_BODY)
    assert asked == [("api.example", server.port)]
    assert server.requests[0].header(b"host") == f"api.example:{server.port}".encode()
    await pool.aclose()


async def test_a_silent_first_address_leaves_time_for_the_second(server):
    with faults.backlog_full() as url:
        port = int(url.split(":")[2].split("/")[0])
        second = await asyncio.start_server(server._serve, "127.0.0.3", port)

        async def two(host, port):
            return ["127.0.0.1", "127.0.0.3"]

        pool = Pool(resolver=two)
        assert await Client(pool).fetch(f"http://api.example:{port}/ok", connect=0.4) == (200, faults.JSON_BODY)
        await pool.aclose()
        second.close()


async def test_a_resolver_that_hangs_ends_at_the_connect_deadline():
    async def never(host, port):
        await asyncio.sleep(10)

    pool = Pool(resolver=never)
    with pytest.raises(TransportError, match="not resolved in time") as caught:
        await Client(pool).open("http://api.example/", connect=0.1)
    assert caught.value.kind == "connect"
    await pool.aclose()


async def test_ipv6_literals_are_reached_and_named_in_brackets():
    try:
        server = await FaultServer(host="::1").__aenter__()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    pool = Pool()
    assert await Client(pool).fetch(server.url("ok")) == (200, faults.JSON_BODY)
    assert server.requests[0].header(b"host") == f"[::1]:{server.port}".encode()
    await pool.aclose()
    await server.__aexit__(None, None, None)
