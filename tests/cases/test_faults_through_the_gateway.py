"""Every fault of the catalogue behind a whole gateway, for clients that want a stream and for those that do not.

One gateway and one fault server serve all of them: a provider per fault, and a model that falls back from it to a sound one.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import faults
import httpx
import pytest
import pytest_asyncio
import trustme
from asking import error_of, parsed, shaped, text
from faults import FaultServer
from running import CHAT, Running, serving
from upstream_double import Upstream, answer, events

from gateway import config
from gateway.errors import ConfigError

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = 0.15
"""seconds of the time-outs of the faults that run into one; all others have ten times as long, so that a busy machine is none"""

SOUND = {
    "ok", "ok_stream", "http10", "early_hints_100_103", "flood_1xx", "header_latin1", "header_64k", "headers_3000", "bare_lf", "gzip_ok", "zstd_unasked",
    "deflate_ok", "deflate_raw", "status_200_no_reason", "until_close_no_length", "content_length_long_body", "late_extra", "close_after_answer",
    "utf8_split", "done_then_close_no_terminator", "invalid_utf8",
}  # fmt: skip
"""faults that are none for a client: the answer arrives"""

PROTOCOL = {
    "html_200", "truncated_json_clean", "empty_200", "empty_stream", "s204", "s204_body", "chunk_ext_trailers", "garbage", "header_200k",
    "header_endless", "headers_30000", "trailer_endless", "chunk_ext_endless", "chunk_size_overflow", "chunk_bad_terminator",
    "dup_content_length_same", "dup_content_length_diff", "cl_and_te", "te_gzip_chunked", "obs_fold", "header_nul", "switch_protocols", "br_unasked",
    "gzip_bad", "gzip_bomb", "zstd_bomb", "one_chunk_64m", "line_without_newline_64m", "clean_end_no_done", "s302_internal", "s307_self",
    "content_length_short", "until_close_reset", "gzip_trunc", "zstd_trunc", "close_mid_chunked", "close_after_chunk_no_terminator", "rst_mid_stream",
}  # fmt: skip
SERVER = {"html_502", "status_999", "partial_status", "close_before_headers", "rst_before_headers", "error_event_in_sse"}
WHAT: dict[str, str | None] = {
    **dict.fromkeys(SOUND),
    **dict.fromkeys(PROTOCOL, "protocol"),
    **dict.fromkeys(SERVER, "server"),
    **dict.fromkeys(("slow_headers", "drip_headers", "slow_first_token", "drip_body_forever"), "first_token_timeout"),
    "stall_mid_stream": "timeout",
    "s429": "rate_limit",
    "s429_date": "rate_limit",
    "answer_before_body": "bad_request",
    "json_in_200_error": "overload",
    **dict.fromkeys(("refused", "backlog_full", "dns_fail", "long_label", "tls_to_plain", "untrusted_tls"), "connect"),
}
"""fault -> the class of its attempt; None: it answers"""

CUT_AFTER_CONTENT = {"close_mid_chunked", "close_after_chunk_no_terminator", "rst_mid_stream", "stall_mid_stream", "clean_end_no_done"}
"""faults that a stream's client sees, because content had reached it"""


@dataclass(frozen=True)
class Place:
    running: Running
    faulty: FaultServer
    sound: Upstream


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place() -> AsyncIterator[Place]:
    async with FaultServer() as faulty, Upstream() as sound:
        sound.call(lambda seen: events(*answer("sound")))
        with ExitStack() as stack:
            urls = {name: faulty.url(name) for name in faults.FAULTS}
            urls |= faults.UNRESOLVED | {"refused": faults.refused(), "backlog_full": stack.enter_context(faults.backlog_full())}
            urls |= {"tls_to_plain": f"https://127.0.0.1:{faulty.port}/ok", "untrusted_tls": await untrusted(stack)}
            async with serving(config_of(urls, sound)) as running:
                yield Place(running, faulty, sound)


