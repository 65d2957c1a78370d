"""JSON Schema -> the subset that Gemini takes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.gemini.schema import cleaned

KNOWN = {
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "anyOf",
    "default",
}
TYPES = {"string", "number", "integer", "boolean", "array", "object"}


def complaints(schema: dict[str, Any]) -> list[str]:
    """What Gemini would refuse in a schema, by its own rules."""
    out = [f"unknown {key}" for key in schema if key not in KNOWN]
    if "anyOf" not in schema and schema.get("type") not in TYPES:
        out.append("no type")
    if any(not isinstance(value, str) or not value for value in schema.get("enum", ())):
        out.append("an enum of no texts")
    if schema.get("type") == "array" and "items" not in schema:
        out.append("an array without items")
    if set(schema.get("required", ())) - set(schema.get("properties", {})):
        out.append("a required property that is not there")
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]
    return out + [text for part in inner for text in complaints(part)]


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"$schema": "x", "type": "object", "additionalProperties": False, "$id": "y"}, {"type": "object"}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}, {"type": "string", "description": "d", "nullable": True}),
        ({"type": ["string", "integer"], "minimum": 1}, {"minimum": 1, "anyOf": [{"type": "string", "minimum": 1}, {"type": "integer", "minimum": 1}]}),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": ["a", None, "a"]}, {"type": "string", "nullable": True, "enum": ["a"]}),
        ({"type": "integer", "enum": [1, 2], "description": "how many"}, {"type": "integer", "description": "how many One of: 1, 2"}),
        ({"enum": [True]}, {"type": "boolean", "description": "One of: true"}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "integer", "format": "int64", "exclusiveMinimum": 0}, {"type": "integer", "format": "int64"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, {"type": "array", "items": {"type": "integer"}}),
        ({"type": "object", "properties": {"a": True}, "required": ["a", "b"]}, {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}}]},
            {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a"]},
        ),
        ({}, {"type": "string"}),
    ],
)
def test_what_gemini_does_not_know_is_said_another_way_or_left_out(schema, wanted):
    assert cleaned(schema) == wanted
    assert complaints(wanted) == []


def test_references_are_followed_and_end_where_they_come_back():
    schema = {
        "properties": {"tree": {"$ref": "#/$defs/Node"}, "odd": {"$ref": "#/$defs/a~1b"}},
        "$defs": {"Node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}, "a/b": {"type": "integer"}},
    }

    out = cleaned(schema)

    assert out["properties"]["tree"] == {"type": "object", "properties": {"name": {"type": "string"}, "next": {"type": "object"}}}
    assert out["properties"]["odd"] == {"type": "integer"}


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$ref": "#/$defs/gone"}, {"anyOf": [{"$ref": "#"}]}])
def test_a_reference_to_itself_or_to_nothing_does_no_harm(schema):
    assert complaints(cleaned({"type": "object", **schema})) == []


def test_references_that_multiply_are_bounded():
    levels = {f"l{n}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/l{n + 1}"} for name in "abcd"}} for n in range(30)}
    began = time.process_time()

    out = cleaned({"$ref": "#/$defs/l0", "$defs": {**levels, "l30": {"type": "string"}}})

    assert time.process_time() - began < 2
    assert len(json.dumps(out)) < 1_000_000


def test_the_schema_of_the_client_is_not_touched():
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}}, "required": ["a"]}
    before = json.dumps(schema)

    cleaned(schema)

    assert json.dumps(schema) == before


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={"type": st.sampled_from([*TYPES, "null", ["string", "null"], ["null"], 3]), "enum": st.lists(VALUES), "const": VALUES}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from([*TYPES, ["object", "array"]]),
            "properties": st.dictionaries(st.text(max_size=3), inner | st.booleans(), max_size=3),
            "required": st.lists(st.text(max_size=3), max_size=3),
            "items": inner | st.lists(inner, max_size=2) | st.booleans(),
            "anyOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=2),
            "$ref": st.sampled_from(["#", "#/properties/a", "nonsense"]),
            "format": st.text(max_size=3),
            "x-odd": VALUES,
        },
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_whatever_comes_the_outcome_is_of_the_subset(schema):
    assert complaints(cleaned(schema)) == []
