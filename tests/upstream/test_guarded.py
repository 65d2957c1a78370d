"""The client that tools fetch with: where it goes, and what it takes from there (reliability.md section 7)."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence

import pytest
import trustme
from website import Page, Site, answer, page, redirect

from gateway.errors import FetchFailed, FetchRefused
from gateway.upstream.guarded import Guard, GuardedClient, public

# every one of these reaches this machine, its networks or a metadata service with some client or other
REFUSED = [
    "http://127.0.0.1/",
    "http://127.0.0.1:80/",
    "http://127.8.9.10/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0x7F.0x0.0x0.0x1/",
    "http://0177.0.0.1/",
    "http://0177.0.0.01/",
    "http://127.0.0.1./",
    "http://127.000.000.001/",
    "http://2852039166/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://169.254.43518/",
    "http://169.254.169.254./",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://①②⑦.0.0.1/",
    "http://８.8.8.8/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "http://%31%32%37.0.0.1/",
    "http://8.8/",
    "http://134744072/",
    "http://010.8.8.8/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://192.0.0.8/",
    "http://192.0.0.192/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://168.63.129.16/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::8.8.8.8]/",
    "http://[64:ff9b:1::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    "http://[100::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://any.localhost/",
    "https://localhost/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/",
    "http://user:secret@example.com/",
    "http://@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1\\.example.com/",
    "http://127.0.0.1\t/",
    "http://exa mple.com/",
    "http://example.com:22/",
    "http://example.com:6379/",
    "http://example.com:8080/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "dict://example.com:11211/",
    "data:text/plain,a",
    "jar:http://example.com!/",
    "//example.com/",
    "example.com",
    "http:///",
    "http://",
    "http:127.0.0.1",
    "",
    "http://example.com/" + "a" * 5000,
]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as found:
        yield found


class Names:
    """A resolver that knows its names, and counts how often it was asked."""

    def __init__(self, **names: Sequence[str] | list[Sequence[str]]) -> None:
        self.names = {name.replace("_", "."): list(value) for name, value in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        found = self.names.get(host.rstrip("."), [host])
        if isinstance(found[0], list):  # one answer after the other
            return found.pop(0) if len(found) > 1 else found[0]
        return found  # type: ignore[return-value]


@pytest.mark.parametrize("url", REFUSED)
async def test_an_address_that_is_nobodys_business_is_refused(url: str) -> None:
    """no packet leaves: the tests' own guard of sockets would raise AssertionError"""
    with pytest.raises(FetchRefused) as refused:
        await GuardedClient().get(url)
    assert "secret" not in str(refused.value)


def test_the_table_is_as_long_as_the_specification_wants() -> None:
    """reliability.md section 6: 0 of at least 45 vectors"""
    assert len(set(REFUSED)) >= 45


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001:830::200e"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize("text", ["", "example.com", "8.8", "fe80::1%eth0", "2606:4700:4700::1111%eth0", "::ffff:8.8.8.8"])
def test_what_is_no_plain_address_is_not_public(text: str) -> None:
    assert not public(text)


@pytest.mark.parametrize("inner", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "64:ff9b::7f00:1", "2002:7f00:1::", "100.64.1.1"])
async def test_a_name_that_leads_inside_is_refused(inner: str) -> None:
    with pytest.raises(FetchRefused, match=r"rebind\.example is not a public address"):
        await GuardedClient(resolver=Names(rebind_example=[inner])).get("http://rebind.example/")


