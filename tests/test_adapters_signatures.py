"""Google's thought signatures in chat histories, the addresses with options in them, and the rules for thinking budgets."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.adapters import Adapter, settings
from gateway.adapters.roles import roles_of
from gateway.adapters.signatures import replace_signatures, sign_steps
from gateway.adapters.thinking_rule import compile_rule, faults

USER = {"role": "user", "content": "?"}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}


def call(text: str | None = None) -> dict[str, Any]:
    return {"id": "a", **({"extra_content": {"google": {"thought_signature": text}}} if text else {})}


def turn(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls), **fields}


def signatures(messages: list[dict[str, Any]]) -> list[Any]:
    calls = [one for message in messages for one in message.get("tool_calls") or ()]
    return [one.get("extra_content", {}).get("google", {}).get("thought_signature") for one in calls]


def test_only_steps_of_the_current_turn_are_signed_and_only_their_first_call() -> None:
    messages = [USER, turn(call()), RESULT, USER, turn(call(), call()), RESULT, turn(call("real"), call()), RESULT, turn(call())]

    assert sign_steps(messages, roles_of(messages), "S") == 2
    assert signatures(messages) == [None, "S", None, "real", None, "S"]
    assert sign_steps(messages, roles_of(messages), "S") == 0


def test_what_else_a_call_carries_stays() -> None:
    messages = [USER, turn({"id": "a", "extra_content": {"other": 1, "google": {"more": 2}}})]

    sign_steps(messages, roles_of(messages), "S")
    assert messages[1]["tool_calls"][0]["extra_content"] == {"other": 1, "google": {"more": 2, "thought_signature": "S"}}

    replace_signatures([*messages, USER], roles_of([*messages, USER]), "T")
    assert messages[1]["tool_calls"][0]["extra_content"] == {"other": 1, "google": {"more": 2}}


def test_after_a_refusal_no_signature_is_left_but_the_stand_in() -> None:
    text = {"role": "assistant", "content": "t", "extra_content": {"google": {"thought_signature": "x"}}}
    messages = [USER, turn(call("old")), RESULT, text, USER, turn(call("new"), call()), RESULT]

    assert replace_signatures(messages, roles_of(messages), "S") == 3
    assert signatures(messages) == [None, "S", None]
    assert "extra_content" not in text


@pytest.mark.parametrize(
    "odd", [{}, {"role": "assistant", "tool_calls": "no"}, {"role": "assistant", "tool_calls": [7]}, {"role": "assistant", "tool_calls": None}]
)
def test_odd_histories_do_no_harm(odd: dict[str, Any]) -> None:
    messages = [odd]

    assert sign_steps(messages, roles_of(messages), "S") == 0
    assert replace_signatures(messages, roles_of(messages), "S") == 0


def test_options_fill_their_places_in_the_adapters_address() -> None:
    adapter = Adapter("x", base_url="https://{region}.host.example/{missing}", options={"region": "eu"})

    assert settings(adapter, "m", {}).base_url == "https://eu.host.example/{missing}"
    assert settings(adapter, "m", {"region": "us"}).base_url == "https://us.host.example/{missing}"
    assert settings(adapter, "m", {"region": "us"}, "http://own.example/{region}").base_url == "http://own.example/{region}"
    assert settings(Adapter("x"), "m", {}).base_url is None


BUDGET = {
    "off": {"thinking": {"type": "disabled"}},
    "on": {"thinking.type": "enabled"},
    "effort": "thinking.budget_tokens",
    "levels": {"low": 1024, "high": 8000},
    "on_level": "low",
    "room": "max_tokens",
}
EFFORT = {
    "off": {"thinking": {"type": "less"}},
    "always": True,
    "on": {"thinking.type": "adaptive"},
    "effort": "config.effort",
    "keeps_effort": True,
    "beside": {"thinking.display": "full"},
}


@pytest.mark.parametrize(
    ("rule", "wish", "body", "wanted"),
    [
        # a mere on gets the number of its level, if the client named none
        (BUDGET, "on", {"thinking": {"type": "enabled"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (BUDGET, "on", {"thinking": {"type": "enabled", "budget_tokens": 77}}, {"thinking": {"type": "enabled", "budget_tokens": 77}}),
        (BUDGET, "on", {"reasoning": {"enabled": True}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        # the bound makes room for it
        (BUDGET, "high", {"max_tokens": 8000}, {"max_tokens": 16000, "thinking": {"type": "enabled", "budget_tokens": 8000}}),
        (BUDGET, "high", {"max_tokens": 8001}, {"max_tokens": 8001, "thinking": {"type": "enabled", "budget_tokens": 8000}}),
        (BUDGET, "off", {"max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 77}}, {"max_tokens": 5, "thinking": {"type": "disabled"}}),
        # what stands beside is for clients that said it in other words
        (EFFORT, "high", {"reasoning_effort": "high"}, {"thinking": {"type": "adaptive", "display": "full"}, "config": {"effort": "high"}}),
        (EFFORT, "high", {"thinking": {"type": "adaptive"}, "config": {"effort": "high"}}, {"thinking": {"type": "adaptive"}, "config": {"effort": "high"}}),
        (EFFORT, "on", {"thinking": {"type": "enabled", "display": "none"}}, {"thinking": {"type": "adaptive", "display": "none"}}),
        # beside off an effort may stay
        (EFFORT, "off", {"config": {"effort": "low"}}, {"config": {"effort": "low"}, "thinking": {"type": "less"}}),
        ({**EFFORT, "keeps_effort": False}, "off", {"config": {"effort": "low"}}, {"thinking": {"type": "less"}}),
        # a level in the place of off is said without what stands beside
        ({**EFFORT, "off": "low"}, "off", {}, {"thinking": {"type": "adaptive"}, "config": {"effort": "low"}}),
    ],
)
def test_budgets_and_what_stands_beside_them(rule: dict[str, Any], wish: str, body: dict[str, Any], wanted: dict[str, Any]) -> None:
    compiled = compile_rule(rule)
    given = copy.deepcopy(body)

    assert compiled.write(given, wish) is (body != wanted)
    assert given == wanted
    assert compiled.write(given, wish) is False
    assert list(faults(rule)) == []


def test_off_may_be_less_thinking_instead_of_none() -> None:
    assert compile_rule(EFFORT).wordings["off"].thinks
    assert not compile_rule({**EFFORT, "always": False}).wordings["off"].thinks


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"on_level": "much"}, "on_level must be one of"),
        ({"on_level": "low", "effort": None}, "on_level must be one of"),
        ({"room": 5}, "room must be"),
        ({"always": "yes"}, "always must be true or false"),
        ({"keeps_effort": 1.5}, "keeps_effort must be true or false"),
        ({"beside": "thinking"}, "beside must be fields"),
    ],
)
def test_faults_of_these_rules(wrong: dict[str, Any], text: str) -> None:
    assert any(text in fault for fault in faults({**EFFORT, **wrong}))
