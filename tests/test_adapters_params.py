"""Options about single parameters: defaults, bounds, names, what goes out of lists, and models that cannot think."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.adapters.apply import prepare
from gateway.adapters.hooks import Adapter, Context, Hooks
from gateway.adapters.settings import COMMON_OPTIONS, settings
from gateway.adapters.thinking import WISHES, read_wish
from gateway.adapters.thinking_rule import compile_rule, faults

CALL = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def sent(body: dict[str, Any], options: dict[str, Any], endpoint: str = "chat", **declared: Any) -> tuple[dict[str, Any], list[str]]:
    adapter = Adapter(name="x", **declared)
    resolved = settings(adapter, "m", options)
    ctx = Context(model="m", endpoint=endpoint, thinking=read_wish(body) or "auto", options=resolved)
    return prepare(copy.deepcopy(body), Hooks(adapter), resolved, ctx), ctx.notes


def test_a_default_is_sent_where_the_client_says_nothing_and_is_a_copy_each_time() -> None:
    options = {"default_params": {"max_tokens": 9, "extra": {"a": []}}}
    first, notes = sent({}, options)
    assert first == {"max_tokens": 9, "extra": {"a": []}}
    assert notes == ["x.default=max_tokens", "x.default=extra"]
    resolved = settings(Adapter(name="x"), "m", options)
    bodies = [prepare({}, Hooks(Adapter(name="x")), resolved, Context(options=resolved)) for _ in range(2)]
    bodies[0]["extra"]["a"].append(1)
    assert bodies[1]["extra"] == {"a": []}
    assert sent({"max_tokens": None, "extra": 1}, options) == ({"max_tokens": None, "extra": 1}, [])
    assert sent({}, options, endpoint="embeddings") == ({}, [])


def test_a_default_knows_the_name_under_which_the_client_said_it() -> None:
    assert sent({"max_completion_tokens": 5}, {"default_params": {"max_tokens": 9}, "max_tokens_field": "max_tokens"})[0] == {"max_tokens": 5}


@pytest.mark.parametrize(("value", "becomes"), [(0, 0.01), (-1, 0.01), (0.01, 0.01), (1, 1), (1.5, 1), (True, True), ("2", "2"), (None, None)])
def test_a_number_outside_its_bounds_becomes_the_nearest(value: Any, becomes: Any) -> None:
    body, notes = sent({"temperature": value}, {"clamp_params": {"temperature": [0.01, 1]}})
    assert body == {"temperature": becomes}
    assert type(body["temperature"]) is type(becomes)
    assert notes == ([] if value is becomes else ["x.clamp=temperature"])


def test_where_either_name_is_known_both_together_are_not_sent() -> None:
    options = {"max_tokens_field": "either"}
    assert sent({"max_tokens": 1, "max_completion_tokens": 2}, options) == ({"max_completion_tokens": 2}, ["x.drop=max_tokens"])
    assert sent({"max_tokens": 1}, options) == ({"max_tokens": 1}, [])
    assert sent({"max_completion_tokens": 2}, options) == ({"max_completion_tokens": 2}, [])


def test_a_dropped_path_goes_through_lists_and_leaves_the_lists_there() -> None:
    body = {
        "messages": [{"role": "user", "name": "n"}, "no message", {"role": "user"}, {"name": "n"}],
        "tools": [{"function": {"strict": True}}, {"function": 3}],
    }
    left, notes = sent(body, {"drop_params": ["messages.name", "tools.function.strict", "tools.gone"]})
    assert left == {"messages": [{"role": "user"}, "no message", {"role": "user"}, {}], "tools": [{}, {"function": 3}]}
    assert notes == ["x.drop=messages.name", "x.drop=tools.function.strict"]


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("which", ["all", "tool_turns"])
def test_the_placeholder_may_be_for_turns_that_called_tools_in_any_request(which: str, tools: bool) -> None:
    text, call, real = ({"role": "assistant", "content": "a", **more} for more in ({}, {"tool_calls": CALL}, {"tool_calls": CALL, "reasoning": "r"}))
    body = {"messages": [text, call, real], **({"tools": [{"type": "function"}]} if tools else {})}
    left, notes = sent(body, {"reasoning_echo": which, "reasoning_fills": "tool_turns", "reasoning_placeholder": ""})
    assert [turn.get("reasoning_content") for turn in left["messages"]] == [None, "", "r"]
    assert "x.reasoning_backfill=1" in notes


def test_without_a_placeholder_nothing_is_filled() -> None:
    body = {"messages": [{"role": "assistant", "content": "a", "tool_calls": CALL}]}
    assert sent(body, {"reasoning_echo": "all", "reasoning_fills": "tool_turns"}) == (body, [])


def test_a_choice_of_tools_is_narrowed_before_it_meets_thinking() -> None:
    rule = {"off": {"t": False}, "on": {"t": True}}
    options = {"tool_choices": ["auto", "required"], "forced_tool_choice_while_thinking": "thinking_off"}
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    body = {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "b"}}}
    assert sent(body, options, thinking=rule)[0] == {"tools": tools[1:], "tool_choice": "required", "t": False}


def test_a_model_that_cannot_think_is_told_nothing_whatever_is_wished() -> None:
    rule = {"off": "omit", "on": "off", "default": "on"}
    compiled = compile_rule(rule)
    assert {(compiled.wordings[wish].label, compiled.wordings[wish].thinks) for wish in WISHES} == {("off", False)}
    options = {"forced_tool_choice_while_thinking": "auto", "stream_only": "thinking"}
    assert sent({"reasoning_effort": "high", "tool_choice": "required"}, options, thinking=rule) == ({"tool_choice": "required"}, ["x.thinking=off"])
    assert list(faults(rule)) == []
    assert list(faults({"off": "off"})) == ["off must be fields, a level or 'omit'"]


def test_a_model_that_cannot_be_turned_off_is_not_reported_as_off() -> None:
    assert sent({"disable_thinking": True}, {}, thinking={"off": "omit"}) == ({}, ["x.thinking=on"])


def test_a_level_may_be_fields_of_its_own() -> None:
    rule = {"off": {"t": False}, "on": {"t": True}, "effort": "reasoning_effort", "levels": {"minimal": {"reasoning_effort": "minimal"}, "high": "high"}}
    assert sent({"reasoning": {"effort": "minimal"}}, {}, thinking=rule) == ({"reasoning_effort": "minimal"}, ["x.thinking=minimal"])
    assert sent({"t": True, "reasoning_effort": "minimal"}, {}, thinking=rule)[0] == {"t": True, "reasoning_effort": "minimal"}
    assert sent({"reasoning_effort": "max"}, {}, thinking=rule)[0] == {"reasoning_effort": "high", "t": True}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("tool_choices", [[], {}, ["auto", "none"]], ["auto", ["any"], [1], None]),
        ("tool_schema", [None, "filled", "moonshot"], ["other", True]),
        ("default_params", [{}, {"a": None, "b": [1]}], [[], None, {1: 2}]),
        ("clamp_params", [{}, {"a": [0, 1]}, {"a": (0.5, 0.5)}], [{"a": 1}, {"a": [1, 0]}, {"a": [0, True]}, {"a": ["0", "1"]}, []]),
        ("max_tokens_field", [None, "either"], ["both", True]),
        ("reasoning_fills", ["with_tools", "tool_turns"], [None, "all"]),
        ("repair_arguments", [True, False, "on", "yes", "off", "no"], ["maybe", None]),
    ],
)
def test_values_of_these_options_are_checked(name: str, good: list[Any], bad: list[Any]) -> None:
    assert [COMMON_OPTIONS[name].fault(value) for value in good] == [None] * len(good)
    assert all(COMMON_OPTIONS[name].fault(value) for value in bad)
