"""Every route of the application x kinds of credentials x odd hosts; names and keys that are more than words; secrets, searched everywhere."""

from __future__ import annotations

import base64
import json
import logging
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import CHAT, Running, serving, yaml
from servers import Postgres, Valkey
from upstream_double import Upstream, completion

SERVER, ADMIN, FILE = "server-key-for-tests-0123456789", "admin-key-for-tests-0123456789", "file-key-for-tests-0123456789"
OPEN = {"/", "/healthz", "/readyz", "/openapi.json", "/console", "/console/x"}
HOSTS = ("127.0.0.1", "localhost", "a/?x=", "example.com@127.0.0.1", "evil.example", "x/healthz?", "127.0.0.1:80/healthz#", "")
NOBODY: dict[str, dict[str, str]] = {
    "none": {},
    "wrong": {"authorization": "Bearer wrong-key-for-tests-0123456789"},
    "wrong x-api-key": {"x-api-key": "wrong-key-for-tests-0123456789"},
    "an empty bearer": {"authorization": "Bearer"},
    "basic": {"authorization": "Basic YTpi"},
    "a digest instead of a key": {"x-api-key": "0" * 64},
    "a key of the file cut short": {"x-api-key": FILE[:-1]},
    "a key in a cookie": {"cookie": f"authorization=Bearer {SERVER}; x-api-key={SERVER}"},
    "a key in another header": {"api-key": SERVER, "x-admin-key": ADMIN, "proxy-authorization": f"Bearer {SERVER}"},
}


def config(a: Upstream, more: str = "") -> str:
    keys = f"keys:\n  one: {{key: {FILE}, models: [m]}}\n"
    return yaml({"a": a.url}, server=f"keys: [{SERVER}]\nadmin_key: {ADMIN}", more=keys + more)


async def routes(running: Running) -> list[tuple[str, str]]:
    """Every (method, path) of the application, with and without /v1, its parameters filled in."""
    document = (await running.client.get("/openapi.json")).json()
    found = [(method.upper(), re.sub(r"\{\w+\}", "x", path)) for path, item in document["paths"].items() for method in item]
    return found + [(method, path.removeprefix("/v1")) for method, path in found if path.startswith("/v1/")]


@pytest.mark.parametrize("who", NOBODY)
async def test_nobody_gets_anything_from_any_route_by_any_host(a: Upstream, who: str) -> None:
    """OWASP API1, API2, API5; CVE-2026-49468: the route is what was asked for, whatever the Host says."""
    a.reply(completion(), repeat=1)

    async with serving(config(a)) as running:
        every = await routes(running)
        assert len(every) > 60
        for host in HOSTS:
            for method, path in every:
                if path in OPEN or path == "/metrics":
                    continue
                got = await running.client.request(method, path, headers={**NOBODY[who], "host": host}, json=CHAT if method == "POST" else None)
                assert got.status_code in (400, 401), (method, path, host, got.status_code)
                assert SERVER not in got.text
                assert ADMIN not in got.text

    assert a.requests == []


async def test_a_client_is_no_administrator_and_an_administrator_no_client(a: Upstream) -> None:
    a.reply(completion(), repeat=1)

    async with serving(config(a)) as running:
        for method, path in await routes(running):
            if path in OPEN:
                continue
            for key in (SERVER, FILE) if path.startswith("/admin") else () if path == "/metrics" else (ADMIN,):
                got = await running.client.request(method, path, headers={"x-api-key": key}, json=CHAT if method == "POST" else None)
                assert got.status_code == 401, (method, path)


@pytest.mark.parametrize(
    "path", ["//admin/keys", "/admin/../admin/keys", "/v1/..%2fadmin/keys", "/ADMIN/keys", "/healthz/../admin/keys", "/admin%2fkeys", "/%61dmin/keys"]
)
async def test_an_odd_path_is_no_way_around_the_admin_key(a: Upstream, path: str) -> None:
    async with serving(config(a)) as running:
        got = await running.client.get(path, headers={"x-api-key": SERVER})
    assert got.status_code in (400, 401, 403, 404)
    assert "data" not in got.json()


