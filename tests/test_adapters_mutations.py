"""The golden pairs of the DeepSeek adapter are sharp: each classic mistake turns at least one of them red."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.apply import prepare
from gateway.adapters.hooks import Adapter, Context, Hooks
from gateway.adapters.loader import Loader, builtin_folder
from gateway.adapters.settings import settings
from gateway.adapters.thinking import read_wish
from gateway.chat import loads
from gateway.config import HookBudget

GOLDEN = Path(__file__).parent / "adapters" / "deepseek"
VECTORS = ("off_by_disable_thinking", "backfill_empty", "real_text_is_never_overwritten", "null_is_missing", "no_tools_no_backfill", "every_turn_is_filled")
DEEPSEEK = Loader([builtin_folder()], HookBudget()).get("deepseek")


def with_options(**changed: Any) -> Adapter:
    return dataclasses.replace(DEEPSEEK, options={**DEEPSEEK.options, **changed})


def with_turns(change: Callable[[dict[str, Any]], Any], **options: Any) -> Adapter:
    def transform_request(body: dict[str, Any], ctx: Context) -> dict[str, Any]:
        for message in body["messages"]:
            if message["role"] == "assistant":
                change(message)
        return body

    return dataclasses.replace(with_options(**options), hooks={"transform_request": transform_request})


MUTANTS = {
    "thinking inside extra_body": dataclasses.replace(DEEPSEEK, thinking={"off": {"extra_body": {"thinking": {"type": "disabled"}}}}),
    "text turns are skipped": with_options(reasoning_echo="tool_turns"),
    "real text is overwritten": with_turns(lambda message: message.update(reasoning_content="")),
    "null counts as text": with_turns(lambda message: message.setdefault("reasoning_content", ""), reasoning_placeholder=None),
    "filled without tools": with_turns(lambda message: message.setdefault("reasoning_content", "")),
    "nothing is filled": with_options(reasoning_placeholder=None),
    "reasoning is stripped": with_options(reasoning_echo="none"),
    "no thinking rule": dataclasses.replace(DEEPSEEK, thinking=None),
}


def reds(adapter: Adapter) -> list[str]:
    """The vectors whose body comes out wrong."""
    wrong = []
    for name in VECTORS:
        given, wanted = (loads((GOLDEN / f"{name}.{side}.json").read_bytes()) for side in ("in", "out"))
        options = settings(adapter, given["model"], given["options"])
        ctx = Context(model=given["model"], thinking=read_wish(given["body"]) or "auto", options=options)
        if prepare({**given["body"], "model": given["model"]}, Hooks(adapter), options, ctx) != wanted["body"]:
            wrong.append(name)
    return wrong


def test_the_real_adapter_passes_every_vector() -> None:
    assert reds(DEEPSEEK) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_fails_a_vector(mutant: str) -> None:
    assert reds(MUTANTS[mutant]) != []


def test_an_attempt_leaves_no_trace_in_the_next_ones_body() -> None:
    given = loads((GOLDEN / "backfill_empty.in.json").read_bytes())
    loader = Loader([builtin_folder()], HookBudget())
    bodies = []
    for name, model in (("deepseek", "deepseek-v4-pro"), ("openai", "gpt-4o-mini")):
        hooks = Hooks(loader.get(name))
        options = settings(hooks.adapter, model, {})
        body = loads((GOLDEN / "backfill_empty.in.json").read_bytes())["body"]
        bodies.append(prepare(body, hooks, options, Context(model=model, options=options)))
    assert bodies[0]["messages"][1]["reasoning_content"] == ""
    assert bodies[1] == given["body"]