async def untrusted(stack: ExitStack) -> str:
    """The URL of a server whose certificate nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    stack.callback(server.close)
    return f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def config_of(urls: dict[str, str], sound: Upstream) -> str:
    calm = "retries: 0, cooldown: {after: 1000, base: 1ms, max: 1ms}"
    wait = {name: SLOW if WHAT[name] in ("first_token_timeout", "timeout", "connect") else 10 * SLOW for name in urls}
    lines = ["server: {port: 0}", "providers:", f"  sound: {{adapter: openai, base_url: '{sound.url}'}}"]
    for name, url in urls.items():
        limits = f"timeouts: {{connect: {wait[name]}s, first_token: {wait[name]}s, idle: {wait[name]}s, total: 5s}}"
        lines.append(f"  {name}: {{adapter: openai, base_url: '{url}', {calm}, {limits}}}")
    lines += ["models:", *(f"  {name}: {{chain: [{name}/x, sound/y]}}" for name in urls)]
    return "\n".join(lines)


async def ask(place: Place, model: str, stream: bool) -> tuple[httpx.Response, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    got = await place.running.chat({**CHAT, "model": model, "stream": stream})
    took = loop.time() - began
    await asyncio.sleep(0.04 if "late_extra" in model else 0.002)  # a Retry-After rests the provider for a millisecond
    return got, took


def said(got: httpx.Response, stream: bool) -> str:
    """The text of a sound answer."""
    assert got.status_code == 200, got.text
    if not stream:
        body = got.json()
        assert body["object"] == "chat.completion"
        return str(body["choices"][0]["message"]["content"])
    lines = [line[6:] for line in got.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in parsed(lines))
    return text(lines)


async def test_every_fault_is_expected_here(place: Place) -> None:
    assert set(WHAT) == {*faults.FAULTS, *faults.UNRESOLVED, "refused", "backlog_full", "tls_to_plain", "untrusted_tls"}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("fault", sorted(name for name, kind in WHAT.items() if kind is None))
async def test_what_only_looks_odd_is_an_answer(place: Place, fault: str, stream: bool) -> None:
    place.sound.requests.clear()
    got, took = await ask(place, fault, stream)

    assert said(got, stream)
    assert got.headers["x-thinkgate-chain"] == f"{fault}=200"
    assert took < 3
    assert place.sound.requests == []


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("fault", sorted(name for name, kind in WHAT.items() if kind not in (None, "bad_request")))
async def test_a_failure_moves_on_and_is_told(place: Place, fault: str, stream: bool) -> None:
    place.sound.requests.clear()
    (got, took), (alone, _) = await asyncio.gather(ask(place, fault, stream), ask(place, f"{fault}/x", stream))
    if stream and fault in CUT_AFTER_CONTENT:
        lines = [line[6:] for line in got.text.split("\n") if line.startswith("data: ")]
        assert text(lines).startswith("hel")
        assert shaped(error_of(lines))
        assert error_of(lines)["code"] == "stream_interrupted"
        assert place.sound.requests == []
        return

    assert said(got, stream) == "sound"
    status = {"html_502": "502", "status_999": "999", "s429": "429", "s429_date": "429"}.get(fault, WHAT[fault])
    assert got.headers["x-thinkgate-chain"] == f"{fault}={status},sound=200"
    assert len(place.sound.requests) == 1
    assert took < 3

    error: dict[str, Any] = alone.json()["error"]
    assert alone.headers["content-type"] == "application/json"
    assert shaped(error)
    assert alone.status_code == {"rate_limit": 429, "overload": 503, "timeout": 504, "first_token_timeout": 504}.get(str(WHAT[fault]), 502)
    assert [attempt["class"] for attempt in error["attempts"]] == [WHAT[fault]]
    assert error["attempts"][0]["message"]
    assert "\x00" not in alone.text
    assert "<html>" not in alone.text


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_413_before_the_body_was_read_is_the_callers_fault(place: Place, stream: bool) -> None:
    got, _ = await ask(place, "answer_before_body", stream)

    assert got.status_code == 413
    assert got.json()["error"]["message"] == "too large"


async def test_no_connection_and_no_task_is_left_behind(place: Place) -> None:
    before = len(place.faulty._tasks)  # one for each connection, which ends when the gateway closes it
    await asyncio.gather(*(ask(place, fault, True) for fault in ("drip_headers", "slow_first_token", "drip_body_forever", "stall_mid_stream", "garbage")))
    await asyncio.sleep(0.1)

    assert len(place.faulty._tasks) <= before
    codes = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    own = {"drill", "keys", "agent"}  # what lives as long as the gateway
    assert not [code for code in codes if code is not None and "/gateway/" in code.co_filename and not own & set(code.co_filename.split("/"))]


@pytest.mark.parametrize("fault", faults.INVALID)
async def test_what_is_no_url_is_refused_with_the_config(fault: str) -> None:
    source = f"providers:\n  a: {{adapter: openai, base_url: {json.dumps(faults.INVALID[fault])}}}\nmodels:\n  m: {{chain: [a/x]}}\n"

    with pytest.raises(ConfigError) as caught:
        config.parse(source, env={})

    assert "providers.a.base_url" in str(caught.value)
    assert "secret" not in str(caught.value)
