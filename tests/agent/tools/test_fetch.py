"""The fetch tool: a page as text, and nothing that it may not reach."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from website import Page, Site, answer, page, redirect

from gateway.agent.tools import Context, Observation
from gateway.agent.tools.fetch import SHOWN, Fetch
from gateway.upstream.guarded import Guard, GuardedClient


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as found:
        yield found


async def fetched(site: Site, path: str = "/", **more: Any) -> Observation:
    return await Fetch(allow=[site.host]).call({"url": f"{site.url}{path}", **more}, Context())


async def test_a_page_comes_as_text_with_its_title_and_where_it_came_from(site: Site) -> None:
    site.pages |= {"/a": redirect("/b"), "/b": page("<title>Rivers</title><p>The <b>Rhine</b> is long.</p>")}
    got = await fetched(site, "/a")
    assert got.ok
    assert got.text == f"{site.url}/b (status 200, text/html), characters 0 to 28 of 28:\n\n# Rivers\n\nThe Rhine is long."


@pytest.mark.parametrize(
    ("kind", "body"), [("application/json", '{"a": [1, "<b>"]}'), ("text/plain", "a <b> c\n\n\nd"), ("application/ld+json", "{}"), ("text/csv", "a,b\n1,2")]
)
async def test_other_texts_come_as_they_are(site: Site, kind: str, body: str) -> None:
    site.pages["/"] = page(body, type=kind)
    assert (await fetched(site)).text.split("\n\n", 1)[1] == body


@pytest.mark.parametrize("kind", ["image/png", "application/pdf", "application/octet-stream", "video/mp4", "application/zip"])
async def test_what_is_no_text_is_not_shown(site: Site, kind: str) -> None:
    site.pages["/"] = page(b"\x89PNG secret", type=kind)
    got = await fetched(site)
    assert not got.ok
    assert kind in got.text
    assert "secret" not in got.text


async def test_an_answer_without_a_type_is_judged_by_its_bytes(site: Site) -> None:
    site.pages |= {"/t": page("plain words", type=None), "/b": page(b"\0\1binary", type=None), "/h": page("<!DOCTYPE html><p>a &amp; b", type=None)}
    assert (await fetched(site, "/t")).text.endswith("plain words")
    assert not (await fetched(site, "/b")).ok
    assert (await fetched(site, "/h")).text.endswith("\n\na & b")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("Größe 大小".encode(), "text/plain"),
        ("Größe 大小".encode(), "text/plain; charset=utf-8"),
        ("\ufeffGröße 大小".encode(), "text/plain"),
        ("Größe 大小".encode("utf-16"), "text/plain; charset=UTF-16"),
        ("<meta charset='gb18030'><p>Größe 大小".encode("gb18030"), "text/html"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=gbk"><p>大小'.encode("gbk"), "text/html"),
        ("Größe".encode("latin-1"), 'text/plain; charset="ISO-8859-1"'),
        ("大小".encode("shift_jis"), "text/plain; charset=Shift_JIS"),
        ("Größe".encode("cp1252"), "text/plain; charset=windows-1252"),
    ],
)
async def test_charsets_of_the_web_are_read(site: Site, body: bytes, kind: str) -> None:
    site.pages["/"] = page(body, type=kind)
    text = (await fetched(site)).text.split("\n\n", 1)[1]
    assert "Größe" in text or "大小" in text
    assert "\ufeff" not in text
    assert "\ufffd" not in text


@pytest.mark.parametrize("name", ["zip", "hex", "punycode", "unicode_escape", "idna", "rot13", "utf-7", "no-such"])
async def test_other_codecs_of_python_are_none_of_the_web(site: Site, name: str) -> None:
    site.pages["/"] = page(b"a\\u0041+AGE-", type=f"text/plain; charset={name}")
    assert (await fetched(site)).text.endswith("a\\u0041+AGE-")


async def test_a_long_page_comes_in_parts(site: Site) -> None:
    text = "".join(f"{number:07}\n" for number in range(5000))
    site.pages["/"] = page(text, type="text/plain")
    seen, start = "", 0
    for _ in range(3):
        got = (await fetched(site, start=start)).text
        head, part = got.split("\n\n", 1)
        part, more, _ = part.partition(f"\n\n(more follows: call again with start {start + SHOWN})")
        seen += part
        start += SHOWN
        assert f"of {len(text)}:" in head
        if not more:
            break
    assert seen == text
    assert "(nothing)" in (await fetched(site, start=10**6)).text


async def test_a_page_beyond_the_cap_says_so(site: Site) -> None:
    site.pages["/"] = page("x" * 5000, type="text/plain")
    tool = Fetch(client=GuardedClient(Guard.of([site.host]), size=1000))
    got = await tool.call({"url": f"{site.url}/"}, Context())
    assert got.text.endswith("(the page is longer than what can be read)")


async def test_an_error_page_is_shown_as_one(site: Site) -> None:
    site.pages["/"] = page("<p>Not here", 404)
    got = await fetched(site)
    assert not got.ok
    assert "status 404" in got.text
    assert "Not here" in got.text


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd", "http://[::1]/", "http://localhost:6379/"])
async def test_an_address_inside_is_an_observation(url: str) -> None:
    got = await Fetch().call({"url": url}, Context())
    assert not got.ok
    assert got.text.startswith("Error: this address may not be reached: ")


async def test_only_what_is_allowed_is_reached_when_nothing_else_may_be(site: Site) -> None:
    site.pages["/"] = page("inside", type="text/plain")
    tool = Fetch(allow=[site.host], only=True)
    assert (await tool.call({"url": f"{site.url}/"}, Context())).ok
    assert "not among the hosts" in (await tool.call({"url": "https://example.com/"}, Context())).text


async def test_a_failure_is_an_observation(site: Site) -> None:
    site.pages["/"] = Page(200, {"content-length": "9"}, [b"cut"])
    got = await fetched(site)
    assert not got.ok
    assert got.text.startswith("Error: the page could not be read: ")


@pytest.mark.parametrize(
    "arguments", [{}, {"url": ""}, {"url": None}, {"url": 7}, {"url": "https://example.com", "start": -1}, {"url": "https://example.com", "start": "x"}]
)
async def test_arguments_that_do_not_fit_are_an_observation(arguments: dict[str, Any]) -> None:
    got = await Fetch().call(arguments, Context())
    assert not got.ok
    assert got.text.startswith("Error: start must be" if "start" in arguments else "Error: url must be")


async def test_control_characters_do_not_come_through(site: Site) -> None:
    site.pages["/"] = page("a\x1b[31mb\x00c\td\n", type="text/plain")
    assert (await fetched(site)).text.endswith("\n\na[31mbc\td\n")


async def test_a_json_answer_of_a_service_is_shown(site: Site) -> None:
    site.pages["/"] = answer({"n": 1})
    assert (await fetched(site)).text.endswith('{"n": 1}')


def test_its_schema_asks_for_a_url() -> None:
    parameters = Fetch().parameters
    assert parameters["required"] == ["url"]
    assert parameters["properties"]["start"]["type"] == "integer"