STRANGE = (
    "'; DROP TABLE thinkgate_keys; --",
    "x' OR '1'='1",
    'x" OR ""="',
    "x\\'; --",
    "?1; SELECT 1",
    "%s%s%n{0}",
    "${THINGS}{{7*7}}",
    "name\r\nx-evil: 1",
    "имя",
    "\u0000",
    "\ud800",
    "a" * 5000,
    "../../etc/passwd",
    "{thinkgate}:limits",
)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_names_models_tags_and_teams_are_words_and_no_statements(a: Upstream, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """CVE-2026-42208 and its kind: through names, models, tags, ids, query parameters and the key itself."""
    store = f"sqlite:///{tmp_path}/s.db" if kind == "sqlite" else request.getfixturevalue("postgres").fresh()
    a.reply(completion(), repeat=1)

    async with serving(config(a, f"store: {store}\n")) as running:
        client, admin = running.client, {"x-api-key": ADMIN}
        kept = await client.post("/admin/keys", json={"name": "kept"}, headers=admin)
        for text in STRANGE:
            body = json.dumps({"name": text, "models": [text], "tags": [text], "team": text}).encode()
            made = await client.post("/admin/keys", content=body, headers={**admin, "content-type": "application/json"})
            assert made.status_code == 400, text
            named = await client.post(
                "/admin/keys", content=json.dumps({"name": f"n{len(text)}", "tags": [text]}).encode(), headers={**admin, "content-type": "application/json"}
            )
            assert named.status_code in (201, 400, 409), named.text
            word = quote(text.encode("utf-8", "surrogatepass"), safe="")
            for path in (f"keys/{word}/rotate", f"requests/{word}"):
                got = await client.request("POST" if "rotate" in path else "GET", f"/admin/{path}", json={} if "rotate" in path else None, headers=admin)
                assert got.status_code in (400, 404), (path, got.status_code)
            for query in (f"key_name={word}", f"model={word}", f"before={word}", f"limit={word}"):
                assert (await client.get(f"/admin/requests?{query}", headers=admin)).status_code in (200, 400)
            assert (await client.get(f"/admin/usage?by={word}", headers=admin)).status_code == 400
            body = json.dumps({**CHAT, "model": text}).encode()
            asked = await client.post("/v1/chat/completions", content=body, headers={"x-api-key": SERVER, "content-type": "application/json"})
            assert asked.status_code in (400, 404)
            assert "x-evil" not in asked.headers
            sent = bytes(byte for byte in text.encode("latin-1", "ignore") if byte >= 32).strip() or b"x"
            assert (await client.get("/v1/models", headers=[(b"x-api-key", sent)])).status_code in (400, 401)
        still = await client.get("/admin/keys", headers=admin)
        works = await client.get("/v1/models", headers={"x-api-key": kept.json()["key"]})

    assert "kept" in {key["name"] for key in still.json()["data"]}
    assert works.status_code == 200


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=st.binary(min_size=1, max_size=600))
async def test_whatever_is_presented_as_a_key_is_refused(shared_gateway: Running, given: bytes) -> None:
    word = bytes(byte for byte in given if byte > 32 and byte != 127) or b"x"  # what a client can send at all
    for name, value in ((b"x-api-key", word), (b"authorization", b"Bearer " + word)):
        got = await shared_gateway.client.get("/v1/models", headers=[(name, value)])
        assert got.status_code in (400, 401)


@pytest.fixture
async def shared_gateway(a: Upstream) -> Any:
    async with serving(config(a)) as running:
        yield running


def forms(secret: str) -> set[bytes]:
    """A secret as it may turn up: as it is, quoted, in base64 at any offset."""
    raw = secret.encode()
    out = {raw, quote(secret, safe="").encode(), raw.hex().encode(), raw[::-1]}
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + raw)
        out.add(whole[4 if shift else 0 : -4])
    return out


async def test_no_secret_is_anywhere(a: Upstream, valkey: Valkey, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Logs at debug, answers, errors, metrics, admin routes, the database's files: the canaries of every kind of key, in every form."""
    caplog.set_level(logging.DEBUG)
    a.reply({"error": {"message": "wrong key key-of-a-0123456789 given"}}, status=401)
    a.reply(completion(), repeat=50)
    password = Valkey.PASSWORD
    seen: list[bytes] = []

    async with serving(config(a, f"store: sqlite:///{tmp_path}/s.db\nshared: {valkey.fresh()}\n")) as running:
        client, admin = running.client, {"x-api-key": ADMIN}
        made = (await client.post("/admin/keys", json={"name": "canary", "rpm": 100, "budget": {"usd": 1}}, headers=admin)).json()
        rotated = (await client.post(f"/admin/keys/{made['id']}/rotate", json={}, headers=admin)).json()
        keys = [SERVER, FILE, made["key"], rotated["key"]]
        for key in (*keys, "never-a-key-of-ours-0123456789"):
            for body in (CHAT, {**CHAT, "model": "nothing"}, {"model": 1}):
                got = await client.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
                seen += [got.content, repr(got.headers).encode()]
        for path in ("keys", "config", "providers", "requests", "usage", "requests?format=csv"):
            seen.append((await client.get(f"/admin/{path}", headers=admin)).content)
        for path in ("/readyz", "/metrics", "/openapi.json", "/v1/models"):
            seen.append((await client.get(path, headers={"x-api-key": SERVER})).content)
        seen.append(repr([running.gateway.config, running.gateway.ledger.authority.__dict__, running.gateway.shared]).encode())
        await running.gateway.ledger.usage.flush()
        dump = "\n".join(sqlite3.connect(f"file:{tmp_path}/s.db?mode=ro", uri=True).iterdump())
    seen += [caplog.text.encode(), "".join(capfd.readouterr()).encode(), dump.encode()]
    seen += [file.read_bytes() for file in tmp_path.glob("s.db*")]  # noqa: ASYNC240

    whole = b"\n".join(seen)
    assert b"canary" in whole
    for secret in (*keys, ADMIN, "key-of-a-0123456789", password, "never-a-key-of-ours-0123456789"):
        for form in forms(secret):
            assert form not in whole, (secret, form)


async def test_postgres_keeps_digests_alone(a: Upstream, postgres: Postgres) -> None:
    url = postgres.fresh()
    schema = re.search(r"search_path%3D(\w+)", url)
    assert schema
    async with serving(config(a, f"store: {url}\n")) as running:
        made = (await running.client.post("/admin/keys", json={"name": "canary"}, headers={"x-api-key": ADMIN})).json()
    rows = postgres.execute(f"SELECT * FROM {schema[1]}.thinkgate_keys")

    assert len(rows) == 1
    assert made["key"] not in repr(rows)
    assert "canary" in repr(rows)
