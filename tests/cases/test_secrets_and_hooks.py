"""Keys stay where they belong, requests go where the config says, and hooks cannot hold the gateway."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import PATIENT, error_of
from faults import refused
from running import CHAT, KEY, STREAM, serving, yaml
from upstream_double import Item, Upstream, completion, delta, role

import gateway
from gateway import config
from gateway.app import Gateway
from gateway.errors import ConfigError

SECRET = "KEY_A_SECRET_VALUE_1234"


def own_key(more: str = "") -> str:
    return f"api_key: {SECRET}\n{PATIENT}" + (f"\n{more}" if more else "")


async def test_nothing_that_identifies_the_client_reaches_the_provider(a: Upstream) -> None:
    headers = {"authorization": "Bearer vk-CANARY-0123456789", "x-api-key": "vk-CANARY-0123456789", "cookie": "sid=CANARY3", "x-forwarded-for": "CANARY4"}

    async with serving(yaml({"a": a.reply().url}, server="keys: [vk-CANARY-0123456789]")) as running:
        got = await running.client.post("/v1/chat/completions", json=CHAT, headers={**headers, "x-custom": "CANARY5", "openai-organization": "CANARY6"})

    assert got.status_code == 200
    assert "CANARY" not in str(a.requests[0].raw_headers) + a.requests[0].path + a.requests[0].query
    assert a.requests[0].headers["authorization"] == "Bearer key-of-a-0123456789"


async def test_a_provider_without_a_key_gets_none(a: Upstream) -> None:
    source = yaml({"a": a.reply().url}, server=f"keys: [{KEY}]").replace("    api_key: key-of-a-0123456789\n", "")

    async with serving(source) as running:
        await running.chat(None, authorization=f"Bearer {KEY}")

    assert {"authorization", "x-api-key"}.isdisjoint(a.requests[0].headers)


def test_a_vendors_api_without_its_key_is_refused_with_the_config() -> None:
    settings = config.parse("providers: {openai: {}}\nmodels: {m: {chain: [openai/gpt-5-mini]}}\n", env={})

    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Gateway(lambda: settings)


async def test_the_request_cannot_choose_where_it_goes(a: Upstream) -> None:
    evil = {
        "api_base": "http://127.0.0.1:9/evil",
        "base_url": "http://127.0.0.1:9/",
        "provider": "x",
        "api_key": "k",
        "extra_body": {"api_base": "http://127.0.0.1:9"},
    }
    headers = {
        "x_portkey_custom_host": "http://127.0.0.1:9",
        "x_base_url": "http://127.0.0.1:9",
        "x_forwarded_host": "127.0.0.1:9",
        "x_thinkgate_base_url": "http://127.0.0.1:9",
    }

    async with serving(yaml({"a": a.reply().url})) as running:
        got = await running.chat({**CHAT, **evil}, **headers)

    assert got.status_code == 200
    assert (a.requests[0].path, a.requests[0].headers["host"]) == ("/chat/completions", f"127.0.0.1:{a.port}")
    assert a.requests[0].headers["authorization"] == "Bearer key-of-a-0123456789"
    assert not [name for name in a.requests[0].headers if name.startswith(("x-portkey", "x-base", "x-forwarded", "x-thinkgate"))]


@pytest.mark.parametrize("model", ["a/../../admin", "a//evil", "a/x?key=1", "a/x#y", "a/x\r\nhost: evil", "/a/x", "a/"])
async def test_a_models_name_cannot_leave_its_place(a: Upstream, model: str) -> None:
    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat({**CHAT, "model": model})

    assert got.status_code in (400, 404)
    assert a.requests == []


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("form", ["raw", "base64", "in a URL", "in a page", "in two pieces of one message"])
async def test_a_provider_that_echoes_its_key_does_not_give_it_away(a: Upstream, caplog: pytest.LogCaptureFixture, form: str, stream: bool) -> None:
    caplog.set_level(logging.DEBUG)
    texts = {
        "raw": f"You sent {SECRET}, which is unknown",
        "base64": "bad header: " + base64.b64encode(f"Bearer {SECRET}".encode()).decode(),
        "in a URL": f"GET https://host/v1?key={SECRET}&x=1 failed",
        "in a page": f"<html><title>{SECRET} is unknown</title></html>",
        "in two pieces of one message": "x" * 290 + SECRET,
    }
    body: Any = texts[form].encode() if form == "in a page" else {"error": {"message": texts[form], "type": SECRET, "code": SECRET, "param": SECRET}}
    a.reply(body, status=401).reply(body, status=400)

    async with serving(yaml({"a": a.url}, a=own_key(), server=f"keys: [{KEY}]")) as running:
        got = [await running.chat({**CHAT, "stream": stream}, x_api_key=KEY) for _ in range(2)]
        wrong = await running.chat(None, authorization="Bearer vk-WRONG-9876")
        metrics = (await running.client.get("/metrics")).text

    assert [answer.status_code for answer in got] == [502, 400]
    seen = caplog.text + metrics + "".join(answer.text + str(answer.headers) for answer in (*got, wrong))
    for hidden in (SECRET, SECRET[:12], base64.b64encode(f"Bearer {SECRET}".encode()).decode()[12:24], "vk-WRONG-9876", KEY):
        assert hidden not in seen


@pytest.mark.parametrize("where", ["first event", "after the content", "plain"])
async def test_nor_does_an_error_inside_a_200(a: Upstream, where: str) -> None:
    failure = {"error": {"message": f"key {SECRET} was revoked", "type": "server_error"}}
    before: list[Item] = [role(), delta("x"), 0.03] if where == "after the content" else []
    if where == "plain":
        a.reply(failure)
    else:
        a.stream(*before, failure)

    async with serving(yaml({"a": a.url}, a=own_key())) as running:
        got = await running.chat(CHAT if where == "plain" else STREAM)

    assert SECRET not in got.text
    assert "was revoked" in got.text
    if where == "after the content":
        assert error_of([line[6:] for line in got.text.split("\n") if line.startswith("data: ")])["code"] == "stream_interrupted"


async def test_a_key_that_a_hook_puts_into_the_query_is_not_shown(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "query.lua").write_text(f'function build_request(req) return {{query = {{key = "{SECRET}"}}}} end')

    async with serving(yaml({"a": refused()}, a=own_key("hooks: [query.lua]")), base=tmp_path) as running:
        got = await running.chat()

    assert got.json()["error"]["attempts"][0]["class"] == "connect"
    assert SECRET not in got.text + caplog.text


LOOPS = {
    "a loop": "while true do end",
    "a loop inside try": "while true do try(function() while true do end end) end",
    "recursion": "local function f() return f() + 1 end f()",
    "a pattern": 'local _ = ("a"):rep(400):find(("a-"):rep(8) .. "b")',
    "a huge text": 'local s = "x" for i = 1, 40 do s = s .. s end',
    "rep": '("x"):rep(1e9)',
    "a huge table": "local t = {} for i = 1, 1e9 do t[i] = {i} end",
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_hook_that_does_not_end_fails_alone(a: Upstream, b: Upstream, tmp_path: Path, loop: str) -> None:
    (tmp_path / "loop.lua").write_text(f"function transform_request(req)\n  {LOOPS[loop]}\n  return req\nend")
    b.reply(completion("b"))

    async with serving(yaml({"a": a.url, "b": b.url}, a="hooks: [loop.lua]"), base=tmp_path) as running:
        clock = asyncio.get_running_loop()
        alone = asyncio.create_task(running.chat({**CHAT, "model": "a/x"}))
        began = clock.time()
        other = await running.chat({**CHAT, "model": "b/x"})
        assert clock.time() - began < 1
        failed = await alone
        assert clock.time() - began < 1
        moved = await running.chat()

    error = failed.json()["error"]
    assert (failed.status_code, error["attempts"][0]["class"]) == (502, "adapter")
    assert "loop.lua" in error["attempts"][0]["message"]
    assert other.status_code == 200
    assert moved.headers["x-thinkgate-chain"] == "a=adapter,b=200"
    assert a.requests == []


@pytest.mark.parametrize(
    "word",
    ["os", "io", "require", "load", "debug", "package", "pcall", "coroutine", "python", "setmetatable", "getmetatable", "rawset", "dofile", "collectgarbage"],
)
async def test_a_hook_has_no_way_out(a: Upstream, tmp_path: Path, word: str) -> None:
    (tmp_path / "out.lua").write_text(f"function transform_request(req) req.kind = type({word}) return req end")

    async with serving(yaml({"a": a.reply().url}, a="hooks: [out.lua]"), base=tmp_path) as running:
        await running.chat()

    assert not a.requests or a.requests[0].json["kind"] == "nil"


MISSING = "providers: {a: {adapter: openai, base_url: 'http://127.0.0.1:9/v1', api_key: '${KEY_A_UNSET}'}}\nmodels: {m: {chain: [a/x]}}\n"


@pytest.mark.parametrize("env", [{}, {"KEY_A_UNSET": ""}], ids=["unset", "empty"])
def test_a_variable_that_is_not_set_is_an_error_that_names_it(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(MISSING, env=env)

    assert "KEY_A_UNSET" in str(caught.value)
    assert "providers.a.api_key" in str(caught.value)


@pytest.mark.parametrize("keys", ["['${VK_UNSET}']", "['']", "[null]"])
def test_an_empty_client_key_is_an_error_and_no_open_door(keys: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.keys\[0\]"):
        config.parse(yaml({"a": refused()}, server=f"keys: {keys}"), env={"VK_UNSET": ""})


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ${VK_UNSET}", "Bearer ${VK_UNSET:-}", "Bearer null", "Bearer None"])
async def test_an_optional_key_that_is_not_set_is_no_key_beside_the_others(a: Upstream, given: str) -> None:
    async with serving(yaml({"a": a.url}, server=f"keys: ['${{VK_UNSET:-}}', {KEY}]")) as running:
        got = await running.chat(None, authorization=given)

    assert got.status_code == 401
    assert a.requests == []


@pytest.mark.parametrize("command", [["check"], ["serve", "-c"]], ids=["check", "serve"])
def test_the_commands_end_with_a_fault_where_a_variable_is_missing(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "c.yaml").write_text(MISSING)
    env = {**{name: value for name, value in os.environ.items() if name != "KEY_A_UNSET"}, "PYTHONPATH": str(Path(gateway.__file__).parent.parent)}

    done = subprocess.run([sys.executable, "-m", "gateway", *command, "c.yaml"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode == 1
    assert "c.yaml:1:" in done.stdout + done.stderr
    assert "providers.a.api_key" in done.stdout + done.stderr
    assert "KEY_A_UNSET" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


GOOD = "server: {port: 0}\nproviders: {a: {adapter: own, base_url: 'URL', retries: 0}}\nmodels: {m: {chain: [a/MODEL]}}\nadapters_dir: .\n"
SOUND = 'return {{ base_url = "http://127.0.0.1:9", dialect = "chat", auth = "none", transform_request = function(req) req.mark = "{}" return req end }}'


def good(a: Upstream, model: str) -> str:
    return GOOD.replace("URL", a.url).replace("MODEL", model)


EDITS: dict[str, tuple[str, str]] = {
    "broken YAML": ("c.yaml", "providers: {a: [\n"),
    "an unknown provider": (
        "c.yaml",
        "server: {port: 0}\nproviders: {a: {adapter: own, base_url: 'http://127.0.0.1:9'}}\nmodels: {m: {chain: [zz/x]}}\nadapters_dir: .\n",
    ),
    "an unknown setting": ("c.yaml", "provider: {}\n"),
    "an unknown adapter": ("c.yaml", "providers: {a: {adapter: zz, base_url: 'http://127.0.0.1:9'}}\nmodels: {m: {chain: [a/x]}}\n"),
    "an empty file": ("c.yaml", ""),
    "a binary file": ("c.yaml", "\x00\x01\x02"),
    "an adapter that does not compile": ("own.lua", "return { function"),
}


@pytest.mark.parametrize("edit", EDITS)
async def test_a_bad_edit_changes_nothing_and_a_good_one_is_applied(a: Upstream, tmp_path: Path, edit: str, caplog: pytest.LogCaptureFixture) -> None:
    file, adapter = tmp_path / "c.yaml", tmp_path / "own.lua"
    a.reply()
    file.write_text(good(a, "one"))
    adapter.write_text(SOUND.format("first"))
    name, text = EDITS[edit]

    async with serving(file) as running:
        await running.chat()
        (tmp_path / name).write_text(text)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.02)
        got = await running.chat()
        ready = (await running.client.get("/readyz")).json()
        metrics = (await running.client.get("/metrics")).text
        file.write_text(good(a, "two"))
        adapter.write_text(SOUND.format("second"))
        applied = running.gateway.reload()
        await running.chat()

    assert got.status_code == 200
    assert [(seen.json["model"], seen.json["mark"]) for seen in a.requests] == [("one", "first"), ("one", "first"), ("two", "second")]
    assert ready["config"]["error"]
    assert 'thinkgate_config_reloads_total{result="failed"} 1.0' in metrics
    assert "the old one stays in use" in caplog.text
    assert applied


async def test_a_bad_edit_of_an_adapter_is_shown_and_the_old_version_goes_on(a: Upstream, tmp_path: Path) -> None:
    file, adapter = tmp_path / "c.yaml", tmp_path / "own.lua"
    a.reply()
    file.write_text(good(a, "one"))
    adapter.write_text(SOUND.format("first"))

    async with serving(file) as running:
        adapter.write_text("return { function")
        await asyncio.sleep(1.05)  # files are looked at once a second
        got = await running.chat()
        ready = (await running.client.get("/readyz")).json()

    assert got.status_code == 200
    assert a.requests[0].json["mark"] == "first"
    assert "own.lua" in str(ready["adapters"]["errors"])


async def test_a_reload_does_not_touch_what_runs(a: Upstream, b: Upstream, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    a.stream(role(), delta("Hel"), 0.3, delta("lo"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    b.reply(completion("from b"))
    file.write_text(yaml({"a": a.url}))

    async with serving(file) as running:
        stream = asyncio.create_task(running.events())
        await a.until(lambda upstream: upstream.requests)
        await asyncio.sleep(0.05)
        file.write_text(yaml({"b": b.url}))
        assert running.gateway.reload()
        after = await running.chat()
        events = await stream

    assert after.headers["x-thinkgate-provider"] == "b"
    assert events[-1] == "[DONE]"
    assert len(a.requests) == 1
