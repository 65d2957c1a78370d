"""The console's files: open to everybody, with nothing in them, and nothing beside them to be had (CONTRACT 4)."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
from running import KEY, serving, yaml

from gateway.api import console

ADMIN = "admin-key-for-tests-0123456789"
KEYED = f"keys: [{KEY}]\nadmin_key: {ADMIN}"
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(console.FOLDER.glob("*.js"))
WANTED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style"):
            self.inline += data.strip()


async def test_the_root_leads_to_the_page() -> None:
    async with serving(yaml({"a": "mock://"}, server=KEYED)) as running:
        root = await running.client.get("/")
        head = await running.client.head("/")
        page = await running.client.get("/", follow_redirects=True)

    assert (root.status_code, root.headers["location"]) == (307, "/console")
    assert (head.status_code, head.content) == (200, b"")
    assert (page.status_code, page.url.path) == (200, "/console")
    assert page.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("server", ["", KEYED, f"keys: [{KEY}]", "open: true"], ids=["no keys", "keys", "no admin key", "open"])
async def test_every_file_is_there_for_everybody_with_its_type_and_headers(server: str) -> None:
    async with serving(yaml({"a": "mock://"}, server=server)) as running:
        for name, file in console.files().items():
            got = await running.client.get(f"/console/{name}")
            assert (got.status_code, got.content) == (200, (console.FOLDER / name).read_bytes())
            assert got.headers["content-type"] == file.type
            assert got.headers.items() >= WANTED.items()
            assert "x-request-id" in got.headers


async def test_the_policy_lets_in_nothing_but_the_files_beside_the_page() -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        got = await running.client.get("/console")

    policy = dict(part.split(None, 1) for part in got.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == policy["trusted-types"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["img-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in got.headers["content-security-policy"]


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        first = await running.client.get("/console/console.js")
        tag = first.headers["etag"]
        same = await running.client.get("/console/console.js", headers={"if-none-match": f'"other", W/{tag}'})
        other = await running.client.get("/console/console.js", headers={"if-none-match": '"other"'})
        head = await running.client.head("/console/console.js")

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert same.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert (other.status_code, other.content) == (200, first.content)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)


@pytest.mark.parametrize(
    "path",
    [
        "/console/../config.py",
        "/console/..%2fapp.py",
        "/console/%2e%2e/app.py",
        "/console/..%5capp.py",
        "/console/....//app.py",
        "/console/%2fetc%2fpasswd",
        "/console//etc/passwd",
        "/console/index.html%00.js",
        "/console/sub/../console.js",
        "/console/./console.js",
        "/console/nothing.js",
        "/console/console.js/",
        "/console/Console.js",
        "/console/__init__.py",
        "/consoles",
    ],
)
async def test_nothing_else_can_be_had_below_the_path(path: str) -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1].split("/")[0]))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())  # as it stands: a client would clean it up
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()

    assert answer.split()[1] in ("400", "404"), answer
    assert "import" not in answer
    assert "root:" not in answer


async def test_only_reading_is_served_and_only_without_a_slash() -> None:
    async with serving(yaml({"a": "mock://"}, server=KEYED)) as running:
        posted = await running.client.post("/console")
        slash = await running.client.get("/console/")

    assert (posted.status_code, posted.json()["error"]["code"]) == (405, "method_not_allowed")
    assert (slash.status_code, slash.headers["location"]) == (307, "../console")


async def test_what_the_page_shows_needs_the_admin_key() -> None:
    async with serving(yaml({"a": "mock://"}, server=KEYED)) as running:
        for path in ("providers", "config", "keys", "requests", "requests/x", "usage", "runs", "runs/x", "runs/x/events"):
            assert (await running.client.get(f"/admin/{path}")).status_code == 401
            assert (await running.client.get(f"/admin/{path}", headers={"x-api-key": KEY})).status_code == 401
        for path in ("reload", "keys", "runs/x/cancel", "runs/x/approve", "runs/x/input"):
            assert (await running.client.post(f"/admin/{path}", json={}, headers={"x-api-key": KEY})).status_code == 401


async def test_no_file_holds_a_secret_of_the_gateway() -> None:
    async with serving(yaml({"a": "mock://"}, server=KEYED)) as running:
        for path in ("/console", *(f"/console/{name}" for name in console.files())):
            text = (await running.client.get(path)).text
            assert KEY not in text
            assert ADMIN not in text
            assert "key-of-a" not in text


def test_the_page_has_no_inline_script_and_names_only_files_that_there_are() -> None:
    tags = Tags()
    tags.feed((console.FOLDER / "index.html").read_text())

    assert tags.inline == ""
    for tag, attributes in tags.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href"):
            if (where := attributes.get(name)) is not None:
                assert where.removeprefix("console/") in console.files(), where
    scripts = {name for name in console.files() if name.endswith(".js")}
    named = {str(attributes.get("src") or attributes.get("href")).removeprefix("console/") for tag, attributes in tags.found if tag in ("script", "link")}
    assert scripts <= named, "each is loaded at once, not one after the other"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_a_text_or_knows_another_host(script: Path) -> None:
    text = script.read_text()

    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "srcdoc", "createContextualFragment"):
        assert word not in text
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    for module in re.findall(r'from "([^"]+)"', text):
        assert module.removeprefix("./") in console.files()
    assert len(text.splitlines()) < 600
    if script.name != "api.js":
        assert "sessionStorage" not in text, "the keys are one module's business"
    assert "localStorage" not in text.replace('localStorage.setItem("thinkgate.theme"', "").replace('localStorage.getItem("thinkgate.theme")', "")


def test_the_wheel_brings_the_files(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")

    inside = set(zipfile.ZipFile(wheel).namelist())

    assert {f"gateway/console/{name}" for name in console.files()} <= inside
