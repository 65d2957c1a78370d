"""Tools as providers take them: which choice, what schemas, what arguments in the history."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.tools import fit_schemas, narrow_choice, repair_arguments


def tool(name: str, **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **function}}


W, V = tool("w"), tool("v")
NAMED = {"type": "function", "function": {"name": "w"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("accepted", "choice", "became", "left"),
    [
        (["auto"], "auto", None, {"tools": [W, V], "tool_choice": "auto"}),
        (["auto"], "required", "tool_choice=auto", {"tools": [W, V], "tool_choice": "auto"}),
        (["auto"], NAMED, "tool_choice=auto", {"tools": [W, V], "tool_choice": "auto"}),
        (["auto"], "none", "tools=none", {}),
        (["auto", "none"], "none", None, {"tools": [W, V], "tool_choice": "none"}),
        (["auto", "required"], NAMED, "tool_choice=required", {"tools": [W], "tool_choice": "required"}),
        (["auto", "required"], ALLOWED, "tool_choice=required", {"tools": [W], "tool_choice": "required"}),
        (["auto", "required"], {"type": "function", "function": {"name": "x"}}, "tool_choice=auto", {"tools": [W, V], "tool_choice": "auto"}),
        (["auto", "required"], {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, "tool_choice=auto", {"tools": [W, V], "tool_choice": "auto"}),
        (["auto", "required"], {"type": 3}, "tool_choice=auto", {"tools": [W, V], "tool_choice": "auto"}),
        (["none"], "auto", "drop=tool_choice", {"tools": [W, V]}),
        (["auto"], "a word of its own", None, {"tools": [W, V], "tool_choice": "a word of its own"}),
        (["auto"], None, None, {"tools": [W, V], "tool_choice": None}),
    ],
)
def test_a_choice_that_is_not_taken_gives_way_to_the_nearest(accepted: list[str], choice: Any, became: str | None, left: dict[str, Any]) -> None:
    body = {"tools": [W, V], "tool_choice": copy.deepcopy(choice)}
    assert narrow_choice(body, accepted) == became
    assert body == left
    assert narrow_choice(body, accepted) is None


def test_functions_without_parameters_get_some_and_others_stay() -> None:
    bare, empty, null = ({"type": "function", "function": {"name": "f", **more}} for more in ({}, {"parameters": {}}, {"parameters": None}))
    odd: list[Any] = ["no tool", {"type": "web_search"}, {"type": "function", "function": None}]
    tools = [bare, empty, null, copy.deepcopy(W), *copy.deepcopy(odd)]
    assert fit_schemas(tools, "filled") == 3
    assert [item["function"]["parameters"] for item in tools[:3]] == [{"type": "object", "properties": {}}] * 3
    assert tools[3:] == [W, *odd]
    assert fit_schemas(None, "filled") == fit_schemas(tools, "filled") == 0


def test_a_schema_in_the_subset_is_left_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "items": {"type": "array", "items": {"type": "string"}}}}
    tools = [tool("f", parameters=copy.deepcopy(schema))]
    assert fit_schemas(tools, "moonshot") == 0
    assert tools[0]["function"]["parameters"] == schema


def test_tuples_types_beside_alternatives_and_the_schemas_own_address_are_rewritten_at_every_depth() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "null"}], "items": [{"type": "number"}, True]}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"at": pair, "by": {"type": "string", "anyOf": [{"enum": ["a"]}, {"type": "null"}, True]}},
        "$defs": {"x": {"oneOf": [{"items": [{"type": "string", "anyOf": [{}]}]}]}},
        "additionalProperties": False,
    }
    tools = [tool("f", parameters=schema)]
    assert fit_schemas(tools, "moonshot") == 1
    assert tools[0]["function"]["parameters"] == {
        "properties": {
            "at": {"type": "array", "prefixItems": [{"type": "null"}, {"type": "number"}, True]},
            "by": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}, True]},
        },
        "$defs": {"x": {"oneOf": [{"prefixItems": [{"anyOf": [{"type": "string"}]}]}]}},
        "additionalProperties": False,
        "type": "object",
    }


def _schemas() -> st.SearchStrategy[Any]:
    words = st.sampled_from(["type", "items", "anyOf", "properties", "$schema", "enum", "prefixItems", "not"])
    leaves = st.one_of(st.booleans(), st.none(), st.sampled_from(["string", "object"]), st.integers())
    return st.recursive(leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=4)), max_leaves=12)


@given(schema=st.dictionaries(st.sampled_from(["type", "items", "anyOf", "properties", "$schema", "not"]), _schemas(), max_size=5))
def test_whatever_the_schema_is_a_second_time_changes_nothing(schema: dict[str, Any]) -> None:
    tools = [tool("f", parameters=schema)]
    fit_schemas(tools, "moonshot")
    assert fit_schemas(tools, "moonshot") == 0


def arguments_after(arguments: Any) -> Any:
    messages: list[Any] = [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}]
    repair_arguments(messages)
    return messages[0]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"a": 1 }', '{"a": 1 }'),
        ("", "{}"),
        (None, "{}"),
        ({"a": [1]}, '{"a":[1]}'),
        ([1], "{}"),
        ("[1]", "{}"),
        ('"text"', "{}"),
        ('{path:"a"', "{}"),
        ('{"a": "b', '{"a": "b"}'),
        ('{"a": "b\\', '{"a": "b"}'),
        ('{"a": "b\\"', '{"a": "b\\""}'),
        ('{"a": [1, {"b": 2', '{"a": [1, {"b": 2}]}'),
        ('{"a": [1, ', '{"a": [1]}'),
        ('{"a":', "{}"),
        ('{"a": 1}}', "{}"),
        ("\ud800", "{}"),
        ("[" * 100_000, "{}"),
    ],
)
def test_arguments_are_objects_afterwards_closed_where_they_were_cut(arguments: Any, wanted: str) -> None:
    assert arguments_after(arguments) == wanted


def test_only_calls_that_are_calls_are_looked_at_and_counted() -> None:
    broken = {"id": "c", "function": {"name": "f", "arguments": "{"}}
    messages: list[Any] = [
        "no message",
        {"role": "user"},
        {"tool_calls": None},
        {"tool_calls": ["x", {"id": "a"}, {"function": 3}, broken, {"custom": {"input": "("}}]},
    ]
    assert repair_arguments(messages) == 1
    assert messages[3]["tool_calls"][4] == {"custom": {"input": "("}}
    assert repair_arguments(messages) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text(max_size=4), JSON, max_size=4), at=st.integers(min_value=0), ascii_only=st.booleans())
def test_an_object_that_was_cut_anywhere_becomes_an_object_that_holds_nothing_else(value: dict[str, Any], at: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert arguments_after(text) == text
    left = json.loads(arguments_after(text[: at % (len(text) + 1)]))
    assert isinstance(left, dict)
    assert set(left) <= set(value)


@given(text=st.text())
def test_any_text_becomes_the_text_of_an_object(text: str) -> None:
    assert isinstance(json.loads(arguments_after(text)), dict)
