"""From what a model wrote as arguments to what a tool may be called with (X6, H21, B021, B131)."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.arguments import BadArguments, as_json, call_id, call_ids, from_text, prepare
from gateway.chat import dumps, loads

SEARCH = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "the words"},
        "n": {"type": "integer"},
        "exact": {"type": "boolean"},
        "pages": {"type": "array", "items": {"type": "integer"}},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "mode": {"enum": ["Fast", "slow"]},
        "ratio": {"type": "number"},
        "filter": {"type": "object", "properties": {"year": {"type": "integer"}}},
    },
    "required": ["q"],
}
ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}


# ---- reading ----


@pytest.mark.parametrize("raw", ["", "  \n", "{}", "null", None])
def test_nothing_is_an_empty_object_b021(raw: str | None) -> None:
    assert prepare(raw, ANYTHING) == {}


@pytest.mark.parametrize(
    "raw",
    [
        '{"q": "x"}',
        ' {"q": "x"}\n',
        '{"q": "x"} trailing words',
        'Here it is: {"q": "x"}',
        "{'q': 'x'}",
        '{q: "x",}',
        '{"q": "x" /* the words */}',
        '```json\n{"q": "x"}\n```',
        '"{\\"q\\": \\"x\\"}"',
        '[{"q": "x"}]',
        '{"arguments": {"q": "x"}}',
        '{}{"q": "x"}',
        '{"q": "x"}{"q": "x"}',
        '"x"',
    ],
)
def test_what_is_nearly_the_object_is_repaired_x6(raw: str) -> None:
    assert prepare(raw, SEARCH) == {"q": "x"}


@pytest.mark.parametrize("raw", ['{"q": "x', '{"q": "x"', '{"q": "x", "pages": [1, 2', '{"q"', "{", "{'q': 'x"])
def test_text_that_ends_too_early_is_never_completed_b131(raw: str) -> None:
    with pytest.raises(BadArguments, match=rf"ends at character {len(raw)}, before the object that begins at character 0 does"):
        prepare(raw, SEARCH)


def test_the_place_of_an_error_is_told_b131() -> None:
    with pytest.raises(BadArguments, match=r"not a JSON object \(.*byte 0"):
        prepare("x", SEARCH)


def test_very_many_objects_are_refused_not_a_crash() -> None:
    with pytest.raises(BadArguments, match="more than one JSON object"):
        prepare('{"q": "x"}' * 5000, SEARCH)


def test_two_different_objects_are_refused() -> None:
    with pytest.raises(BadArguments, match="more than one JSON object"):
        prepare('{"q": "a"}{"q": "b"}', SEARCH)


def test_integers_of_any_size_stay_exact() -> None:
    assert prepare('{"id": 123456789012345678901234567890}', ANYTHING) == {"id": 123456789012345678901234567890}
    assert prepare('{"q": "x", "n": "123456789012345678901234567890"}', SEARCH)["n"] == 123456789012345678901234567890


# ---- casting ----


@pytest.mark.parametrize(
    ("field", "given_", "wanted"),
    [
        ("n", "3", 3),
        ("n", "-3.0", -3),
        ("n", 3.0, 3),
        ("exact", "false", False),
        ("exact", "No", False),
        ("exact", "0", False),
        ("exact", "TRUE", True),
        ("exact", 1, True),
        ("pages", "[1]", [1]),
        ("pages", '["1", 2]', [1, 2]),
        ("pages", 7, [7]),
        ("pages", "7", [7]),
        ("limit", "5", 5),
        ("limit", None, None),
        ("limit", "null", None),
        ("mode", "fast", "Fast"),
        ("ratio", "2.5", 2.5),
        ("ratio", "2", 2),
        ("q", 5, "5"),
        ("q", True, "true"),
        ("q", {"a": [1]}, '{"a":[1]}'),
        ("filter", '{"year": "1999"}', {"year": 1999}),
    ],
)
def test_values_are_cast_to_what_the_schema_wants_x6(field: str, given_: Any, wanted: Any) -> None:
    value = prepare({"q": "x", field: given_}, SEARCH)[field]
    assert value == wanted
    assert type(value) is type(wanted)


@pytest.mark.parametrize("text", ["3", "false", "[1]", "null", '{"a": 1}'])
def test_a_text_that_may_be_a_text_stays_one(text: str) -> None:
    assert prepare({"q": text}, SEARCH) == {"q": text}


def test_null_for_a_field_that_need_not_be_there_is_no_field() -> None:
    assert prepare({"q": "x", "n": None, "mode": None}, SEARCH) == {"q": "x"}


def test_another_spelling_of_a_field_is_that_field() -> None:
    schema = {"type": "object", "properties": {"user_id": {"type": "integer"}}, "required": ["user_id"]}
    assert prepare({"userId": "7"}, schema) == {"user_id": 7}
    assert prepare({"userId": 1, "user_id": 2}, schema) == {"user_id": 2, "userId": 1}


def test_references_inside_the_schema_are_followed() -> None:
    schema = {
        "type": "object",
        "$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/item"}, {"type": "null"}]}}}},
        "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    }
    assert prepare({"items": {"n": "1", "next": {"n": "2", "next": None}}}, schema) == {"items": [{"n": 1, "next": {"n": 2, "next": None}}]}


# ---- validating ----


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("{}", 'missing field: "q" (string: the words). The tool takes: q (string, required), n (integer)'),
        ('{"q": "x", "n": "three"}', 'field "n" must be integer, not "three"'),
        ('{"q": "x", "pages": [1, "a"]}', 'field "pages[1]" must be integer, not "a"'),
        ('{"q": "x", "mode": "no"}', 'field "mode" must be one of "Fast", "slow", not "no"'),
        ('{"q": "x", "limit": "many"}', 'field "limit" must be integer or null, not "many"'),
        ('{"q": "x", "filter": {"year": "old"}}', 'field "filter.year" must be integer, not "old"'),
        ('{"q": null}', 'field "q" must be string, not null'),
    ],
)
def test_a_fault_names_the_field_and_what_is_wanted_b131(raw: str, told: str) -> None:
    with pytest.raises(BadArguments) as caught:
        prepare(raw, SEARCH)
    assert told in str(caught.value)


def test_unknown_fields_are_kept_unless_the_schema_forbids_them() -> None:
    assert prepare('{"q": "x", "more": 1}', SEARCH) == {"q": "x", "more": 1}
    with pytest.raises(BadArguments, match='must not have "pagez"; did you mean "pages"'):
        prepare('{"q": "x", "pagez": [1]}', {**SEARCH, "additionalProperties": False})


@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema", "urn:unknown"])
def test_every_dialect_of_schemas_is_checked(dialect: str) -> None:
    schema = {"$schema": dialect, "type": "object", "properties": {"n": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}}
    assert prepare('{"n": "3"}', schema) == {"n": 3}
    with pytest.raises(BadArguments, match='field "n" must be integer'):
        prepare('{"n": "x"}', schema)


def test_a_schema_that_is_none_checks_nothing() -> None:
    assert prepare('{"a": "1"}', {"type": "object", "properties": {"a": {"type": "sting"}}}) == {"a": "1"}
    assert prepare('{"a": "1"}', {"$schema": 3, "type": "object"}) == {"a": "1"}
    assert prepare('{"a": "1"}', {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}) == {"a": "1"}


def test_a_schema_never_makes_us_ask_another_machine() -> None:
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            schema = {"type": "object", "properties": {"a": {"$ref": f"http://127.0.0.1:{server.server_port}/schema"}}}
            assert prepare({"a": 1}, schema) == {"a": 1}
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


def test_deep_nesting_is_refused_not_a_crash() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    with pytest.raises(BadArguments, match="nested"):
        prepare('{"a":' * 900 + "1" + "}" * 900, schema)


@given(st.text(max_size=200))
def test_no_text_makes_anything_but_an_object_or_bad_arguments(text: str) -> None:
    for schema in (SEARCH, ANYTHING):
        try:
            assert isinstance(prepare(text, schema), dict)
        except BadArguments:
            pass


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=5), _VALUES, max_size=4))
def test_json_without_a_schema_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert prepare(dumps(value).decode(), ANYTHING) == value
    assert prepare(dumps(dumps(value).decode()).decode(), ANYTHING) == value  # encoded twice


@given(st.dictionaries(st.sampled_from(sorted(SEARCH["properties"])), _VALUES, max_size=5))  # type: ignore[call-overload]
def test_what_is_let_through_is_valid_and_stays_the_same_when_prepared_again(value: dict[str, Any]) -> None:
    try:
        made = prepare(value, SEARCH)
    except BadArguments:
        return
    assert prepare(made, SEARCH) == made


# ---- text for the history, ids ----


def test_arguments_in_the_history_are_always_a_json_object_b131() -> None:
    assert as_json('{"q": "x"}') == '{"q": "x"}'
    assert as_json("") == "{}"
    assert as_json('{"q": "x"} words') == '{"q":"x"}'
    assert as_json('{"q": "x') == '{"invalid_arguments":"{\\"q\\": \\"x"}'
    assert as_json("[1]") == '{"invalid_arguments":[1]}'


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=100))
def test_any_text_in_the_history_becomes_an_object(text: str) -> None:
    assert isinstance(loads(as_json(text)), dict)


def test_ids_are_safe_short_and_the_same_each_time_x6() -> None:
    assert call_id("call_1", "run", 1, 0) == "call_1"
    assert call_id("", "run", 1, 0) == call_id(None, "run", 1, 0) == call_id(" ", "run", 1, 0)
    assert len({call_id("", "run", step, index) for step in range(3) for index in range(3)}) == 9
    assert call_id("", "run", 1, 0) != call_id("", "other", 1, 0)
    assert call_id("a b", "run", 1, 0) != call_id("a_b", "run", 1, 0)


def test_ids_of_a_turn_are_all_different_x18() -> None:
    ids = call_ids(["a", "a", "", None, "b"], "run", 2)
    assert ids[0] == "a"
    assert ids[4] == "b"
    assert len(set(ids)) == 5
    assert ids == call_ids(["a", "a", "", None, "b"], "run", 2)


@given(st.text(max_size=200))
def test_any_id_becomes_a_safe_one(raw: str) -> None:
    made = call_id(raw, "run", 1, 0)
    assert 1 <= len(made) <= 64
    assert made.isascii()
    assert made.replace("-", "_").replace("_", "a").isalnum()


# ---- parameters of the text protocols ----


@pytest.mark.parametrize(
    ("text", "name", "made"),
    [
        ("a=1,b=2", "t", {"a": "1", "b": "2"}),
        ("city=Paris", "t", {"city": "Paris"}),
        ("hello", "search", {"query": "hello"}),
        ("hello", "memory", {"action": "search", "query": "hello"}),
        ("hello", "calc", {"input": "hello"}),
        ('{"a": "x ] y, z"}', "t", {"a": "x ] y, z"}),
        ('a="x, b=1", b=2', "t", {"a": "x, b=1", "b": "2"}),
        ("a=x, y and z,b=2", "t", {"a": "x, y and z", "b": "2"}),
        ("a=[1, 2],b=2", "t", {"a": [1, 2], "b": "2"}),
        ("", "t", {}),
    ],
)
def test_parameters_without_a_schema_h21(text: str, name: str, made: dict[str, Any]) -> None:
    assert from_text(text, name, {}) == made


def test_only_fields_of_the_tool_are_keys_h21() -> None:
    assert from_text("x=1, y=2", "calc", {"properties": {"expression": {}}}) == {"expression": "x=1, y=2"}
    assert from_text("q=a, b=c, n=3", "t", SEARCH) == {"q": "a, b=c", "n": "3"}
    assert from_text("q: weather, n: 3", "t", SEARCH) == {"q": "weather", "n": "3"}


def test_a_value_without_a_name_goes_to_the_field_that_it_must_be_for_h27() -> None:
    assert from_text("2123,210512", "mul", {"properties": {"input": {}}, "required": ["input"]}) == {"input": "2123,210512"}
    assert from_text('"Paris"', "weather", {"properties": {"city": {}, "day": {}}, "required": ["city"]}) == {"city": "Paris"}
    assert from_text("2, 3", "add", {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}) == {"a": "2", "b": "3"}
    assert from_text("words", "t", {"properties": {"limit": {}, "query": {}}}) == {"query": "words"}


def test_broken_json_is_no_value_b121() -> None:
    with pytest.raises(BadArguments):
        from_text("{", "t", SEARCH)


@given(st.text(max_size=120), st.sampled_from([SEARCH, ANYTHING, {}]))
def test_parameters_of_any_text(text: str, schema: dict[str, Any]) -> None:
    try:
        assert isinstance(from_text(text, "t", schema), dict)
    except BadArguments:
        assert text.strip().startswith("{")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.from_regex(r"[A-Za-z0-9 ;.\-]*[A-Za-z0-9]", fullmatch=True), min_size=1, max_size=4))
def test_written_pairs_come_back(pairs: dict[str, str]) -> None:
    text = ", ".join(f"{key}={value}" for key, value in pairs.items())
    assert from_text(text, "t", {}) == {key: value.strip() for key, value in pairs.items()}
