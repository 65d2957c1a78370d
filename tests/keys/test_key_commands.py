"""`thinkgate keys` and `thinkgate usage`."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.store import RequestRow, open_store

CONFIG = """
store: sqlite:///kept/keys.db
providers: {a: {adapter: openai, base_url: "mock://", api_key: a-key-0123456789}}
models: {smart: {chain: [a/x]}}
keys: {filed: {key: the-secret-of-the-file, rpm: 7}}
teams: {t: {rpm: 9}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "kept").mkdir()
    (tmp_path / "thinkgate.yaml").write_text(CONFIG)
    return str(tmp_path / "thinkgate.yaml")


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(list(args)) == 0
    return capsys.readouterr().out


def test_a_key_is_printed_once_and_never_again(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    secret = said(capsys, "keys", "create", "made", "-c", file).strip()
    assert secret.startswith("tg-")
    assert len(secret) == 46
    for args in (("keys", "list"), ("keys", "list", "--json"), ("usage",)):
        assert secret not in said(capsys, *args, "-c", file)
    kept = b"".join(path.read_bytes() for path in (Path(file).parent / "kept").iterdir())
    assert secret.encode() not in kept


def test_a_key_is_what_the_options_say(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--models smart,agent/* --rpm 60 --tpm 100k --concurrency 8 --budget 5 --per day --expires 30d --team t --tags x,y --json"
    made = json.loads(said(capsys, "keys", "create", "made", *options.split(), "-c", file))
    wanted = {
        "models": ["smart", "agent/*"],
        "rpm": 60,
        "tpm": 100_000,
        "concurrency": 8,
        "budget": {"usd": 5.0, "per": "day"},
        "team": "t",
        "tags": ["x", "y"],
    }
    assert {name: made[name] for name in wanted} == wanted
    assert made["expires"] == pytest.approx(time.time() + 30 * 86400, abs=60)

    listed = json.loads(said(capsys, "keys", "list", "--json", "-c", file))["data"]
    assert [(key["name"], key["source"]) for key in listed] == [("filed", "file"), ("made", "store")]
    assert listed[1] == {name: value for name, value in made.items() if name != "key"}


def test_rotating_and_revoking(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    old = said(capsys, "keys", "create", "made", "-c", file).strip()
    new = said(capsys, "keys", "rotate", "made", "--overlap", "1h", "-c", file).strip()
    assert new != old
    assert [key["active"] for key in json.loads(said(capsys, "keys", "list", "--json", "-c", file))["data"]] == [True, True, True]
    said(capsys, "keys", "revoke", "made", "-c", file)
    assert said(capsys, "keys", "list", "-c", file).count("revoked") == 2


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (["create", "filed"], 1, 'a key "filed" exists'),
        (["create", "no blank"], 1, "name has letters"),
        (["create", "x", "--team", "nobody"], 1, "team is an entry"),
        (["create", "x", "--rpm", "0"], 1, "rpm is a whole number"),
        (["create", "x", "--budget", "-1"], 1, "budget is"),
        (["create", "x", "--tpm", "many"], 2, "is not a count"),
        (["create", "x", "--expires", "soon"], 2, "is not a duration"),
        (["revoke", "nobody"], 1, 'there is no key "nobody"'),
        (["rotate", "nobody"], 1, 'there is no key "nobody"'),
    ],
)
def test_what_cannot_be_done_says_why(file: str, capsys: pytest.CaptureFixture[str], args: list[str], code: int, why: str) -> None:
    try:
        got = main(["keys", *args, "-c", file])
    except SystemExit as end:
        got = int(end.code or 0)
    assert got == code
    assert why in capsys.readouterr().err


def test_a_store_in_memory_takes_no_key_from_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "thinkgate.yaml"
    file.write_text(CONFIG.replace("sqlite:///kept/keys.db", "sqlite://"))
    assert main(["keys", "create", "made", "-c", str(file)]) == 1
    assert "in memory" in capsys.readouterr().err


def test_usage_as_a_table_json_and_csv(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def fill() -> None:
        store = await open_store("sqlite:///kept/keys.db", Path(file).parent)
        rows = [
            RequestRow(str(n), time.time(), "chat", f"={n % 2}", 200, key="made", provider="a", prompt_tokens=5, completion_tokens=3, cost=0.5)
            for n in range(4)
        ]
        await store.write_requests(rows)
        await store.aclose()

    asyncio.run(fill())
    assert "made" in said(capsys, "usage", "-c", file)
    (summed,) = json.loads(said(capsys, "usage", "--by", "provider", "--json", "-c", file))["data"]
    assert (summed["name"], summed["requests"], summed["cost"]) == ("a", 4, 2.0)
    lines = said(capsys, "usage", "--by", "model", "--csv", "--from", "2026-01-01", "-c", file).splitlines()
    assert lines[0].startswith("name,requests,failed,")
    assert [line.split(",")[0] for line in lines[1:]] == ["'=0", "'=1"]
    assert json.loads(said(capsys, "usage", "--to", "2026-01-01", "--json", "-c", file))["data"] == []
