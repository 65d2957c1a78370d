"""The drill over configs of all kinds, through real sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import config
from gateway.cli import main
from gateway.drill.faults import FAULTS
from gateway.drill.rehearsal import Report, drill, harmless
from gateway.errors import InvalidRequest, NotFound

SECRET = "sk-real-0123456789abcdef"
PROVIDERS = f"""
server: {{keys: [client-key-0123456789]}}
providers:
  deepseek: {{api_key: {SECRET}, retries: 0}}
  anthropic: {{api_key: {SECRET}, retries: 0}}
  gemini: {{api_key: {SECRET}, retries: 0}}
  bedrock: {{api_key: {SECRET}, retries: 0, headers: {{X-Token: {SECRET}}}}}
  house: {{adapter: openai, base_url: "http://127.0.0.1:1/v1", retries: 0}}
  fake: {{adapter: openai, base_url: "mock://?status=500", retries: 0}}
models:
"""
BEFORE_CONTENT = ("connection refused", "connection reset", "cut before content", "empty answer", "nothing at all", "error inside 200", "bad JSON")


def named(*names: str) -> list[object]:
    return [fault for fault in FAULTS if fault.name in names]


async def drilled(models: str, model: str = "m", faults: object = FAULTS) -> Report:
    return await drill(config.parse(PROVIDERS + models, env={}), model, faults, slow=1.5)  # type: ignore[arg-type]


def failed(report: Report) -> list[tuple[str, str, bool, list[str]]]:
    return [(row.fault, row.meets, row.stream, row.verdict.problems) for row in report.rows if not row.passed]


@pytest.mark.parametrize("first", ["deepseek/deepseek-v4-pro", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro", "bedrock/anthropic.claude-3", "fake/x"])
async def test_every_fault_is_survived_in_every_dialect(first: str) -> None:
    report = await drilled(f"  m: {{chain: [{first}, house/x]}}\n")

    assert failed(report) == []
    assert len(report.rows) == 2 * (2 * len(FAULTS) - 1)
    rows = {(row.fault, row.meets, row.stream): row for row in report.rows}
    provider = first.partition("/")[0]
    assert rows["connection refused", "first", True].chain == f"{provider}=connect,house=200"
    assert rows["slow first token", "all", True].chain == f"{provider}=first_token_timeout,house=first_token_timeout"
    assert rows["cut after content", "first", True].verdict.outcome == "cut"
    assert rows["429, retry after 3 s", "all", False].got.headers["retry-after"] == "3"
    assert rows["400 bad request", "all", True].got.status == 400


async def test_a_chain_of_one_meets_each_fault_once() -> None:
    report = await drilled("  m: {chain: [house/x]}\n", faults=named("none", *BEFORE_CONTENT))

    assert failed(report) == []
    assert {row.meets for row in report.rows} == {"all"}
    assert {row.got.status for row in report.rows if row.fault == "connection refused"} == {502}


async def test_move_on_and_empty_answers_are_the_configs() -> None:
    report = await drilled("  m: {chain: [fake/x, house/x], move_on: [connect], empty_answer: accept}\n", faults=named(*BEFORE_CONTENT))

    assert failed(report) == []
    assert {row.chain for row in report.rows if row.fault == "empty answer"} == {"fake=200"}
    assert {row.chain for row in report.rows if row.fault == "bad JSON"} == {"fake=protocol"}
    assert {row.chain for row in report.rows if row.fault == "connection refused" and row.meets == "first"} == {"fake=connect,house=200"}


async def test_a_pattern_and_a_providers_model_can_be_drilled() -> None:
    pattern = await drilled('  "gpt-*": house/gpt-*\n', "gpt-5", named("none"))
    direct = await drilled("  m: {chain: [house/x]}\n", "fake/y", named("none"))

    assert (pattern.targets, direct.targets) == (("house/gpt-5",), ("fake/y",))
    assert failed(pattern) + failed(direct) == []


@pytest.mark.parametrize(("name", "error"), [("nope", NotFound), ("agent/x", InvalidRequest), ("../x", InvalidRequest)])
async def test_what_is_no_chain_is_named(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await drilled("  m: {chain: [house/x]}\n", name)


def test_no_secret_is_left_in_the_config_of_a_drill() -> None:
    conf = harmless(config.parse(PROVIDERS + "  m: {chain: [house/x]}\n", env={}), 1.0)

    revealed = [key.reveal() for provider in conf.providers.values() for key in provider.api_keys]
    assert revealed == ["drill-key-1"] * 4
    assert dict(conf.providers["bedrock"].headers) == {"X-Token": "drill"}
    assert not conf.server.keys


BROKEN_HOOK = """
function transform_chunk(chunk, ctx)
  for _, choice in ipairs(chunk.choices or {}) do choice.delta = nil end
  return chunk
end
function transform_response(res, ctx)
  res.choices = array{}
  return res
end
"""


async def test_a_hook_that_breaks_answers_fails_the_drill(tmp_path: Path) -> None:
    (tmp_path / "broken.lua").write_text(BROKEN_HOOK)
    text = PROVIDERS.replace('"mock://?status=500"', '"mock://?status=500", hooks: [./broken.lua]') + "  m: {chain: [house/x, fake/x]}\n"

    report = await drill(config.parse(text, base=tmp_path, env={}), "m", named("none", "connection refused"), slow=0.3)  # type: ignore[arg-type]

    assert not report.passed
    assert {(fault, meets) for fault, meets, _, _ in failed(report)} == {("connection refused", "first")}
    assert all("another target was well" in "".join(problems) for *_, problems in failed(report))


def test_the_command_prints_a_table_and_says_by_its_code_whether_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "thinkgate.yaml"
    file.write_text(PROVIDERS + "  m: {chain: [house/x, fake/x], deadline: 4s}\n")

    assert main(["drill", str(file), "m"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m: house/x > fake/x"
    assert lines[3].split() == ["fault", "meets", "plain", "streamed", "what", "happened"]
    assert len([line for line in lines if line.startswith("bad JSON")]) == 2
    assert lines[-1].startswith("82 of 82 passed in ")
    assert SECRET not in "\n".join(lines)


def test_the_command_prints_json_and_fails_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.lua").write_text("function transform_request(req, ctx) ctx.skip('never') end")
    file = tmp_path / "thinkgate.yaml"
    file.write_text(PROVIDERS.replace('mock://?status=500"', 'mock://", hooks: [./broken.lua]') + "  m: {chain: [fake/x]}\n")

    assert main(["drill", str(file), "m", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["model"], report["targets"], report["passed"]) == ("m", ["fake/x"], False)
    assert report["rows"][0] | {"ms": 0} == {
        "fault": "none",
        "meets": "all",
        "stream": False,
        "passed": False,
        "problems": ["no target was asked"],
        "outcome": "error",
        "status": 503,
        "chain": "",
        "ms": 0,
    }


def test_a_config_that_cannot_be_used_is_told_as_check_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "thinkgate.yaml"
    file.write_text("providers:\n  a: {adapter: nope}\nmodels:\n  m: {chain: [a/x]}\n")

    assert main(["drill", str(file), "m"]) == 1
    assert "providers.a.adapter" in capsys.readouterr().err
