"""The console in a real browser, as somebody uses it who runs the gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import Page, browsing
from running import KEY, Running, serving, yaml
from upstream_double import Upstream, completion, delta, finish, role, thought, tool_call, usage

from gateway.store import RequestRow

Browser = tuple[str, dict[str, str]]

ADMIN = "admin-key-for-tests-0123456789"
KEYED = f"keys: [{KEY}]\nadmin_key: {ADMIN}"
CLIENT = {"authorization": f"Bearer {KEY}"}
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"  # who comes back to a page sees what is so now, not in five seconds
PAGES = ("overview", "requests", "usage", "keys", "runs", "config", "playground")
IMAGE = "<img src=x onerror=\"document.title='hit'\">"
SCRIPT = "<script>document.title='hit'</script>"
TIGHT = "<img/src=x/onerror=document.title='hit'>"  # where a text has no spaces
AGENTS = """
agents:
  slow: {pattern: two_stage, model: demo, tools: [sequential_thinking, todo_write, calculator], thinking: {visibility: hidden}, approval: {tools: [calculator]}}
  said: {pattern: simple, model: m, tools: [calculator]}
"""
DEMO = "providers:\n  demo: {adapter: demo, base_url: 'mock://demo?gap=4ms'}"


def conf(url: str, server: str = KEYED) -> str:
    """A model `m` of the scripted double, the demo model, and agents on both."""
    return yaml({"a": url}, server=server).replace("providers:", DEMO).replace("models:", "models:\n  demo: demo/demo") + AGENTS


@asynccontextmanager
async def console(running: Running, browser: Browser, **size: int) -> AsyncIterator[Page]:
    """The console on its first page. Nothing may have gone wrong in it when the test is over."""
    async with browsing(*browser) as page:
        await page.open(running.url.removesuffix("v1"), **size)
        yield page
        assert page.wrong == []


async def sign_in(page: Page) -> None:
    await page.write("#admin-key", ADMIN)
    await page.press("Enter")
    await page.sees("Ready", ".banner")


async def begin(running: Running, agent: str, text: str = "What is 17 * 23?") -> str:
    """A run in the background; gives its id."""
    made = await running.client.post(f"/v1/agents/{agent}/runs", json={"input": text, "background": True}, headers=CLIENT)
    assert made.status_code == 202, made.text
    ident: str = made.json()["id"]
    return ident


async def test_a_key_is_made_used_seen_and_revoked(a: Upstream, browser: Browser) -> None:
    a.reply(completion(), repeat=None)
    async with serving(conf(a.url)) as running, console(running, browser) as page:
        await sign_in(page)
        await page.click("nav a", "Keys")
        await page.click("#new-key")
        await page.write("#key-name", "night-shift")
        await page.write("#key-models", "m demo")
        await page.write("#key-rpm", "7")
        await page.write("#key-usd", "2.5")
        await page.click("#key-save")
        await page.until("document.querySelector('#secret')?.innerText.length > 20")
        secret = await page.text("#secret")
        await page.click("#secret-done")
        await page.sees("7 requests/min", "td")
        assert secret not in await page.js("document.documentElement.outerHTML"), "it is shown once"

        answer = await running.chat({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, authorization=f"Bearer {secret}")
        assert answer.status_code == 200

        await page.click("nav a", "Requests")
        await page.sees("night-shift", "tr.leads td")
        await page.click("tr.leads a")
        await page.sees("a/a-model", ".attempt")
        await page.sees("night-shift", ".facts")
        assert answer.headers["x-request-id"] in await page.text("main")

        await page.click("nav a", "Usage")
        await page.sees("night-shift", "td")
        row = await page.js("[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('night-shift')).innerText.split(/\\s+/)")
        assert row[:4] == ["night-shift", "1", "0", "5"], "one request, none failed, five tokens of the prompt"

        await page.click("nav a", "Keys")
        await page.click("button", "Limits")
        await page.write("#key-rpm", "")
        await page.write("#key-concurrency", "3")
        await page.click("#key-save")
        await page.sees("3 at a time", "td")
        await page.click("button", "Rotate")
        await page.click("#confirm")
        await page.until("document.querySelector('#secret')?.innerText.length > 20")
        second = await page.text("#secret")
        await page.click("#secret-done")
        await page.sees("old secret", "td")
        await page.click("button", "Revoke")
        await page.click("#confirm")
        await page.sees("No key is in use", "main")
        for key in (secret, second):
            assert (await running.chat(authorization=f"Bearer {key}")).status_code == 401
        for key in (ADMIN, secret, second):
            assert key not in await page.js("location.href + JSON.stringify(localStorage) + document.cookie + document.documentElement.outerHTML")


async def test_other_limits_leave_the_moment_at_which_a_key_ends_as_it_is(a: Upstream, browser: Browser) -> None:
    ends = int(time.time() // 86400 * 86400) + 86399  # today: its day alone would have ended it already
    async with serving(conf(a.url)) as running, console(running, browser) as page:
        headers = {"x-api-key": ADMIN}
        assert (await running.client.post("/admin/keys", json={"name": "short", "expires": ends}, headers=headers)).status_code == 201
        await sign_in(page)
        await page.click("nav a", "Keys")
        await page.click("button", "Limits")
        await page.write("#key-concurrency", "3")
        await page.click("#key-save")
        await page.sees("3 at a time", "td")
        (key,) = (await running.client.get("/admin/keys", headers=headers)).json()["data"]
        assert (key["expires"], key["active"]) == (ends, True)
        await page.until("!document.querySelector('dialog')")
        await page.click("button", "Limits")
        await page.until("Boolean(document.querySelector('#key-expires'))")
        await page.js("document.querySelector('#key-expires').value = '2099-01-31'")
        await page.click("#key-save")
        await page.sees("31 Jan 2099", "td")


async def test_a_run_is_seen_live_and_answered(a: Upstream, browser: Browser) -> None:
    async with serving(conf(a.url)) as running, console(running, browser) as page:
        await sign_in(page)
        await page.click("nav a", "Runs")
        await page.sees("No agent has run yet", "main")
        run = await begin(running, "slow")
        await page.click("tr.leads a")
        await page.sees("Waits for your word: calculator", ".asks")
        await page.until("Boolean(document.querySelector('.live'))")
        first = await page.js("document.querySelectorAll('#journal > li').length")
        # what is written flits by: somebody must have watched
        watch = "() => document.querySelectorAll('.writing').forEach((node) => seen.add(node.className))"
        await page.js(f"seen = new Set(); new MutationObserver({watch}).observe(document.body, {{ childList: true, subtree: true }})")
        said = await running.client.post(f"/v1/runs/{run}/approve", json={"approved": True}, headers=CLIENT)
        assert said.status_code == 200
        await page.sees("391", ".answer")
        await page.sees("completed", "h1")
        assert await page.js("document.querySelectorAll('#journal > li').length") > first + 3, "all that came was added to what stood there"
        assert await page.js("[...seen]") == ["writing reasoning", "writing content"]
        assert not await page.js("document.querySelector('.live, .asks')")
        assert await page.js("document.querySelectorAll('#journal .thought').length") >= 1
        for words in ("calculator", "17 * 23", "391", "Approved", "Ends: completed"):
            assert words in await page.text("#journal")

        waits = await begin(running, "slow")
        await page.go(f"#/runs/{waits}")
        await page.click(".asks button", "Approve")
        await page.sees("completed", "h1")

        other = await begin(running, "slow")
        await page.go(f"#/runs/{other}")
        await page.sees("Waits for your word", ".asks")
        await page.click("#cancel")
        await page.sees("cancelled", "h1")


async def test_what_strangers_say_is_text_wherever_it_stands(a: Upstream, browser: Browser) -> None:
    """S: no text of a model, a client or a provider becomes markup, on any page."""
    a.reply({"error": {"message": f"no {IMAGE}{SCRIPT}", "type": SCRIPT}}, status=400)
    a.reply(completion(IMAGE, reasoning_content=SCRIPT))
    a.reply(completion(None, calls=[tool_call("calculator", '{"expression": "<img src=x onerror=alert(1)>"}')], reasoning_content=SCRIPT))
    a.reply(completion(f"{IMAGE}{SCRIPT}", reasoning_content=SCRIPT))
    a.stream(role(), thought(SCRIPT), delta(IMAGE), delta(SCRIPT), finish(), usage())
    a.stream(role(), {**delta(""), "choices": [{"index": 0, "delta": {"tool_calls": [tool_call(SCRIPT, IMAGE)]}, "finish_reason": None}]}, finish("tool_calls"))

    async with serving(conf(a.url)) as running, console(running, browser) as page:
        terms = {"name": "odd", "models": [TIGHT, "m"], "tags": [IMAGE, SCRIPT]}
        made = await running.client.post("/admin/keys", json=terms, headers={"x-api-key": ADMIN})
        odd = {"authorization": f"Bearer {made.json()['key']}"}
        await running.chat(authorization=odd["authorization"])
        await running.chat(authorization=odd["authorization"])
        await running.chat({"model": f"m{IMAGE}", "messages": [{"role": "user", "content": "hi"}]}, **CLIENT)
        run = await running.client.post("/v1/agents/said/runs", json={"input": f"{IMAGE}{SCRIPT}"}, headers=CLIENT)
        await sign_in(page)
        seen: dict[str, str] = {}

        async def look(place: str, words: str) -> None:
            await page.go(f"#/{place}")
            await page.sees(words, "main")
            seen[place] = words
            assert await page.js("document.querySelectorAll('main img, main script, dialog img').length") == 0

        await look("requests", f"m{IMAGE}")
        await look("overview", f"m{IMAGE}")
        for row in (await running.client.get("/admin/requests", headers={"x-api-key": ADMIN})).json()["data"]:
            await look(f"requests/{row['id']}", IMAGE if row["class"] else row["model"])
        await look("usage?by=model", f"m{IMAGE}")
        await look("keys", IMAGE)
        await look(f"runs/{run.json()['id']}", SCRIPT)
        await look("runs", IMAGE)
        await page.go("#/playground")
        await page.write("#client-key", KEY)
        await page.press("Enter")
        await page.until("document.querySelector('#model').options.length > 0 && !document.querySelector('#client-key')")
        await page.js("document.querySelector('#model').value = 'm'")
        for words in (IMAGE, SCRIPT):
            await page.write("#prompt", SCRIPT)
            await page.press("Enter")
            await page.until("!document.querySelector('[aria-busy]') && Boolean(document.querySelector('.assistant:last-of-type footer a'))")
            await page.sees(words, ".assistant")
        assert await page.text(".assistant .thinking .prose") == SCRIPT, "reasoning stands apart"
        assert await page.text(".assistant .answer") == IMAGE + SCRIPT
        assert await page.text(".call b") == SCRIPT
        assert await page.js("document.querySelectorAll('main img, main script').length") == 0
        assert "hit" not in await page.js("document.title")
    assert len(seen) >= 9


async def test_the_playground_streams_an_answer_and_goes_on_with_the_result_of_a_tool(a: Upstream, browser: Browser) -> None:
    async with serving(conf(a.url, server="")) as running, console(running, browser) as page:
        await page.sees("Ready", ".banner")  # on this machine, without any key, nobody is asked for one
        await page.click("nav a", "Playground")
        await page.until("document.querySelector('#model')?.options.length === 4")
        await page.click("summary", "Tools")
        await page.click("#offer")
        await page.write("#prompt", "What is the weather in Paris?")
        await page.press("Enter")
        await page.sees("get_weather", ".call")
        await page.until("!document.querySelector('[aria-busy]')")
        await page.write(".results input", "18 degrees")
        await page.press("Enter")
        await page.until("document.querySelectorAll('.assistant').length === 2 && !document.querySelector('[aria-busy]')")
        assert await page.js("document.querySelector('.assistant:last-of-type .answer').innerText.length") > 0
        assert "demo/demo" in await page.text(".assistant:last-of-type footer")
        a.reply({"error": {"message": "not today", "type": "x"}}, status=400)
        await page.js("document.querySelector('#model').value = 'm'")
        await page.write("#prompt", "And tomorrow?")
        await page.press("Enter")
        await page.sees("not today", ".assistant .alarm")
        await page.until("document.querySelector('#prompt').value === 'And tomorrow?'")  # to be sent again, perhaps to another model
        await page.js("document.querySelector('#model').value = 'demo'; document.querySelector('#send').click()")
        await page.until("document.querySelectorAll('.assistant').length === 4 && !document.querySelector('[aria-busy]')")
        assert "demo/demo" in await page.text(".assistant:last-of-type footer")
        await page.click(".assistant:last-of-type footer a", "request")
        await page.sees("demo/demo", ".attempt")


async def test_at_night_it_says_what_is_wrong_and_where(a: Upstream, browser: Browser) -> None:
    a.reply(completion(), repeat=None)
    chain = {"busy": "mock://?status=503", "poor": "mock://?status=429&retry_after=200", "a": a.url}
    agents = "agents:\n  ask: {pattern: react, model: demo/demo, tools: [calculator], approval: {tools: [calculator]}}\n"
    text = yaml(chain, server=KEYED, more=agents).replace("providers:", DEMO).replace("models:", "models:\n  down: busy/busy-model")
    async with serving(text) as running, console(running, browser) as page:
        answer = await running.chat(**CLIENT)
        assert answer.status_code == 200
        for _ in range(3):
            await running.chat({"model": "down", "messages": [{"role": "user", "content": "hi"}]}, **CLIENT)
        await begin(running, "ask")
        async with asyncio.timeout(20):
            while not (await running.client.get("/admin/runs?status=waiting", headers={"x-api-key": ADMIN})).json()["data"]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        await sign_in(page)
        await page.sees("resting for", ".provider")
        await page.sees("1 rate_limit", ".provider")
        await page.sees("3 attempts", "tr.leads")
        await page.sees("down", "tr.leads")
        await page.until("[...document.querySelectorAll('.asks a')].some((link) => link.innerText === 'ask')")
        assert "Failed\n3\n" in await page.text(".tiles")
        await page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        await page.js(LOOK)
        await page.sees("the gateway cannot be reached", ".alarm")
        await page.sees("resting for", ".provider")
        await page.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        await page.js(LOOK)
        await page.until("!document.querySelector('.alarm')")
        await page.go(f"#/requests/{answer.headers['x-request-id']}")
        await page.sees("rate_limit", ".attempt")
        shown = await page.js(
            "[...document.querySelectorAll('.attempt')].map((one) => one.querySelector('.head').innerText.split(/\\s+/).slice(0, 2).join(' '))"
        )
        assert shown == ["busy/busy-model overload", "poor/poor-model rate_limit", "a/a-model 200"]
        await page.click("nav a", "Requests")
        await page.until("document.querySelectorAll('tr.leads').length >= 4")
        await page.click("#failed")
        await page.until("document.querySelectorAll('tr.leads').length === 4")


async def test_the_door(a: Upstream, browser: Browser) -> None:
    async with serving(conf(a.url)) as running, console(running, browser) as page:
        await page.until("document.activeElement?.id === 'admin-key'")
        await page.write("#admin-key", KEY)
        await page.press("Enter")
        await page.sees("This key is not the admin key", ".wrong")
        assert await page.js("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)") == '{}{"thinkgate.theme":"auto"}'
        await sign_in(page)
        await page.open(running.url.removesuffix("v1") + "console#/usage")
        await page.sees("Usage", "h1")  # a reload of the tab asks for nothing
        await page.click("#leave")
        await page.until("document.activeElement?.id === 'admin-key'")
        assert await page.js("JSON.stringify(sessionStorage)") == "{}"
    async with serving(conf(a.url, server=f"keys: [{KEY}]")) as running, console(running, browser) as page:
        await page.sees("server.admin_key", ".door")


async def test_the_first_key_without_an_admin_key_closes_the_door_but_not_before_its_secret_was_read(a: Upstream, browser: Browser) -> None:
    async with serving(conf(a.url, server="")) as running, console(running, browser) as page:
        await page.click("nav a", "Keys")
        await page.sees("There is no admin key", ".alarm")
        await page.click("#new-key")
        await page.write("#key-name", "first")
        await page.click("#key-save")
        await page.sees("/admin is closed until server.admin_key is set", "dialog .alarm")
        await page.js(LOOK)
        await page.sees("The console is closed", "main")
        secret = await page.text("#secret")
        assert (await running.client.get("/v1/models", headers={"x-api-key": secret})).status_code == 200
        await page.click("#secret-done")
        await page.sees("Set server.admin_key", "main")


async def test_behind_a_proxy_it_may_have_a_path_of_its_own(a: Upstream, browser: Browser) -> None:
    async with serving(conf(a.url, server="")) as running:
        inner = int(running.url.rsplit(":", 1)[1].split("/")[0])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            theirs, ours = await asyncio.open_connection("127.0.0.1", inner)

            async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, old: bytes = b"", new: bytes = b"") -> None:
                try:
                    while data := await source.read(65536):
                        target.write(data.replace(old, new, 1) if old and data.startswith(b"GET") else data)
                        await target.drain()
                except ConnectionError:
                    pass
                finally:
                    target.close()

            await asyncio.gather(pass_on(reader, ours, b" /gateway/", b" /"), pass_on(theirs, writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with browsing(*browser) as page:
            await page.open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/gateway/console")
            await page.sees("Ready", ".banner")
            await page.click("nav a", "Playground")
            await page.until("document.querySelector('#model')?.options.length === 4")
            await page.go("#/config")
            await page.sees("providers", ".tree")
            assert page.wrong == []
        server.close()
        await server.wait_closed()


async def test_a_run_is_followed_on_after_the_gateway_could_not_be_reached(a: Upstream, browser: Browser) -> None:
    away, pipes = False, set[asyncio.StreamWriter]()
    async with serving(conf(a.url, server="")) as running:
        inner = int(running.url.rsplit(":", 1)[1].split("/")[0])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if away:
                writer.transport.abort()
                return
            theirs, ours = await asyncio.open_connection("127.0.0.1", inner)
            pipes.update((writer, ours))
            await asyncio.gather(pass_on(reader, ours), pass_on(theirs, writer))

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            except ConnectionError:
                pass
            finally:
                target.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with browsing(*browser) as page:
            run = await begin(running, "slow")
            await page.open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/console#/runs/{run}")
            await page.sees("Waits for your word", ".asks")
            away = True
            for pipe in pipes:
                pipe.transport.abort()
            await page.sees("it is tried again", ".alarm")
            assert (await running.client.post(f"/v1/runs/{run}/approve", json={"approved": True})).status_code == 200
            away = False
            await page.sees("completed", "h1")
            await page.sees("Ends: completed", "#journal")
            assert not await page.js("document.querySelector('.alarm')")
            assert page.wrong == []
        server.close()
        await server.wait_closed()


async def test_a_list_whose_older_pages_are_open_does_not_grow_for_ever(a: Upstream, browser: Browser) -> None:
    async with serving(conf(a.url, server="")) as running, console(running, browser) as page:
        store = running.gateway.ledger.store
        assert store is not None

        async def come(first: int, number: int) -> None:
            await store.write_requests([RequestRow(f"r{n}", time.time(), "chat", "m", 200) for n in range(first, first + number)])

        shown = "document.querySelectorAll('tr.leads').length"
        await come(0, 80)
        await page.go("#/requests")
        await page.until(f"{shown} === 50")
        await page.click("#more")
        await page.until(f"{shown} === 80")
        for turn in range(10):
            await come(100 + 49 * turn, 49)
            await page.js(LOOK)
            await page.until(f"{shown} === {80 + 49 * (turn + 1)}")
        await come(1000, 49)
        await page.js(LOOK)
        await page.until(f"{shown} === 50")
        assert not await page.js("document.querySelector('#more').hidden")


async def test_the_config_is_shown_and_read_again(a: Upstream, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "thinkgate.yaml"
    text = conf(a.url) + "store: sqlite://\n"
    file.write_text(text)
    async with serving(file) as running, console(running, browser) as page:
        await sign_in(page)
        await page.click("nav a", "Config")
        await page.sees("providers", ".tree")
        shown = await page.js("document.documentElement.outerHTML")
        assert not [secret for secret in (KEY, ADMIN, "key-of-a") if secret in shown]
        assert "***" in shown
        file.write_text(text.replace("demo: demo/demo", "renamed: demo/demo").replace("model: demo", "model: renamed"))
        await page.click("#reload")
        await page.sees("Reloaded", "#reloaded")
        await page.sees("renamed", ".tree")
        file.write_text(text + "nonsense: 1\n")
        await page.click("#reload")
        await page.sees("Not reloaded", "#reloaded")
        await page.sees('unknown key "nonsense"', ".alarm")
        await page.click("nav a", "Overview")
        await page.sees('unknown key "nonsense"', ".alarm")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)], ids=["desk", "phone"])
async def test_every_page_fits_and_can_be_reached_by_keys(a: Upstream, browser: Browser, width: int, height: int) -> None:
    a.reply(completion())
    async with serving(conf(a.url)) as running, console(running, browser, width=width, height=height) as page:
        await running.chat(**CLIENT)
        await running.client.post("/admin/keys", json={"name": "k" * 64, "models": ["a-long-name-of-a-model-" * 5], "rpm": 5}, headers={"x-api-key": ADMIN})
        await begin(running, "slow", "x" * 500)
        await sign_in(page)
        for name in PAGES:
            await page.js("document.activeElement?.blur()")
            await page.js(f"document.querySelector('nav a[data-page={name}]').focus()")
            await page.press("Enter")
            await page.until(f"document.querySelector('nav a[data-page={name}]').ariaCurrent === 'page' && Boolean(document.querySelector('h1'))")
            await asyncio.sleep(0.15)  # what it shows may come a little later, and may be too wide
            wide = await page.js("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], f"{name} is {wide[0]} wide"
            unnamed: Any = await page.js(
                "[...document.querySelectorAll('button, a, input:not([type=hidden]), select, textarea')].filter((node) => node.checkVisibility()"
                " && !(node.innerText.trim() || node.ariaLabel || node.labels?.length || node.placeholder)).map((node) => node.outerHTML)"
            )
            assert unnamed == [], name
        await page.go("#/requests?model=m")
        await page.until("document.querySelectorAll('tr.leads').length === 1 && Boolean(document.querySelector('tr.leads a'))")
        await page.js("document.querySelector('tr.leads a').focus()")
        await page.press("Enter")
        await page.sees("a/a-model", ".attempt")
