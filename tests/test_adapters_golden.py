"""Every adapter file against its golden pairs: `tests/adapters/<provider>/<case>.in.json` and `.out.json`.

in   {"model", "options", "thinking", "stream", "body"}, and "base_url" and "endpoint" where they matter
out  {"body", "notes"}: exactly what goes upstream, and what is reported
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.apply import prepare
from gateway.adapters.hooks import Context, Hooks
from gateway.adapters.loader import Loader, builtin_folder
from gateway.adapters.settings import settings
from gateway.adapters.thinking import read_wish
from gateway.chat import dumps, loads
from gateway.config import HookBudget

GOLDEN = Path(__file__).parent / "adapters"
CASES = sorted(path.with_name(path.name.removesuffix(".in.json")) for path in GOLDEN.glob("*/*.in.json"))
LOADER = Loader([builtin_folder()], HookBudget())


def read(case: Path, side: str) -> Any:
    return loads(case.with_name(f"{case.name}.{side}.json").read_bytes())


def sent(case: Path) -> tuple[dict[str, Any], list[str]]:
    given = read(case, "in")
    hooks = Hooks(LOADER.get(case.parent.name))
    options = settings(hooks.adapter, given["model"], given["options"], given.get("base_url"))
    ctx = Context(
        provider=case.parent.name,
        model=given["model"],
        endpoint=given.get("endpoint", "chat"),
        dialect=hooks.adapter.dialect,
        stream=given["stream"],
        thinking=read_wish(given["body"]) or given["thinking"],
        options=options,
    )
    return prepare({**given["body"], "model": given["model"]}, hooks, options, ctx), ctx.notes


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_the_body_sent_upstream_is_the_golden_one(case: Path) -> None:
    body, notes = sent(case)
    wanted = read(case, "out")
    assert body == wanted["body"]
    assert notes == wanted["notes"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_fields_that_stay_keep_their_order_and_their_exact_form(case: Path) -> None:
    given = read(case, "in")
    body, _ = sent(case)
    stayed = [key for key in given["body"] if key in body]
    assert [key for key in body if key in stayed] == stayed
    for key in set(stayed) - {"messages"}:
        if body[key] == given["body"][key]:
            assert dumps(body[key]) == dumps(given["body"][key])
    for old, new in zip(given["body"].get("messages", []), body.get("messages", []), strict=False):
        assert [key for key in new if key in old] == [key for key in old if key in new]


def test_every_adapter_has_a_pair_and_every_pair_an_adapter() -> None:
    assert {case.parent.name for case in CASES} == set(LOADER.names())
    for case in CASES:
        assert case.with_name(f"{case.name}.out.json").is_file()
    assert len(list(GOLDEN.glob("*/*.out.json"))) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_preparing_what_was_prepared_changes_nothing_more(case: Path) -> None:
    body, _ = sent(case)
    again = json.loads(json.dumps(body))
    given = read(case, "in")
    hooks = Hooks(LOADER.get(case.parent.name))
    options = settings(hooks.adapter, given["model"], given["options"], given.get("base_url"))
    ctx = Context(model=given["model"], stream=given["stream"], thinking=read_wish(again) or "auto", options=options)
    assert prepare(again, hooks, options, ctx) == body
    assert ctx.notes == []
