"""Reading the client's wish about thinking, and writing it in a model's own words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.thinking import LEVELS, WISHES, drop_wish, read_wish, wish_fields
from gateway.adapters.thinking_rule import compile_rule, faults

SPELLINGS: list[tuple[dict[str, Any], str | None]] = [
    ({"disable_thinking": True}, "off"),
    ({"disable_thinking": False}, None),
    ({"thinking": True}, "on"),
    ({"thinking": False}, "off"),
    ({"thinking": "low"}, "low"),
    ({"thinking": "Disabled"}, "off"),
    ({"thinking": {"type": "enabled"}}, "on"),
    ({"thinking": {"type": "adaptive", "display": "summarized"}}, "on"),
    ({"thinking": {"type": "disabled"}}, "off"),
    ({"thinking": {"type": "between_tools"}}, "off"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "on"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "off"),
    ({"thinking": {"budget_tokens": 2048}}, "on"),
    ({"thinking": {"type": "auto"}}, None),
    ({"thinking": None}, None),
    ({"reasoning_effort": "none"}, "off"),
    ({"reasoning_effort": "HIGH"}, "high"),
    ({"reasoning_effort": "ultra"}, "max"),
    ({"reasoning_effort": "default"}, None),
    ({"reasoning_effort": None}, None),
    ({"reasoning_effort": 3}, None),
    ({"reasoning": {"effort": "minimal", "summary": "auto"}}, "minimal"),
    ({"reasoning": {"effort": "none"}}, "off"),
    ({"reasoning": {"enabled": False}}, "off"),
    ({"reasoning": {"enabled": True}}, "on"),
    ({"reasoning": {"max_tokens": 0}}, "off"),
    ({"reasoning": {"max_tokens": 512}}, "on"),
    ({"reasoning": {"exclude": True}}, None),
    ({"reasoning": "because"}, None),
    ({"enable_thinking": False}, "off"),
    ({"enable_thinking": True}, "on"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "off"),
    ({"chat_template_kwargs": {"thinking": True}}, "on"),
    ({"chat_template_kwargs": {"other": True}}, None),
    ({"output_config": {"effort": "xhigh"}}, "xhigh"),
    ({"output_config": {"effort": "max"}, "thinking": {"type": "adaptive"}}, "max"),
    ({"messages": [], "temperature": 1}, None),
]


@pytest.mark.parametrize(("body", "wish"), SPELLINGS)
def test_every_spelling_is_read_at_the_top_and_inside_extra_body(body: dict[str, Any], wish: str | None) -> None:
    assert read_wish(body) == wish
    assert read_wish({"messages": [], "extra_body": body}) == wish


@pytest.mark.parametrize(
    ("body", "wish"),
    [
        ({"reasoning_effort": "high", "disable_thinking": True}, "off"),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "high"}, "off"),
        ({"thinking": {"type": "enabled"}, "reasoning_effort": "low"}, "low"),
        ({"reasoning": {"enabled": True, "effort": "high"}}, "high"),
        ({"enable_thinking": True, "output_config": {"effort": "medium"}}, "medium"),
        ({"thinking": {"type": "enabled"}, "extra_body": {"thinking": {"type": "disabled"}}}, "on"),
        ({"reasoning_effort": "low", "extra_body": {"enable_thinking": False}}, "off"),
        ({"extra_body": {"extra_body": {"thinking": False}}}, None),
    ],
)
def test_off_wins_over_a_level_a_level_over_on_and_the_top_over_extra_body(body: dict[str, Any], wish: str | None) -> None:
    assert read_wish(body) == wish


def test_dropping_the_wish_leaves_everything_else_and_no_empty_object() -> None:
    body = {
        "messages": [],
        "disable_thinking": False,
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "reasoning": {"effort": "low", "exclude": True},
        "chat_template_kwargs": {"enable_thinking": True, "thinking": True},
        "output_config": {"effort": "low", "format": {}},
        "extra_body": {"enable_thinking": False, "reasoning": {"enabled": False}},
        "reasoning_effort": "default",
    }
    assert ("reasoning", "effort") in wish_fields(body)
    drop_wish(body)
    assert body == {"messages": [], "reasoning": {"exclude": True}, "output_config": {"format": {}}, "reasoning_effort": "default"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["none", "high", "on", "off"]),
    lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from(["type", "effort", "enabled", "budget_tokens", "thinking", "x"]), v, max_size=3),
    max_leaves=6,
)
bodies = st.dictionaries(
    st.sampled_from(
        ["disable_thinking", "thinking", "reasoning_effort", "reasoning", "enable_thinking", "chat_template_kwargs", "output_config", "extra_body", "model"]
    ),
    json_values,
    max_size=6,
)


@given(bodies)
def test_any_body_is_read_without_an_error_and_says_nothing_once_its_wish_is_dropped(body: dict[str, Any]) -> None:
    assert read_wish(body) in (None, *WISHES)
    drop_wish(body)
    assert read_wish(body) is None
    assert wish_fields(body) == []


RULES: dict[str, dict[str, Any]] = {
    "zai": {"off": {"thinking": {"type": "disabled"}}, "on": {"thinking": {"type": "enabled"}}},
    "always on": {"off": "low", "effort": "reasoning_effort", "levels": {"low": "low", "high": "high", "max": "max"}},
    "kimi k2.6": {"off": {"thinking": {"type": "disabled"}}, "on": {"thinking": {"type": "enabled", "keep": "all"}}},
    "qwen": {"off": {"enable_thinking": False, "thinking_budget": None}, "on": {"enable_thinking": True}},
    "template": {"off": {"chat_template_kwargs.enable_thinking": False}, "on": {"chat_template_kwargs.enable_thinking": True}},
    "openrouter": {"off": {"reasoning.enabled": False}, "on": {"reasoning.enabled": True}, "effort": "reasoning.effort"},
    "no switch": {"off": "omit"},
    "adaptive": {"off": "low", "on": {"thinking": {"type": "adaptive"}}, "effort": "output_config.effort"},
}


@pytest.mark.parametrize(
    ("rule", "body", "wish", "wanted"),
    [
        ("zai", {"thinking": {"type": "enabled", "clear_thinking": False}}, "on", {"thinking": {"type": "enabled", "clear_thinking": False}}),
        ("zai", {"reasoning_effort": "high"}, "high", {"thinking": {"type": "enabled"}}),
        ("zai", {"thinking": True}, "on", {"thinking": {"type": "enabled"}}),
        ("always on", {"enable_thinking": False}, "off", {"reasoning_effort": "low"}),
        ("always on", {"reasoning_effort": "medium"}, "medium", {"reasoning_effort": "low"}),
        ("always on", {"reasoning_effort": "xhigh"}, "xhigh", {"reasoning_effort": "high"}),
        ("always on", {"thinking": {"type": "enabled"}}, "on", {}),
        ("kimi k2.6", {"reasoning_effort": "high"}, "high", {"thinking": {"type": "enabled", "keep": "all"}}),
        ("qwen", {"enable_thinking": True, "thinking_budget": 100, "disable_thinking": True}, "off", {"enable_thinking": False}),
        ("qwen", {"enable_thinking": True, "thinking_budget": 100}, "on", {"enable_thinking": True, "thinking_budget": 100}),
        ("template", {"disable_thinking": True, "chat_template_kwargs": {"x": 1}}, "off", {"chat_template_kwargs": {"x": 1, "enable_thinking": False}}),
        ("template", {"chat_template_kwargs": {"thinking": False}}, "off", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("openrouter", {"reasoning": {"effort": "high", "exclude": True}}, "high", {"reasoning": {"effort": "high", "exclude": True, "enabled": True}}),
        ("openrouter", {"reasoning": {"effort": "none", "exclude": True}}, "off", {"reasoning": {"exclude": True, "enabled": False}}),
        ("no switch", {"thinking": {"type": "disabled"}, "top_k": 1}, "off", {"top_k": 1}),
        ("no switch", {"reasoning_effort": "high"}, "high", {}),
        ("adaptive", {"thinking": {"type": "disabled"}}, "off", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ("adaptive", {}, "max", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
    ],
)
def test_a_rule_says_the_wish_in_its_own_words_and_in_no_others(rule: str, body: dict[str, Any], wish: str, wanted: dict[str, Any]) -> None:
    assert list(faults(RULES[rule])) == []
    changed = body != wanted
    assert compile_rule(RULES[rule]).write(body, wish) is changed
    assert body == wanted


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("wish", WISHES)
def test_writing_a_wish_twice_changes_nothing_the_second_time(rule: str, wish: str) -> None:
    compiled, body = compile_rule(RULES[rule]), {"messages": [], "disable_thinking": True, "reasoning_effort": "high"}
    compiled.write(body, wish)
    again = dict(body)
    assert compiled.write(again, wish) is False
    assert again == body


def test_a_written_object_belongs_to_the_body_alone() -> None:
    rule = compile_rule(RULES["zai"])
    first: dict[str, Any] = {}
    rule.write(first, "off")
    first["thinking"]["type"] = "spoiled"
    second: dict[str, Any] = {}
    rule.write(second, "off")
    assert second == {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({}, "off is missing"),
        ({"off": "low"}, "needs `effort`"),
        ({"off": "nothing"}, "off must be fields"),
        ({"off": "omit", "on": 3}, "on must be fields"),
        ({"off": "omit", "effort": 3}, "effort must be the path"),
        ({"off": "omit", "levels": {"hi": "x"}}, f"levels must map some of {', '.join(LEVELS)}"),
        ({"off": "omit", "default": "yes"}, "default must be one of on, off"),
        ({"off": "omit", "with_tools": "never"}, "with_tools must be one of"),
        ({"off": "omit", "refuses": "temperature"}, "refuses must be a list"),
        ({"off": "omit", "drop": [1]}, "drop must be a list"),
        ({"off": "omit", "of": {}}, "unknown key 'of'"),
    ],
)
def test_faults_of_a_declared_rule_are_named(declared: dict[str, Any], text: str) -> None:
    assert any(text in fault for fault in faults(declared))
