"""/admin: who gets in, what it shows, and that nothing secret is in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import KEY, serving, yaml

ADMIN = "admin-key-for-tests-0123456789"


async def test_without_any_key_this_machine_may_look() -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        answer = await running.client.get("/admin/providers")

    assert answer.status_code == 200
    assert answer.json()["data"][0]["name"] == "a"


async def test_with_client_keys_but_no_admin_key_it_is_closed() -> None:
    async with serving(yaml({"a": "mock://"}, server=f"keys: [{KEY}]")) as running:
        answer = await running.client.get("/admin/providers", headers={"authorization": f"Bearer {KEY}"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "admin_disabled")


@pytest.mark.parametrize(("key", "status"), [(ADMIN, 200), (KEY, 401), ("", 401)])
async def test_only_the_admin_key_opens_it(key: str, status: int) -> None:
    async with serving(yaml({"a": "mock://"}, server=f"keys: [{KEY}]\nadmin_key: {ADMIN}")) as running:
        headers = {"x-api-key": key} if key else {}
        answer = await running.client.get("/admin/config", headers=headers)
        chat = await running.chat(authorization=f"Bearer {ADMIN}")

    assert answer.status_code == status
    assert chat.status_code == 401, "the admin key is no client key"


async def test_the_config_is_shown_without_its_secrets() -> None:
    text = yaml({"a": "mock://"}, server=f"keys: [{KEY}]\nadmin_key: {ADMIN}", a="headers: {x-team: secret-header-value}")
    text += """
agents:
  plain:
    pattern: simple
    model: m
    mcp:
      own: {command: [server, --token, secret-argument], env: {TOKEN: secret-variable}}
      far: {url: "http://127.0.0.1:9/mcp?key=secret-in-url", headers: {x-key: secret-of-server}}