@pytest.mark.parametrize("addresses", [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"]])
async def test_one_inner_address_among_public_ones_is_enough_to_refuse(addresses: list[str]) -> None:
    with pytest.raises(FetchRefused):
        await GuardedClient(resolver=Names(two_example=addresses)).get("http://two.example/")


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_judged(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the second answer of the name server would be another one"""
    site.pages["/"] = page("here")
    monkeypatch.setattr("gateway.upstream.guarded.public", lambda address: address == "127.0.0.1")
    monkeypatch.setattr("gateway.upstream.guarded.PORTS", (site.port,))
    names = Names(rebind_example=[["127.0.0.1"], ["127.0.0.2"]])
    got = await GuardedClient(resolver=names).get(f"http://rebind.example:{site.port}/")
    assert got.body == b"here"
    assert names.asked == ["rebind.example"]
    assert site.asked[0][2]["host"] == f"rebind.example:{site.port}"


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.1:PORT", "inner.example", "INNER.example:PORT"])
async def test_what_is_allowed_is_reached_whatever_it_is(site: Site, entry: str) -> None:
    site.pages["/"] = page("inside")
    host = "127.0.0.1" if entry.startswith("127") else "inner.example"
    client = GuardedClient(Guard.of([entry.replace("PORT", str(site.port))]), resolver=Names(inner_example=["127.0.0.1"]))
    assert (await client.get(f"http://{host}:{site.port}/")).body == b"inside"


@pytest.mark.parametrize(
    ("entries", "url"),
    [
        (["127.0.0.1:1"], "http://127.0.0.1:{port}/"),
        (["127.0.0.1"], "http://127.1:{port}/"),
        (["127.0.0.1"], "http://2130706433:{port}/"),
        (["127.0.0.1"], "http://127.0.0.2:{port}/"),
        (["127.0.0.1"], "http://127.0.0.1.:{port}/"),
        (["inner.example"], "http://sub.inner.example:{port}/"),
        (["inner.example"], "http://xinner.example:{port}/"),
        (["inner.example"], "http://inner.example.evil.example:{port}/"),
        (["inner.example"], "http://inner.example@127.0.0.1:{port}/"),
        (["[::1]:{port}"], "http://[::1]:1/"),
        ([], "http://127.0.0.1:{port}/"),
    ],
)
async def test_an_allowed_host_opens_the_way_to_nothing_else(site: Site, entries: list[str], url: str) -> None:
    client = GuardedClient(Guard.of(entry.format(port=site.port) for entry in entries))
    with pytest.raises(FetchRefused):
        await client.get(url.format(port=site.port))
    assert site.asked == []


def test_an_allowed_ipv6_address_may_be_spelt_in_any_way() -> None:
    guard = Guard.of(["[0:0:0:0:0:0:0:1]:8080", "FD00::0:1"])
    assert guard.url("http://[::1]:8080/").port == 8080
    assert guard.url("http://[fd00::1]:9/").port == 9


async def test_only_closes_the_rest_of_the_world(site: Site) -> None:
    site.pages["/"] = page("inside")
    names = Names()
    client = GuardedClient(Guard.of([site.host], only=True), resolver=names)
    assert (await client.get(f"{site.url}/")).ok
    for url in ("https://example.com/", "http://8.8.8.8/", "http://127.0.0.1/"):
        with pytest.raises(FetchRefused, match="not among the hosts"):
            await client.get(url)
    assert names.asked == ["127.0.0.1"], "not even its name is looked up"


async def test_only_without_an_entry_means_nothing_at_all() -> None:
    with pytest.raises(FetchRefused):
        await GuardedClient(Guard.of(only=True)).get("https://example.com/")


async def test_the_proxies_of_the_environment_are_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        site.pages["/"] = page("direct")
        assert (await allowed(site).get(f"{site.url}/")).body == b"direct"
        assert proxy.asked == []


def allowed(*sites: Site, **more: float) -> GuardedClient:
    return GuardedClient(Guard.of(site.host for site in sites), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_said(site: Site, status: int) -> None:
    site.pages |= {"/a": redirect("b?x=1#part", status), "/b": page("there")}
    got = await allowed(site).get(f"{site.url}/a")
    assert (got.body, got.url) == (b"there", f"{site.url}/b?x=1")


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest",
        "//127.0.0.1/",
        "http://localhost/",
        "file:///etc/passwd",
        "http://[::1]/",
        "http://[",
        "http://0x7f.1/",
    ],
)
async def test_each_redirect_is_judged_like_the_first_address(site: Site, to: str) -> None:
    site.pages["/a"] = redirect(to)
    with pytest.raises(FetchRefused):
        await allowed(site).get(f"{site.url}/a")
    assert len(site.asked) == 1


async def test_redirects_have_a_cap(site: Site) -> None:
    site.pages |= {f"/{number}": redirect(f"/{number + 1}") for number in range(9)}
    with pytest.raises(FetchFailed, match="redirects more than 3 times"):
        await allowed(site).get(f"{site.url}/0")
    assert [path for _, path, _, _ in site.asked] == ["/0", "/1", "/2", "/3"]


async def test_headers_of_the_caller_stay_with_the_origin_they_were_meant_for(site: Site) -> None:
    async with Site() as other:
        site.pages |= {"/a": redirect("/b"), "/b": redirect(f"{other.url}/c")}
        other.pages["/c"] = page("there")
        await allowed(site, other).get(f"{site.url}/a", {"authorization": "Bearer key"})
        assert [headers.get("authorization") for _, _, headers, _ in site.asked] == ["Bearer key"] * 2
        assert "authorization" not in other.asked[0][2]


async def test_a_body_is_never_redirected(site: Site) -> None:
    site.pages["/a"] = redirect("/b", 307)
    got = await allowed(site).post(f"{site.url}/a", {"q": "text"}, {"x-api-key": "k"})
    assert got.status == 307
    (method, path, headers, body), *rest = site.asked
    assert (method, path, json.loads(body), headers["x-api-key"], headers["content-type"]) == ("POST", "/a", {"q": "text"}, "k", "application/json")
    assert rest == []


async def test_a_redirect_without_an_address_is_an_answer(site: Site) -> None:
    site.pages["/a"] = page("odd", 302)
    assert (await allowed(site).get(f"{site.url}/a")).status == 302


async def test_no_more_than_the_cap_is_read(site: Site) -> None:
    site.pages["/"] = Page(200, {"content-type": "text/plain"}, [b"x" * 1000] * 50)
    got = await allowed(site, size=10_000).get(f"{site.url}/")
    assert got.truncated
    assert got.body == b"x" * 10_000


@pytest.mark.parametrize(("length", "truncated"), [(9_999, False), (10_000, False), (10_001, True)])
async def test_the_cap_is_exact(site: Site, length: int, truncated: bool) -> None:
    site.pages["/"] = page(b"x" * length)
    assert (await allowed(site, size=10_000).get(f"{site.url}/")).truncated is truncated


async def test_an_endless_body_ends_at_the_cap(site: Site) -> None:
    site.pages["/"] = Page(200, {}, [b"x" * 65536] * 10_000)
    began = time.monotonic()
    assert (await allowed(site).get(f"{site.url}/")).truncated
    assert time.monotonic() - began < 5


async def test_a_bomb_does_not_go_off(site: Site) -> None:
    """100 KB that become 100 MB"""
    site.pages["/"] = page(gzip.compress(b"\0" * 1_000_000, 9) * 100, content_encoding="gzip")
    got = await allowed(site).get(f"{site.url}/")
    assert got.truncated
    assert len(got.body) == 1024 * 1024


async def test_a_compressed_body_is_decoded(site: Site) -> None:
    site.pages["/"] = page(gzip.compress(b"text"), content_encoding="gzip")
    assert (await allowed(site).get(f"{site.url}/")).body == b"text"


async def test_an_unknown_encoding_is_a_failure_in_words(site: Site) -> None:
    site.pages["/"] = page(b"text", content_encoding="br")
    with pytest.raises(FetchFailed, match="'br'"):
        await allowed(site).get(f"{site.url}/")


@pytest.mark.parametrize("slow", [Page(200, {"content-length": "99"}, [b"x"] * 99, pause=0.05), Page(200, {}, [], hang=True)])
async def test_time_has_a_cap_for_the_whole_answer(site: Site, slow: Page) -> None:
    site.pages["/"] = slow
    began = time.monotonic()
    with pytest.raises(FetchFailed, match="in time"):
        await allowed(site, timeout=0.4).get(f"{site.url}/")
    assert time.monotonic() - began < 3


async def test_the_cap_on_time_holds_over_redirects(site: Site) -> None:
    site.pages |= {f"/{number}": Page(302, {"location": f"/{number + 1}", "content-length": "1"}, [b"x"], pause=0.3) for number in range(4)}
    with pytest.raises(FetchFailed, match="in time"):
        await allowed(site, timeout=0.5).get(f"{site.url}/0")


async def test_a_slow_name_server_is_within_the_cap(site: Site) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(30)
        return ["8.8.8.8"]

    with pytest.raises(FetchFailed, match="not resolved in time"):
        await GuardedClient(resolver=never, timeout=0.2).get("http://slow.example/")


async def test_an_unknown_name_is_a_failure_in_words() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(2, "no such name")

    with pytest.raises(FetchFailed, match="does not resolve"):
        await GuardedClient(resolver=unknown).get("http://gone.example/secret-path?key=secret")


async def test_no_path_and_no_query_is_in_a_failure(site: Site) -> None:
    site.pages["/secret"] = Page(200, {"content-length": "9"}, [b"cut"])
    with pytest.raises(FetchFailed) as failed:
        await allowed(site).get(f"{site.url}/secret?api_key=secret")
    assert "secret" not in str(failed.value)
    assert site.host in str(failed.value)


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\0", "é"])
async def test_a_header_cannot_carry_another_one(site: Site, value: str) -> None:
    with pytest.raises(FetchFailed):
        await allowed(site).get(f"{site.url}/", {"x-test": value})
    assert site.asked == []


async def test_it_says_who_it_is_and_takes_no_cookie_along(site: Site) -> None:
    site.pages |= {"/a": page(b"", 302, location="/b", set_cookie="id=1"), "/b": answer({"a": 1})}
    got = await allowed(site).get(f"{site.url}/a")
    assert got.media_type == "application/json"
    assert site.asked[1][2]["user-agent"].startswith("thinkgate/")
    assert "cookie" not in site.asked[1][2]


async def test_https_is_verified_against_the_name_and_not_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """the connection is pinned to an address, the certificate to the name"""
    authority = trustme.CA()
    server_side, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("docs.example").configure_cert(server_side)
    authority.configure_trust(client_side)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side)
    port = server.sockets[0].getsockname()[1]
    names = Names(docs_example=["127.0.0.1"], other_example=["127.0.0.1"])
    client = GuardedClient(Guard.of(["docs.example", "other.example"]), tls=client_side, resolver=names)
    try:
        assert (await client.get(f"https://docs.example:{port}/")).body == b"ok"
        with pytest.raises(FetchFailed, match="certificate"):
            await client.get(f"https://other.example:{port}/")
    finally:
        server.close()
        await server.wait_closed()
