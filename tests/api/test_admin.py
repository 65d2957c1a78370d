"""/admin: who gets in, what it shows, and that nothing secret is in it."""

from __future__ import annotations

from pathlib import Path

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
    async with serving(text) as running:
        answer = await running.client.get("/admin/config", headers={"x-api-key": ADMIN})

    shown = answer.json()["config"]
    assert shown["providers"]["a"]["api_keys"] == ["***"]
    assert shown["models"]["m"]["chain"][0]["provider"] == "a"
    for secret in (KEY, ADMIN, "key-of-a", "secret-header-value"):
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
