"""`x-thinkgate-dry-run`: what would be sent is shown, and nothing is done."""

from __future__ import annotations

from typing import Any

import pytest
from running import CHAT, serving, yaml
from upstream_double import Upstream, completion

DRY = {"x-thinkgate-dry-run": "1"}
AGENT = "agents: {w: {pattern: simple, model: m}}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/agents/w/runs", {"input": "x"}),
        ("/v1/files", {"purpose": "batch"}),
        ("/batches", {"input_file_id": "f"}),
        ("/v1/responses/input_tokens", {"model": "m", "input": "x"}),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        ("/admin/keys", {"name": "k"}),
        ("/admin/reload", {}),
    ],
)
async def test_what_has_no_chain_to_explain_is_refused_and_not_done(a: Upstream, path: str, body: Any) -> None:
    a.reply(completion())
    async with serving(yaml({"a": a.url}, server="files: a", more=AGENT)) as running:
        answer = await running.client.post(path, json=body, headers=DRY)
        keys, config = (await running.client.get("/admin/keys")).json(), (await running.client.get("/admin/config")).json()

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "dry_run_unsupported")
    assert (a.requests, keys["data"], config["last_reload"]) == ([], [], None)


async def test_a_form_is_shown_without_its_body(a: Upstream) -> None:
    async with serving(yaml({"a": a.url})) as running:
        answer = await running.client.post("/v1/audio/transcriptions", data={"model": "m"}, files={"file": ("a.wav", b"RIFF")}, headers=DRY)

    shown = answer.json()["targets"][0]
    assert (answer.status_code, shown["url"], shown["body"]) == (200, f"{a.url}/audio/transcriptions", {})
    assert shown["headers"]["content-type"].startswith("multipart/form-data; boundary=")
    assert a.requests == []


@pytest.mark.parametrize(("value", "dry"), [("1", True), ("true", True), ("on", True), ("0", False), ("off", False), ("False", False), ("no", False)])
async def test_a_header_that_says_no_is_no_dry_run(a: Upstream, value: str, dry: bool) -> None:
    a.reply(completion())
    async with serving(yaml({"a": a.url})) as running:
        answer = await running.client.post("/v1/chat/completions", json=CHAT, headers={"x-thinkgate-dry-run": value})

    assert ("targets" in answer.json(), len(a.requests)) == (dry, 0 if dry else 1)