"""
    async with serving(text) as running:
        answer = await running.client.get("/admin/config", headers={"x-api-key": ADMIN})

    shown = answer.json()["config"]
    assert shown["providers"]["a"]["api_keys"] == ["***"]
    assert shown["models"]["m"]["chain"][0]["provider"] == "a"
    assert shown["agents"]["plain"]["mcp"]["own"]["command"] == ["server", "***", "***"]
    assert shown["agents"]["plain"]["mcp"]["far"]["url"] == "http://127.0.0.1:9/mcp?***"
    for secret in (KEY, ADMIN, "key-of-a", "secret-header-value", "secret-argument", "secret-variable", "secret-in-url", "secret-of-server"):
        assert secret not in answer.text


async def test_reload_takes_a_good_config_and_keeps_the_old_one_for_a_bad_one(tmp_path: Path) -> None:
    file = tmp_path / "thinkgate.yaml"
    file.write_text(yaml({"a": "mock://?reply=one&gap=0"}))
    async with serving(file) as running:
        file.write_text(yaml({"a": "mock://?reply=two&gap=0"}))
        good = await running.client.post("/admin/reload")
        second = await running.chat()
        file.write_text(yaml({"a": "mock://?reply=three&gap=0"}) + "nonsense: 1\n")
        bad = await running.client.post("/admin/reload")
        third = await running.chat()
        ready = await running.client.get("/readyz")

    assert good.json() == {"reloaded": True, "error": None}
    assert second.json()["choices"][0]["message"]["content"] == "two"
    assert bad.status_code == 409
    assert 'unknown key "nonsense"' in bad.json()["error"]
    assert third.json()["choices"][0]["message"]["content"] == "two"
    assert "nonsense" in ready.json()["config"]["error"]


async def test_the_config_says_when_it_was_read_again_and_how_that_went(tmp_path: Path) -> None:
    file = tmp_path / "thinkgate.yaml"
    file.write_text(yaml({"a": "mock://"}))
    async with serving(file) as running:

        async def told() -> tuple[Any, str | None, str]:
            shown = (await running.client.get("/admin/config")).json()
            return shown["last_reload"], shown["reload_error"], (await running.client.get("/readyz")).json()["config"]["state"]

        assert await told() == (None, None, "current")
        began = time.time()
        await running.client.post("/admin/reload")
        last, error, state = await told()
        assert began <= last.pop("time") <= time.time()
        assert (last, error, state) == ({"ok": True, "error": None}, None, "current")

        file.write_text("providers: {}\n")
        await running.client.post("/admin/reload")
        last, error, state = await told()
        assert (last["ok"], state) == (False, "stale")
        assert last["error"] == error == f"{file}:1:1: providers: at least one provider is needed"


async def test_ready_tells_the_state_of_config_store_and_shared() -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        ready = (await running.client.get("/readyz")).json()

    assert [ready[part]["state"] for part in ("config", "store", "shared")] == ["current", "up", "off"]


async def test_the_breakers_of_a_providers_targets_are_shown() -> None:
    async with serving(yaml({"a": "mock://?status=500&gap=0", "b": "mock://?status=429&retry_after=9"}, a="retries: 0\ncooldown: {after: 2}")) as running:
        await running.chat()
        first = (await running.client.get("/admin/providers")).json()["data"]
        await running.chat()
        second = (await running.client.get("/admin/providers")).json()["data"]

    once, twice, limited = first[0]["targets"]["a/a-model"], second[0]["targets"]["a/a-model"], second[1]["targets"]["b/b-model"]
    assert once == {"state": "closed", "failures": 1, "class": None, "rest": 0.0}
    assert (twice["state"], twice["failures"], twice["class"]) == ("resting", 2, "server")
    assert (limited["state"], limited["class"]) == ("resting", "rate_limit")
    assert 8 < limited["rest"] <= 9


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("PUT", "/admin/keys", "GET, HEAD, POST"), ("PUT", "/admin/keys/x", "DELETE, PATCH"), ("POST", "/v1/sessions/x", "DELETE, GET, HEAD")],
)
async def test_a_405_names_all_methods_of_its_path(method: str, path: str, allow: str) -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        answer = await running.client.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


async def test_a_key_may_be_written_as_commands_and_config_files_write_it() -> None:
    async with serving(yaml({"a": "mock://"}, server=f"admin_key: {ADMIN}")) as running:

        async def made(**body: Any) -> httpx.Response:
            return await running.client.post("/admin/keys", json=body, headers={"x-api-key": ADMIN})

        good = (await made(name="k", tpm="100k", rpm="60", expires="30d")).json()
        day = (await made(name="l", expires="2027-01-01")).json()
        bad = [await made(name="n", **{field: "soon"}) for field in ("rpm", "expires")]
        again = [(await running.client.post(f"/admin/keys/{good['id']}/rotate", json={}, headers={"x-api-key": ADMIN})).json() for _ in range(2)]

    assert (good["tpm"], good["rpm"], round((good["expires"] - time.time()) / 86400)) == (100_000, 60, 30)
    assert day["expires"] == 1798761600
    assert [(answer.status_code, answer.json()["error"]["param"]) for answer in bad] == [(400, "rpm"), (400, "expires")]
    assert {key["counts_as"] for key in again} == {good["id"]}, "what all its secrets use counts together"


async def test_origins_of_web_pages_are_reloaded_too_and_what_takes_a_restart_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "thinkgate.yaml"
    file.write_text(yaml({"a": "mock://"}))
    async with serving(file) as running:

        async def preflight() -> int:
            asked = {"origin": "https://app.example.com", "access-control-request-method": "PATCH"}
            return (await running.client.options("/v1/models", headers=asked)).status_code

        before = await preflight()
        file.write_text(yaml({"a": "mock://"}, server="cors: [https://app.example.com]\ndrain: 1s").replace("port: 0", "port: 9"))
        assert running.gateway.reload()
        during = await preflight()
        file.write_text(yaml({"a": "mock://"}))
        assert running.gateway.reload()
        after = await preflight()

    assert (before, during, after) == (403, 200, 403)
    told = [record.getMessage() for record in caplog.records if "takes a restart" in record.getMessage()]
    assert [line.split(": ")[1] for line in told[:2]] == ["server.port", "server.drain"]


async def test_a_reload_that_fails_at_an_agent_changes_nothing_of_what_is_allowed_and_known(tmp_path: Path) -> None:
    """B117: no partial change. Tools are looked at last, when providers, limits and rests of the new config are there already."""
    file, tool = tmp_path / "thinkgate.yaml", "agents: {w: {pattern: simple, model: m, tools: ['python:tools.py:f']}}"
    file.write_text(yaml({"a": "mock://?gap=0", "down": "mock://?status=429&retry_after=60"}, a="limits: {rpm: 1}"))
    async with serving(file) as running:
        first = await running.chat()
        await running.chat({"model": "down/x", "messages": [{"role": "user", "content": "hi"}]})
        resting = (await running.client.get("/readyz")).json()["providers"]["resting"]
        file.write_text(yaml({"a": "mock://?gap=0", "down": "mock://?status=429&retry_after=61"}, a="limits: {rpm: 1000}", more=tool))
        failed = await running.client.post("/admin/reload")
        limited = await running.chat({"model": "a/x", "messages": [{"role": "user", "content": "hi"}]})
        still = (await running.client.get("/readyz")).json()["providers"]["resting"]

    assert (first.status_code, failed.status_code) == (200, 409)
    assert "agents.w.tools[0]: tools.py: there is no such file" in failed.json()["error"].replace(f"{tmp_path}/", "")
    assert limited.status_code in (429, 503), "the limit of the config that is in use"
    assert "down/x" in resting
    assert "down/x" in still


async def test_what_nobody_foresaw_is_an_error_like_any_other_and_in_the_log_under_its_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        store = running.gateway.ledger.store
        assert store is not None

        async def fail(*given: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(store, "requests", fail)
        answer = await running.client.get("/admin/requests", headers={"x-request-id": "the-id"})

    assert (answer.status_code, answer.headers["x-request-id"], answer.json()["error"]["type"]) == (500, "the-id", "server_error")
    assert any("id=the-id unexpected failure: ZeroDivisionError" in record.message for record in caplog.records)
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)
