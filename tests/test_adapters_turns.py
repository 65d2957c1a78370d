"""Turns of a history as strict providers take them: ids, names, bridges, empty contents, thoughts in the content, entries of reasoning."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.apply import prepare
from gateway.adapters.entries import prune_entries
from gateway.adapters.hooks import Adapter, Context, Hooks
from gateway.adapters.reasoning import echo, reasoning_text
from gateway.adapters.roles import bridge, empty_contents, name_results, roles_of, short_ids
from gateway.adapters.settings import settings
from gateway.adapters.thinking import read_wish

USER = {"role": "user", "content": "q"}


def calls(*idents: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": i, "type": "function", "function": {"name": f"f_{i}", "arguments": "{}"}} for i in idents],
    }


def result(ident: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": "r", **fields}


def sent(body: dict[str, Any], model: str = "m", options: dict[str, Any] | None = None, **declared: Any) -> tuple[dict[str, Any], Context]:
    adapter = Adapter(name="x", **declared)
    resolved = settings(adapter, model, options or {})
    ctx = Context(model=model, thinking=read_wish(body) or "auto", options=resolved)
    return prepare(copy.deepcopy(body), Hooks(adapter), resolved, ctx), ctx


# --- ids, names, bridges ----------------------------------------------------------------------


def test_an_id_becomes_nine_letters_and_digits_the_same_in_call_and_result_and_at_each_time() -> None:
    messages = [USER, calls("call_abc-123456", "gSIMJiOkT"), result("call_abc-123456"), result("gSIMJiOkT")]
    again = copy.deepcopy(messages)
    ids = short_ids(messages)
    short = messages[1]["tool_calls"][0]["id"]
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", short)
    assert [message.get("tool_call_id") for message in messages[2:]] == [short, "gSIMJiOkT"]
    assert ids == {short: "call_abc-123456"}
    assert short_ids(again) == ids
    assert again == messages


@given(st.lists(st.text(), unique=True, max_size=6))
def test_any_ids_become_ids_that_fit_and_the_old_ones_can_be_found_again(idents: list[str]) -> None:
    messages = [calls(*idents), *(result(ident) for ident in idents)]
    ids = short_ids(messages)
    new = [call["id"] for call in messages[0]["tool_calls"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", ident) for ident in new)
    assert [message["tool_call_id"] for message in messages[1:]] == new
    assert [ids.get(ident, ident) for ident in new] == idents
    assert short_ids(messages) == {}


def test_the_ids_that_were_changed_are_kept_for_the_way_back() -> None:
    body, ctx = sent({"messages": [USER, calls("call_1"), result("call_1")]}, options={"tool_ids": "nine"})
    assert ctx.state["tool_ids"] == {body["messages"][2]["tool_call_id"]: "call_1"}
    assert ctx.notes == ["x.tool_ids=1"]


def test_a_result_is_named_after_its_call_unless_it_has_a_name_or_no_call() -> None:
    messages = [calls("a", "b"), result("a"), result("b", name="own"), result("c"), {**USER, "tool_call_id": "a"}]
    assert name_results(messages) == 1
    assert [message.get("name") for message in messages] == [None, "f_a", "own", None, None]


def test_a_bridge_stands_wherever_the_user_follows_a_result_and_nowhere_else() -> None:
    messages = [USER, calls("a", "b"), result("a"), result("b"), USER, USER, calls("c"), result("c"), USER]
    assert bridge(messages) == 2
    assert roles_of(messages) == ["user", "assistant", "tool", "tool", "assistant", "user", "user", "assistant", "tool", "assistant", "user"]
    assert bridge(messages) == 0


@pytest.mark.parametrize(
    ("wanted", "before", "after"),
    [
        ("", {"content": None}, {"content": ""}),
        ("", {}, {"content": ""}),
        ("", {"content": "a"}, {"content": "a"}),
        ("", {"content": None, "tool_calls": [1]}, {"content": "", "tool_calls": [1]}),
        (None, {"content": "", "tool_calls": [1]}, {"content": None, "tool_calls": [1]}),
        (None, {"content": "a", "tool_calls": [1]}, {"content": "a", "tool_calls": [1]}),
        (None, {"content": ""}, {"content": ""}),
    ],
)
def test_an_empty_content_is_what_the_provider_takes(wanted: str | None, before: dict[str, Any], after: dict[str, Any]) -> None:
    messages = [{"role": "assistant", **before}, {"role": "user", "content": None}]
    assert empty_contents(messages, wanted) == (before != after)
    assert messages == [{"role": "assistant", **after}, {"role": "user", "content": None}]


ODD: list[Any] = [
    None,
    3,
    "text",
    {},
    {"role": "tool"},
    {"role": "assistant", "tool_calls": "x"},
    {"role": "assistant", "tool_calls": [None, {"id": 3}, {"id": []}]},
]


@pytest.mark.parametrize("rule", [short_ids, name_results, bridge, lambda messages: prune_entries(messages, "once")])
def test_what_is_no_message_is_left_alone(rule: Any) -> None:
    messages = [*ODD, {"role": "tool", "tool_call_id": []}, {"role": "assistant", "reasoning_details": "x"}]
    before = copy.deepcopy(messages)
    assert not rule(messages)
    assert messages == before


# --- thoughts in the content --------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}], "closed": True}


@pytest.mark.parametrize(
    ("field", "turn", "content"),
    [
        ("parts", {"content": "a", "reasoning_content": "t"}, [THOUGHT, {"type": "text", "text": "a"}]),
        ("parts", {"content": None, "reasoning": "t", "reasoning_details": [{"text": "t"}]}, [THOUGHT]),
        ("parts", {"content": [{"type": "text", "text": "a"}], "reasoning_content": "t"}, [THOUGHT, {"type": "text", "text": "a"}]),
        (
            "parts",
            {"content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"}]},
            [THOUGHT, {"type": "text", "text": "a"}],
        ),
        ("parts", {"content": [THOUGHT, {"type": "text", "text": "a"}], "reasoning_content": "other"}, [THOUGHT, {"type": "text", "text": "a"}]),
        ("tags", {"content": "a", "reasoning_content": "t"}, "<think>t</think>a"),
        ("tags", {"content": None, "reasoning_content": "t"}, "<think>t</think>"),
        (
            "tags",
            {"content": [{"type": "text", "text": "a"}], "reasoning_content": "t"},
            [{"type": "text", "text": "<think>t</think>"}, {"type": "text", "text": "a"}],
        ),
        ("tags", {"content": [THOUGHT, {"type": "text", "text": "a"}]}, [{"type": "text", "text": "<think>t</think>"}, {"type": "text", "text": "a"}]),
        ("tags", {"content": "a", "reasoning_content": ""}, "a"),
        ("parts", {"content": "a", "reasoning_content": None}, "a"),
    ],
)
def test_thoughts_stand_at_the_start_of_the_content_and_nowhere_else(field: str, turn: dict[str, Any], content: Any) -> None:
    messages = [USER, {"role": "assistant", **turn}]
    assert echo(messages, roles_of(messages), "all", field, None, False).moved == 1
    assert messages == [USER, {"role": "assistant", "content": content}]
    assert not any(echo(messages, roles_of(messages), "all", field, None, False))


@pytest.mark.parametrize("field", ["parts", "tags"])
def test_a_turn_without_thoughts_is_not_given_any(field: str) -> None:
    messages = [USER, {"role": "assistant", "content": "a"}, calls("c")]
    before = copy.deepcopy(messages)
    assert not any(echo(messages, roles_of(messages), "all", field, "", True))
    assert messages == before


@given(st.text(min_size=1), st.one_of(st.none(), st.text()))
def test_thoughts_in_parts_can_be_read_back_as_they_were(thought: str, content: str | None) -> None:
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": content, "reasoning": thought}]
    echo(messages, roles_of(messages), "all", "parts", None, False)
    assert reasoning_text(messages[0]) == thought
    assert [part["text"] for part in messages[0]["content"][1:]] == ([content] if content else [])


# --- entries of reasoning_details ---------------------------------------------------------------


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": words, **more}


def with_entries(*turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "a", "reasoning_details": turn} for turn in turns]


def test_an_entry_goes_once_in_the_history_and_a_mere_text_once_in_its_turn() -> None:
    own = text("t", id="r1", signature="s")
    messages = with_entries([own, own, text("x"), text("x")], [own, text("x")], [own])
    assert prune_entries(messages, "once") == 4
    assert [message.get("reasoning_details") for message in messages] == [[own, text("x")], [text("x")], None]


def test_parts_of_one_summary_share_an_id_and_are_kept() -> None:
    entries = [{"type": "reasoning.summary", "summary": words, "id": "rs_1"} for words in ("one", "two")]
    entries.append({"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1"})
    messages = with_entries(list(entries))
    assert prune_entries(messages, "signed") == 0
    assert messages[0]["reasoning_details"] == entries


@pytest.mark.parametrize(
    ("which", "entry", "stays"),
    [
        ("once", text("t", format="anthropic-claude-v1"), False),
        ("once", text("t", format="google-gemini-v1", signature=None), False),
        ("once", text("t", format="anthropic-claude-v1", signature="s"), True),
        ("once", text("t", format="unknown"), True),
        ("once", text("t"), True),
        ("signed", text("t"), False),
        ("signed", text("", signature="s"), True),
        ("signed", {"type": "reasoning.encrypted", "data": "d"}, True),
    ],
)
def test_a_text_goes_only_with_the_signature_that_its_format_needs(which: str, entry: dict[str, Any], stays: bool) -> None:
    messages = with_entries([dict(entry)])
    assert prune_entries(messages, which) == (not stays)
    assert messages[0].get("reasoning_details") == ([entry] if stays else None)


def test_an_empty_list_of_entries_stays() -> None:
    messages = with_entries([])
    assert prune_entries(messages, "signed") == 0
    assert messages[0]["reasoning_details"] == []


# --- names and budgets --------------------------------------------------------------------------


def test_a_deployment_is_treated_as_the_model_that_it_is_known_as() -> None:
    sections = [{"match": "big*", "options": {"max_tokens_field": "max_tokens"}}]
    body = {"messages": [USER], "max_completion_tokens": 3}
    assert "max_completion_tokens" in sent(body, "mine", models=sections)[0]
    assert sent(body, "mine", {"known_as": "big-1"}, models=sections)[0]["max_tokens"] == 3
    assert "max_completion_tokens" in sent(body, "big-1", {"known_as": "other"}, models=sections)[0]


def test_beside_a_mere_on_the_clients_own_budget_stays() -> None:
    rule = {"off": {"r.enabled": False}, "on": {"reasoning.enabled": True}, "effort": "reasoning.effort", "keeps": ["reasoning.max_tokens"]}
    body = {"messages": [USER], "reasoning": {"max_tokens": 9}}
    assert sent(body, thinking=rule)[0]["reasoning"] == {"max_tokens": 9, "enabled": True}
    assert sent({**body, "reasoning_effort": "low"}, thinking=rule)[0]["reasoning"] == {"enabled": True, "effort": "low"}
    del rule["keeps"]
    assert sent(body, thinking=rule)[0]["reasoning"] == {"enabled": True}


def test_a_level_of_fields_is_reported_as_the_level_that_was_taken() -> None:
    rule = {"off": "omit", "effort": "e", "levels": {"high": {"e": "hi"}, "max": {"e": "ma"}}}
    body, ctx = sent({"messages": [USER], "reasoning_effort": "low"}, thinking=rule)
    assert (body["e"], ctx.notes) == ("hi", ["x.thinking=high"])
