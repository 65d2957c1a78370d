"""The commands that end: check, init, explain, adapter, version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gateway
from gateway.cli import main

CONFIG = """
providers:
  deepseek: {base_url: "http://127.0.0.1:9", api_key: deepseek-key-0123456789}
  spare: {adapter: openai, base_url: "mock://", api_key: spare-key-0123456789}
models:
  smart: {chain: [deepseek/deepseek-v4-pro, spare/x]}
"""
REQUEST = {"model": "smart", "messages": [{"role": "user", "content": "hi"}], "disable_thinking": True}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thinkgate.yaml").write_text(CONFIG)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    return tmp_path


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip() == gateway.__version__


def test_check_says_fine_or_names_every_fault_with_its_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "thinkgate.yaml"]) == 0
    capsys.readouterr()
    bad = CONFIG.replace("deepseek/deepseek", "deepsek/deepseek").replace("adapter: openai", "adapter: opneai, options: {x: 1}") + "nonsense: 1\n"
    (here / "bad.yaml").write_text(bad)

    assert main(["check", "bad.yaml"]) == 1
    out = capsys.readouterr().out
    assert 'bad.yaml:6:19: models.smart.chain[0]: unknown provider "deepsek"; known: deepseek, spare; did you mean "deepseek"?' in out
    assert 'bad.yaml:7:1: nonsense: unknown key "nonsense"' in out


def test_check_reports_what_only_adapters_know_with_its_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad.yaml").write_text(CONFIG.replace("api_key: deepseek", "options: {reasoning_ecko: all}, hooks: [./no.lua], api_key: deepseek"))

    assert main(["check", "bad.yaml"]) == 1
    out = capsys.readouterr().out
    assert "bad.yaml:3:" in out
    assert "providers.deepseek.options.reasoning_ecko: unknown option of the adapter deepseek; known: " in out
    assert '; did you mean "reasoning_echo"?\n' in out
    assert "providers.deepseek.hooks[0]: " in out


FAULTY = """\
server: {port: x}
providers:
  a: {adapter: nope}
  b: {adapter: openai, base_url: "mock://?stauts=1", options: {zz: 1}, retries: many}
  deepseek: {api_key: "a b", options: {yy: 1}}
models:
  m: {chain: [b/x, c/x]}
agents:
  w: {pattern: simple, model: agent/v, tools: ["python:no.py:x"]}
  v: {pattern: simple, model: a/x, tools: ["python:no.py:x", "agent:v"], approval: {tools: [calc]}}
