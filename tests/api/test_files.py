"""/v1/files and /v1/batches: passed on to one provider."""

from __future__ import annotations

import pytest
from running import serving, yaml
from upstream_double import Upstream

from gateway import config
from gateway.errors import ConfigError


async def test_a_file_goes_up_byte_for_byte_and_comes_back(a: Upstream, b: Upstream) -> None:
    b.reply({"id": "file_1", "object": "file"})
    b.reply(b"\x00\x01raw\xff" * 1000, headers={"content-type": "application/octet-stream"})
    async with serving(yaml({"a": a.url, "b": b.url}, server="files: b")) as running:
        files = {"file": ("x.jsonl", b'{"a":1}\n', "application/jsonl")}
        request = running.client.build_request("POST", "/v1/files", data={"purpose": "batch"}, files=files)
        raw = await request.aread()
        made = await running.client.send(request)
        got = await running.client.get("/v1/files/file_1/content?x=1")

    assert made.json()["id"] == "file_1"
    assert b.requests[0].raw == raw
    assert b.requests[0].headers["content-type"] == request.headers["content-type"]
    assert b.requests[0].headers["authorization"] == "Bearer key-of-b-0123456789"
    assert (b.requests[1].method, b.requests[1].path, b.requests[1].query) == ("GET", "/files/file_1/content", "x=1")
    assert got.content == b"\x00\x01raw\xff" * 1000
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-thinkgate-provider"] == "b"
    assert not a.requests


async def test_the_header_names_the_provider_and_errors_keep_their_status(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "no such batch", "type": "invalid_request_error", "param": None, "code": None}}, status=404)
    async with serving(yaml({"a": a.url, "b": b.url}, server="files: b")) as running:
        got = await running.client.post("/v1/batches/batch_1/cancel", headers={"x-thinkgate-provider": "a"})

    assert got.status_code == 404
    assert got.json()["error"]["message"] == "no such batch"
    assert a.requests[0].path.endswith("/batches/batch_1/cancel")


async def test_without_a_provider_it_says_what_to_set() -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        got = await running.client.get("/v1/files")
        unknown = await running.client.get("/v1/files", headers={"x-thinkgate-provider": "zzz"})

    assert (got.status_code, got.json()["error"]["code"]) == (400, "no_files_provider")
    assert unknown.status_code == 400


async def test_an_unreachable_provider_is_a_502() -> None:
    async with serving(yaml({"a": "http://127.0.0.1:9"}, server="files: a")) as running:
        got = await running.client.get("/v1/files")

    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_unreachable")


def test_an_unknown_provider_of_files_is_a_fault_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r'server.files: unknown provider "openia"; known: openai; did you mean "openai"'):
        config.parse("server: {files: openia}\nproviders: {openai: {api_key: k-0123456789}}\nmodels: {m: openai/x}\n", env={})
