"""A page in a real browser, spoken to over the DevTools protocol on a pipe: keys and clicks as a person makes them, and everything that went wrong in it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

_PATIENCE = 20.0  # for what a page shows sooner or later; on a quiet machine it takes milliseconds
_LIMIT = 64 * 2**20
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # root, and containers without user namespaces, cannot have one; it sees pages of this gateway only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
_KEYS = {"Enter": 13, "Tab": 9, "Escape": 27}


class Page:
    """One page. `wrong` is what a page without a fault has none of: exceptions, errors in its console, refusals of its policy, dialogs of scripts."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.wrong: list[str] = []
        self._reader, self._writer = reader, writer
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._session: str | None = None
        self._task = asyncio.create_task(self._read())

    async def begin(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        self._session = (await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        told = {"id": number, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        self._writer.write(json.dumps(told).encode() + b"\0")
        await self._writer.drain()
        async with asyncio.timeout(_PATIENCE):
            return await self._asked[number]

    async def _read(self) -> None:
        try:
            while True:
                told = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                waiting = self._asked.pop(told.get("id", 0), None)
                if waiting is None:
                    self._hear(told.get("method"), told.get("params", {}))
                elif not waiting.done():
                    if "error" in told:
                        waiting.set_exception(AssertionError(told["error"]["message"]))
                    else:
                        waiting.set_result(told["result"])
        except (asyncio.IncompleteReadError, ConnectionError):
            for waiting in self._asked.values():
                waiting.cancel()

    def _hear(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.wrong.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Page.javascriptDialogOpening":
            self.wrong.append(f"dialog: {params['message']}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.wrong.append(f"console: {params['args']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error" and params["entry"]["source"] != "network":
            self.wrong.append(f"{params['entry']['source']}: {params['entry']['text']}")

    async def close(self) -> None:
        self._session = None
        try:
            await self.call("Browser.close")
        except (asyncio.CancelledError, TimeoutError, ConnectionError):
            pass
        self._task.cancel()
        await asyncio.wait((self._task,))

    # ---- what a person does ----

    async def open(self, url: str, width: int = 1280, height: int = 900) -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        await self.call("Page.navigate", url=url)

    async def go(self, place: str) -> None:
        """To another page of the console."""
        await self.js(f"location.hash = {json.dumps(place)}")

    async def js(self, expression: str) -> Any:
        told = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true in the page; gives its value."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while not (value := await self.js(expression)):  # noqa: ASYNC110 - it happens in another process
                    await asyncio.sleep(0.03)
                return value
        except TimeoutError:
            raise AssertionError(f"never true: {expression}\nwrong: {self.wrong}\nthe page says:\n{await self.text()}") from None

    async def sees(self, words: str, where: str = "body") -> None:
        await self.until(f"[...document.querySelectorAll({json.dumps(where)})].some((node) => node.innerText.includes({json.dumps(words)}))")

    async def text(self, where: str = "body") -> str:
        found: str = await self.js(f"document.querySelector({json.dumps(where)})?.innerText ?? ''")
        return found

    async def click(self, where: str, words: str = "") -> None:
        """The first element of this kind that shows the words, where it is and when it can be clicked."""
        fits = f"node.innerText.includes({json.dumps(words)}) && !node.disabled && node.checkVisibility()"
        found = f"[...document.querySelectorAll({json.dumps(where)})].find((node) => {fits})"
        await self.until(f"Boolean({found})")
        box = "const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2];"
        middle = f"((node) => {{ node.scrollIntoView({{ block: 'center', behavior: 'instant' }}); {box} }})"
        x, y = await self.js(f"{middle}({found})")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def write(self, where: str, words: str) -> None:
        """Words into a field, in the place of what stands there."""
        await self.until(f"document.querySelector({json.dumps(where)})?.checkVisibility()")
        await self.js(f"((field) => {{ field.value = ''; field.focus(); }})(document.querySelector({json.dumps(where)}))")
        await self.call("Input.insertText", text=words)

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS[key], **text)


@asynccontextmanager
async def browsing(program: str, env: dict[str, str]) -> AsyncIterator[Page]:
    """A fresh browser with one page; it is over with all that it kept at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # the protocol is spoken on descriptors 3 and 4, which the shell makes of a pipe to its input and output
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh", program, *_ARGUMENTS, f"--user-data-dir={home}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": home, **env},
            limit=_LIMIT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        page = Page(process.stdout, process.stdin)
        try:
            await page.begin()
            yield page
        finally:
            await page.close()
            try:
                await asyncio.wait_for(process.wait(), 5)
            except TimeoutError:
                process.kill()
                await process.wait()
            page._writer.close()
