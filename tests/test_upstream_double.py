from __future__ import annotations

import asyncio

import httpx
import pytest
from upstream_double import CUT, DONE, HANG, RESET, Upstream, answer, delta, events, role


async def test_scripts_are_played_in_order_and_the_last_one_again() -> None:
    async with Upstream() as a, httpx.AsyncClient(base_url=a.url) as client:
        a.reply({"n": 1}, status=429, headers={"retry-after": "3"}, repeat=2).reply({"n": 2})

        answers = [await client.post("/v1/x?q=1", json={"model": "m"}) for _ in range(4)]

    assert [(one.status_code, one.json()["n"]) for one in answers] == [(429, 1), (429, 1), (200, 2), (200, 2)]
    assert answers[0].headers["retry-after"] == "3"
    assert (a.requests[0].path, a.requests[0].query, a.requests[0].json) == ("/v1/x", "q=1", {"model": "m"})
    assert a.connections == 1


async def test_a_stream_has_its_events_names_pauses_and_bytes() -> None:
    async with Upstream() as a, httpx.AsyncClient() as client:
        a.stream(("ping", {}), 0.01, "x", b": raw\n\n", DONE)

        got = (await client.post(a.url)).text

    assert got == "event: ping\ndata: {}\n\ndata: x\n\n: raw\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(("end", "error"), [(CUT, httpx.RemoteProtocolError), (RESET, httpx.ReadError)])
async def test_a_broken_stream_is_broken_for_the_client(end: object, error: type[Exception]) -> None:
    async with Upstream() as a, httpx.AsyncClient() as client:
        a.stream(role(), 0.01, end)  # type: ignore[arg-type]

        with pytest.raises(error):
            await client.post(a.url)

    assert a.disconnected == []


async def test_nothing_at_all_is_a_connection_closed_without_an_answer() -> None:
    async with Upstream() as a, httpx.AsyncClient() as client:
        a.wire()

        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(a.url)


async def test_a_client_that_goes_is_seen_at_once() -> None:
    async with Upstream() as a, httpx.AsyncClient() as client:
        a.stream(delta("x"), HANG)
        loop = asyncio.get_running_loop()

        async with client.stream("POST", a.url) as response:
            await anext(response.aiter_raw())
            left = loop.time()
        await a.until(lambda a: a.disconnected)

    assert a.disconnected[0].request is a.requests[0]
    assert a.disconnected[0].at - left < 0.1
    assert a.open == 0


async def test_a_function_makes_each_answer() -> None:
    async with Upstream() as a, httpx.AsyncClient(base_url=a.url) as client:
        a.call(lambda request: events(*answer("hi")) if request.json["stream"] else {"path": request.path})

        plain = await client.post("/p", json={"stream": False})
        streamed = await client.post("/p", json={"stream": True})

    assert plain.json() == {"path": "/p"}
    assert streamed.headers["content-type"] == "text/event-stream"


async def test_the_same_scripts_play_without_a_socket() -> None:
    a = Upstream().stream(role(), delta("x"), CUT).reply({"ok": True}, status=201).wire()

    async with httpx.AsyncClient(transport=a.transport(), base_url="http://a") as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/")
        reply = await client.post("/v1", json={"n": 1})
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/")

    assert (reply.status_code, reply.json(), a.requests[1].json) == (201, {"ok": True}, {"n": 1})


async def test_without_a_script_the_answer_says_so() -> None:
    async with Upstream() as a, httpx.AsyncClient() as client:
        answered = await client.post(a.url)

    assert (answered.status_code, answered.json()["error"]["code"]) == (500, "no_script")
