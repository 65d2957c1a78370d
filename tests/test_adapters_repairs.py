"""The default repair of each repairable failure class."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.hooks import Adapter, Context
from gateway.adapters.repairs import KEPT
from gateway.adapters.rules import repair
from gateway.adapters.settings import settings

CALL = {"id": "call_abc-123456", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_abc-123456", "content": "r"}
MISSING = "The `reasoning_content` in the thinking mode must be passed back to the API."


def repaired(body: dict[str, Any], kind: str, message: str = "", param: Any = None, **context: Any) -> tuple[dict[str, Any] | None, list[str]]:
    adapter = Adapter(name="x", thinking=context.pop("rule", None), dialect=context.get("dialect", "chat"))
    options = settings(adapter, "m", context.pop("options", {}))
    ctx = Context(options=options, state={"error": {"message": message, "type": None, "code": None, "param": param}}, **context)
    return repair(copy.deepcopy(body), kind, options, ctx), ctx.notes


def history(*turns: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "u"}, *({"role": "assistant", "content": "a", **turn} for turn in turns)]}


def test_missing_reasoning_is_filled_first_with_nothing_and_then_with_a_space() -> None:
    first, notes = repaired(history({}, {"reasoning_content": None}, {"reasoning_content": "real"}), "reasoning_missing", MISSING)
    assert first == history({"reasoning_content": ""}, {"reasoning_content": ""}, {"reasoning_content": "real"})
    assert notes == ["x.repair=reasoning_missing:backfill=2"]
    second, _ = repaired(first, "reasoning_missing", MISSING)
    assert second == history({"reasoning_content": " "}, {"reasoning_content": " "}, {"reasoning_content": "real"})
    assert repaired(second, "reasoning_missing", MISSING) == (None, [])


@pytest.mark.parametrize("kind", ["reasoning_unsupported", "signature"])
def test_refused_reasoning_goes_from_every_turn(kind: str) -> None:
    signed = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}], "thinking_blocks": [{"thinking": "t", "signature": "s"}]}
    out, notes = repaired(history({"reasoning_content": "r"}, signed, {}), kind)
    assert out == history({}, {}, {})
    assert notes == [f"x.repair={kind}:stripped=2"]
    assert repaired(history({}), kind) == (None, [])
    items, _ = repaired({"input": [{"type": "reasoning", "id": "rs_1"}, {"type": "function_call"}]}, kind)
    assert items == {"input": [{"type": "function_call"}]}


def test_a_refused_tool_choice_becomes_auto_then_thinking_gives_way_then_the_choice_goes() -> None:
    rule = {"off": {"thinking": {"type": "disabled"}}}
    assert repaired({"tool_choice": "required"}, "tool_choice_thinking")[0] == {"tool_choice": "auto"}
    assert repaired({"tool_choice": {"type": "any"}}, "tool_choice_thinking", dialect="messages")[0] == {"tool_choice": {"type": "auto"}}
    assert repaired({"tool_choice": "auto"}, "tool_choice_thinking", rule=rule)[0] == {"tool_choice": "auto", "thinking": {"type": "disabled"}}
    assert repaired({"tool_choice": "auto", "thinking": {"type": "disabled"}}, "tool_choice_thinking", rule=rule)[0] == {"thinking": {"type": "disabled"}}
    assert repaired({}, "tool_choice_thinking")[0] is None


def test_tools_that_refuse_an_effort_get_effort_none() -> None:
    assert repaired({"tools": [1]}, "tools_effort")[0] == {"tools": [1], "reasoning_effort": "none"}
    assert repaired({"tools": [1], "reasoning_effort": "none"}, "tools_effort")[0] is None


@pytest.mark.parametrize(
    ("body", "message", "wanted"),
    [
        (
            {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
            "cannot specify both 'thinking' and 'reasoning_effort'",
            {"thinking": {"type": "enabled"}},
        ),
        ({"reasoning_effort": "none"}, "This model does not support 'reasoning_effort' value 'none'", {"reasoning_effort": "low"}),
        ({"reasoning_effort": "max"}, "This model does not support 'reasoning_effort' value 'max'", {"reasoning_effort": "high"}),
        ({"reasoning_effort": "low"}, "This model does not support 'reasoning_effort' value 'low'", {}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            '"thinking.type.enabled" is not supported for this model.',
            {"thinking": {"type": "adaptive"}},
        ),
        ({"thinking": {"type": "disabled"}}, '"thinking.type.disabled" is not supported for this model.', {}),
        ({"thinking": True}, "thinking.type is not supported", {}),
        ({}, "thinking.type is not supported", None),
        ({"messages": []}, "parameter.enable_thinking must be set to false for non-streaming calls", {"messages": [], "enable_thinking": False}),
    ],
)
def test_a_refused_thinking_mode_is_said_in_the_next_way(body: dict[str, Any], message: str, wanted: dict[str, Any] | None) -> None:
    assert repaired(body, "thinking_mode", message)[0] == wanted


def test_a_client_that_wants_thinking_gets_it_from_a_stream_where_only_streams_think() -> None:
    message = "parameter.enable_thinking must be set to false for non-streaming calls"
    assert repaired({"enable_thinking": True}, "thinking_mode", message, thinking="on")[0] == {"enable_thinking": True, "stream": True}
    assert repaired({"enable_thinking": False}, "thinking_mode", message)[0] == {"enable_thinking": False, "stream": True}
    assert repaired({"enable_thinking": True}, "thinking_mode", message, thinking="on", stream=True)[0] is None


@pytest.mark.parametrize(
    ("body", "message", "param", "wanted"),
    [
        (
            {"max_tokens": 5},
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
            {"max_completion_tokens": 5},
        ),
        ({"temperature": 0.2}, "invalid temperature: only 1 is allowed for this model", None, {"temperature": 1}),
        ({"temperature": 0.2}, "invalid temperature: only 0.6 is allowed for this model", None, {"temperature": 0.6}),
        ({"temperature": 1}, "invalid temperature: only 1 is allowed for this model", None, {}),
        (
            {"temperature": 0.2},
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
            "temperature",
            {},
        ),
        ({"max_tokens": 200000}, "max_tokens is too large: 200000. This model supports at most 8192 completion tokens", "max_tokens", {"max_tokens": 8192}),
        (
            {"reasoning_effort": "minimal"},
            "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low', 'medium', and 'high'.",
            "reasoning_effort",
            {"reasoning_effort": "low"},
        ),
        ({"reasoning_effort": "high", "seed": 1}, "Unrecognized request argument supplied: reasoning_effort", None, {"seed": 1}),
        ({"seed": 1}, "Unknown parameter: 'seed'.", None, {}),
        (
            {"messages": [{"role": "user", "name": "n"}, {"role": "user"}]},
            "Unsupported parameter: 'messages[0].name'",
            "messages[0].name",
            {"messages": [{"role": "user"}, {"role": "user"}]},
        ),
        (
            {"messages": [{"role": "developer"}]},
            "'messages[0].role' does not support 'developer' with this model.",
            "messages[0].role",
            {"messages": [{"role": "system"}]},
        ),
        (
            {"tools": [{"function": {"strict": True, "name": "f"}}]},
            "Unsupported parameter",
            "tools[0].function.strict",
            {"tools": [{"function": {"name": "f"}}]},
        ),
        ({"tools": [{"function": {"name": "f"}}]}, "Unsupported parameter", "tools.0.function.name", None),
        ({"messages": [{"role": "user", "content": "c"}]}, "Unsupported value", "messages[0].content", None),
        ({"seed": 1}, "Unsupported parameter: 'top_k'", "top_k", None),
        ({"seed": 1}, "something else", None, None),
    ],
)
def test_a_refused_parameter_is_renamed_set_or_dropped(body: dict[str, Any], message: str, param: str | None, wanted: dict[str, Any] | None) -> None:
    assert repaired(body, "param", message, param)[0] == wanted


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_makes_the_question_is_never_dropped(name: str) -> None:
    assert repaired({name: "x"}, "param", f"Unsupported parameter: '{name}'", name) == (None, [])


def test_notes_hold_nothing_that_could_break_a_header() -> None:
    _, notes = repaired({"x_é\r\nSet-Cookie: a": 1}, "param", "no", "x_é\r\nSet-Cookie: a")
    assert notes == ["x.repair=param:drop=x_???Set-Cookie:?a"]


def test_short_tool_ids_are_the_same_in_call_and_result() -> None:
    message = "Tool call id was call_abc-123456 but must be a-z, A-Z, 0-9, with a length of 9."
    out, _ = repaired({"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]}, "role_order", message)
    assert out is not None
    ident = out["messages"][0]["tool_calls"][0]["id"]
    assert ident == out["messages"][1]["tool_call_id"]
    assert len(ident) == 9
    assert ident.isalnum()
    assert repaired(out, "role_order", message)[0] is None


def test_a_history_out_of_order_is_brought_into_order() -> None:
    call2 = {**CALL, "id": "c2"}
    body = {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "x", "reasoning_content": "1"},
            {"role": "assistant", "content": None, "tool_calls": [CALL, call2, {**CALL, "id": "unanswered"}], "reasoning_content": "2"},
            {"role": "user", "content": "meanwhile"},
            {"role": "tool", "tool_call_id": "c2", "content": "r2"},
            RESULT,
            {"role": "tool", "tool_call_id": "gone", "content": "r3"},
            {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "lost"}]},
        ]
    }
    out, _ = repaired(body, "role_order", "roles must alternate")
    assert out == {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "x", "tool_calls": [CALL, call2], "reasoning_content": "1\n\n2"},
            RESULT,
            {"role": "tool", "tool_call_id": "c2", "content": "r2"},
            {"role": "user", "content": "meanwhile"},
        ]
    }
    assert repaired(out, "role_order", "roles must alternate")[0] is None


def test_a_bridge_stands_between_a_tool_result_and_the_user_where_the_provider_asks_for_it() -> None:
    body = {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT, {"role": "user", "content": "u"}]}
    out, _ = repaired(body, "role_order", "Unexpected role 'user' after role 'tool'")
    assert out is not None
    assert [message["role"] for message in out["messages"]] == ["assistant", "tool", "assistant", "user"]
    assert repaired(body, "role_order", "roles must alternate")[0] is None


@pytest.mark.parametrize("kind", ["server", "bad_request", "balance", "reasoning_missing", "role_order", "param", "signature"])
def test_nothing_to_change_is_none(kind: str) -> None:
    assert repaired({"model": "m", "messages": "no list"}, kind, "reasoning_content") == (None, [])


def test_ids_of_a_wrong_type_belong_to_nothing() -> None:
    body = {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": []}]}, {"role": "tool", "tool_call_id": {}}]}
    assert repaired(body, "role_order")[0] == {"messages": [{"role": "assistant", "content": "a"}]}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda v: (
        st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "id", "name", "type"]), v, max_size=4)
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(["messages", "input", "thinking", "tool_choice", "reasoning_effort", "temperature", "x"]), values, max_size=5)


@given(
    bodies,
    st.sampled_from(
        ["reasoning_missing", "reasoning_unsupported", "signature", "tool_choice_thinking", "tools_effort", "thinking_mode", "param", "role_order"]
    ),
    st.text(max_size=30) | st.sampled_from([MISSING, "after role 'tool'", "tool call id was", "invalid temperature: only 1"]),
    st.none() | st.text(max_size=8) | st.sampled_from(["messages[0].name", "temperature", "x[0].role.", ".", "x..y"]),
)
def test_no_body_and_no_error_text_breaks_a_repair(body: dict[str, Any], kind: str, message: str, param: str | None) -> None:
    out, notes = repaired(body, kind, message, param)
    assert (out is None) == (notes == [])