"""


def test_check_names_the_faults_that_only_adapters_and_tools_know_beside_those_of_the_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad.yaml").write_text(FAULTY)

    assert main(["check", "bad.yaml"]) == 1
    places = [line.split(": ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert places == [
        ["bad.yaml:1:16", "server.port"],
        ["bad.yaml:3:16", "providers.a.adapter"],
        ["bad.yaml:4:34", "providers.b.base_url"],
        ["bad.yaml:4:68", "providers.b.options.zz"],
        ["bad.yaml:4:81", "providers.b.retries"],
        ["bad.yaml:5:23", "providers.deepseek.api_key"],  # not also that there is none
        ["bad.yaml:5:44", "providers.deepseek.options.yy"],
        ["bad.yaml:7:20", "models.m.chain[1]"],
        ["bad.yaml:9:31", "agents.w.model"],
        ["bad.yaml:10:44", "agents.v.tools[0]"],
        ["bad.yaml:10:93", "agents.v.approval.tools[0]"],
    ]


def test_faults_of_providers_do_not_hide_those_of_agents(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad.yaml").write_text(
        CONFIG.replace("adapter: openai", "adapter: opneai") + "agents: {w: {pattern: simple, model: smart, tools: ['python:no.py:x']}}\n"
    )

    assert main(["check", "bad.yaml"]) == 1
    out = capsys.readouterr().out
    assert 'providers.spare.adapter: unknown adapter "opneai"; known: anthropic, ' in out
    assert "agents.w.tools[0]: no.py: there is no such file\n" in out


@pytest.mark.parametrize("store", ["sqlite://x.db", "sqlite:///x.db?mode=ro", "sqlite:///nowhere/x.db", "sqlite:////nowhere/x.db"])
def test_a_store_that_cannot_be_there_is_a_fault(here: Path, capsys: pytest.CaptureFixture[str], store: str) -> None:
    (here / "bad.yaml").write_text(f"{CONFIG}store: {store}\n")

    assert main(["check", "bad.yaml"]) == 1
    assert capsys.readouterr().out.startswith("bad.yaml:7:")


def test_a_store_in_a_folder_that_is_there_is_fine(here: Path) -> None:
    (here / "sub").mkdir()
    for store in ("sqlite://", "sqlite:///x.db", "sqlite:///sub/x.db", f"sqlite:///{here}/x.db", "postgresql://nobody.invalid/x"):
        (here / "good.yaml").write_text(f"{CONFIG}store: {store}\n")
        assert main(["check", "good.yaml"]) == 0


@pytest.mark.parametrize("args", [["--port", "65536"], ["--port", "-1"], ["--port", "http"], ["--workers", "0"], ["--workers", "-1"], ["--workers", "many"]])
def test_serve_refuses_numbers_that_cannot_be(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *args])

    assert ended.value.code == 2
    assert f"{args[1]} is not a whole number from " in capsys.readouterr().err


def test_serve_says_in_one_line_that_its_store_is_away(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "away.yaml").write_text(f"{CONFIG}store: postgresql://127.0.0.1:1/x?connect_timeout=2\n")

    assert main(["serve", "-c", "away.yaml", "--port", "0"]) == 1
    assert capfd.readouterr().err.startswith("the store cannot be used: connection failed: ")


def test_check_prints_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")


def test_a_missing_variable_and_a_missing_key_are_named(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    (here / "a.yaml").write_text("providers: {deepseek: {api_key: '${DEEPSEEK_API_KEY}'}}\nmodels: {m: deepseek/x}\n")
    (here / "b.yaml").write_text("providers: {deepseek: {}}\nmodels: {m: deepseek/x}\n")

    assert main(["check", "a.yaml"]) == main(["check", "b.yaml"]) == 1
    out = capsys.readouterr().out
    assert "a.yaml:1:33: providers.deepseek.api_key: the environment variable DEEPSEEK_API_KEY is not set" in out
    assert "b.yaml:1:13: providers.deepseek: api_key is missing; write api_key: ${DEEPSEEK_API_KEY}" in out


def test_init_writes_a_config_for_the_keys_that_are_there_and_never_over_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "deepseek-key-0123456789")

    assert main(["init", "new.yaml"]) == 0
    assert "deepseek/deepseek-v4-pro" in (here / "new.yaml").read_text()
    assert main(["check", "new.yaml"]) == 0
    assert main(["init", "thinkgate.yaml"]) == 1
    assert (here / "thinkgate.yaml").read_text() == CONFIG


def test_explain_shows_each_target_its_body_and_the_changes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "thinkgate.yaml", "request.json", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)

    assert list(shown) == ["model", "endpoint", "targets"]
    first = shown["targets"][0]
    assert {"provider", "model", "skipped", "method", "url", "headers", "body", "transforms", "diff"} <= set(first)
    assert (first["method"], first["url"]) == ("POST", "http://127.0.0.1:9/chat/completions")
    assert first["body"]["thinking"] == {"type": "disabled"}
    assert first["headers"]["authorization"] == "Bearer ***"
    assert "deepseek.thinking=off" in first["transforms"]
    assert '+ thinking: {"type":"disabled"}' in first["diff"]
    assert "- disable_thinking: true" in first["diff"]


def test_explain_shows_endpoints_that_are_passed_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "request.json").write_text(json.dumps({"model": "smart", "input": "x"}))
    assert main(["explain", "thinkgate.yaml", "request.json", "--endpoint", "embeddings", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["endpoint"] == "embeddings"
    assert shown["targets"][0]["url"].endswith("/embeddings")
    assert shown["targets"][0]["body"]["input"] == "x"


def test_explain_rehearses_failures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "thinkgate.yaml", "request.json", "--json", "--fail", "deepseek=400"]) == 0
    ended = json.loads(capsys.readouterr().out)["targets"]
    assert main(["explain", "thinkgate.yaml", "request.json", "--fail", "deepseek=429"]) == 0
    text = capsys.readouterr().out

    assert ended[1]["skipped"] == "the chain ends at deepseek: bad_request"
    assert "imagined to fail with 429 rate_limit" in text
    assert "asked when those before it failed" in text


@pytest.mark.parametrize("fail", ["deepseek=banana", "nobody=429", "deepseek"])
def test_explain_names_a_failure_that_it_does_not_know(here: Path, capsys: pytest.CaptureFixture[str], fail: str) -> None:
    assert main(["explain", "thinkgate.yaml", "request.json", "--fail", fail]) == 2
    assert "--fail" in capsys.readouterr().err


@pytest.mark.parametrize("lang", ["lua", "py"])
def test_a_new_adapter_loads_and_can_be_tried(here: Path, capsys: pytest.CaptureFixture[str], lang: str) -> None:
    assert main(["adapter", "new", "house", "--lang", lang]) == 0
    assert main(["adapter", "test", f"adapters/house.{lang}", "request.json"]) == 0
    assert main(["adapter", "new", "house", "--lang", lang]) == 1
    assert main(["adapter", "list"]) == 0
    out = capsys.readouterr().out

    assert "no changes" in out
    assert "\nhouse " in out
    assert "\ndeepseek " in out


def test_trying_an_adapter_shows_the_diff(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapter", "test", "deepseek", "request.json"]) == 0
    out = capsys.readouterr().out

    assert "transforms: deepseek.thinking=off" in out
    assert '+ thinking: {"type":"disabled"}' in out


@pytest.mark.parametrize("command", [["check", "no.yaml"], ["explain", "no.yaml", "x"], ["adapter", "test", "nobody", "request.json"]])
def test_what_is_not_there_is_an_error_of_one_line(here: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main(command) == 1
    out = capsys.readouterr()
    assert len((out.err + out.out).strip().splitlines()) == 1
