"""A document that a hook gets comes back as it was, but for what the hook changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.adapters import Context, Hooks
from gateway.chat import dumps, loads
from gateway.errors import AdapterError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**40, -(10**40)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.0, -0.0, 0.0, 5e-324, 1e308]),
    st.text(),
    st.sampled_from(["", "\x00", "a\x00b", "é", "😀", "0", "1", "x" * 3000, "é" * 2000]),
)
KEYS = st.one_of(st.text(max_size=5), st.sampled_from(["1", "2", "n", "#", "", "messages", "tools", "__index", "content", "\x00", "😀"]))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(KEYS, inner, max_size=5)), max_leaves=25)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=6)
PLAIN = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text("ab1#é", max_size=3), inner, max_size=5)), max_leaves=25
)

WALK = """
local function walk(t)
  if type(t) ~= "table" then return end
  if is_array(t) then for i = 1, #t do walk(t[i]) end else for _, v in pairs(t) do walk(v) end end
end
walk(req)
"""
REBUILD = """
local function again(t)
  if type(t) ~= "table" then return t end
  local copy = is_array(t) and array{} or {}
  for k, v in pairs(t) do copy[k] = again(v) end
  return copy
end
req.twin = again(req.doc)
"""


def exact(value: Any) -> Any:
    """Equal only if equal in type, sign and key order too."""
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, list):
        return ["list", *(exact(item) for item in value)]
    return (type(value).__name__, repr(value))


@given(document=DOCUMENTS)
@settings(max_examples=120, deadline=None)
@pytest.mark.parametrize(
    "lua", ["", WALK, "local _ = deep_copy(req)", "for k in pairs(req) do local _ = req[k] end"], ids=["untouched", "read", "copied", "listed"]
)
def test_what_is_only_read_comes_back_exactly(run: Any, lua: str, document: dict[str, Any]) -> None:
    before = exact(document)

    assert exact(run(lua, document)) == before


@given(document=DOCUMENTS)
@settings(max_examples=120, deadline=None)
def test_what_is_moved_keeps_every_value_and_order(run: Any, document: dict[str, Any]) -> None:
    twin = loads(dumps(document))

    out = run("req.b = req.a; req.a = nil; req.c = {inner = req.b, deep = deep_copy(req.b)}", {"a": document})

    assert exact(out["b"]) == exact(out["c"]["inner"]) == exact(out["c"]["deep"]) == exact(twin)
    assert "a" not in out


@given(document=PLAIN)
@settings(max_examples=120, deadline=None)
def test_what_a_script_builds_anew_is_equal(run: Any, document: Any) -> None:
    out = run(REBUILD, {"doc": document})

    assert out["twin"] == document
    assert {repr(v) for v in scalars(out["twin"])} == {repr(v) for v in scalars(document)}


def scalars(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [s for item in value.values() for s in scalars(item)]
    if isinstance(value, list):
        return [s for item in value for s in scalars(item)]
    return [value]


@given(document=DOCUMENTS, key=KEYS, value=SCALARS)
@settings(max_examples=120, deadline=None)
def test_one_set_field_changes_nothing_else(make: Any, document: dict[str, Any], key: str, value: Any) -> None:
    hooks = Hooks(make("function transform_request(req, ctx) req[ctx.state.key] = ctx.state.value return req end"))
    wanted = {**loads(dumps(document)), key: value}

    out = hooks.transform_request(document, Context(state={"key": key, "value": value}))

    assert exact(out) == exact(wanted)


def test_deep_documents_pass_through(run: Any) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]

    assert run("req.x = 1", {"deep": deep})["deep"] is deep


ASSIGNED = [
    ("req.x = {}", {}),
    ("req.x = array{}", []),
    ("req.x = array()", []),
    ("req.x = array{1, 2}", [1, 2]),
    ("req.x = array(1, 2)", [1, 2]),
    ("req.x = {1, {2, {}}}", [1, [2, {}]]),
    ("req.x = {a = {b = null}}", {"a": {"b": None}}),
    ("req.x = null", None),
    ("req.x = {null, null}", [None, None]),
    ("req.x = 1", 1),
    ("req.x = 1.0", 1.0),
    ("req.x = -0.0", -0.0),
    ("req.x = 2^53 + 1", 2.0**53),
    ("req.x = 9007199254740993", 2**53 + 1),
    ("req.x = req.big", 2**64),
    ("req.x = {req.big, tostring(req.big), req.big > 5, req.big == req.big, req.big < 1e30, type(req.big)}", [2**64, str(2**64), True, True, True, "number"]),
    ("req.x = 'a\\0b'", "a\0b"),
    ("req.x = '\\u{1F600}'", "😀"),
    ("req.x = {z = 1, a = 2, m = 3}", {"a": 2, "m": 3, "z": 1}),
    (
        "req.x = {tools = {}, messages = {}, stop = {}, tool_calls = {}, content = {}, other = {}}",
        {"content": [], "messages": [], "other": {}, "stop": [], "tool_calls": [], "tools": []},
    ),
    ("req.x = {tool_choice = {}, metadata = {}}", {"metadata": {}, "tool_choice": {}}),
    ("req.x = deep_copy({a = array{}, b = {}})", {"a": [], "b": {}}),
]


@pytest.mark.parametrize(("lua", "value"), ASSIGNED, ids=[lua for lua, _ in ASSIGNED])
def test_an_assigned_table_becomes_json(run: Any, lua: str, value: Any) -> None:
    out = run(lua, {"big": 2**64})

    assert exact(out["x"]) == exact(value)
    assert loads(dumps(out))["x"] == value


@pytest.mark.parametrize(
    ("was", "lua", "now"),
    [
        ([1], "req.x = {}", []),
        ({"a": 1}, "req.x = {}", {}),
        ([], "req.x = {}", []),
        ([1, 2], "req.x[1] = nil req.x[2] = nil", []),
        ({"a": 1}, "req.x.a = nil", {}),
        (1, "req.x = 1.0", 1.0),
        (1.0, "req.x = 1", 1),
        (0.0, "req.x = -0.0", -0.0),
        ([1], "req.x[1] = 1.0", [1.0]),
        (None, "if req.x == null then req.x = nil end", "absent"),
        (None, "req.x = type(req.x)", "null"),
        ("x" * 5000, "req.x = nil", "absent"),
        ("x" * 5000, "req.x = 'short'", "short"),
        ("x" * 5000, "req.x = #req.x", 5000),
        ("x" * 5000, "req.y = req.x; req.x = req.y:sub(1, 2)", "xx"),
        ({"n": {"deep": [1]}}, "table.insert(req.x.n.deep, {a = req.x.n.deep[1]})", {"n": {"deep": [1, {"a": 1}]}}),
        (2**70, "req.x = {req.x}", [2**70]),
    ],
)
def test_a_changed_field_is_what_the_script_made_of_it(run: Any, was: Any, lua: str, now: Any) -> None:
    out = run(lua, {"before": 1, "x": was, "after": 2})

    assert exact(out.get("x", "absent")) == exact(now)
    assert [key for key in out if key in ("before", "after")] == ["before", "after"]


def test_new_keys_come_after_the_old_ones_in_the_same_order_each_time(run: Any) -> None:
    assert list(run("req.c = 1 req.a = 2 req.b = 3", {"z": 1, "y": 2})) == ["z", "y", "a", "b", "c"]


def test_pairs_follows_the_document(run: Any) -> None:
    out = run("local keys = array{} for k in pairs(req) do keys[#keys + 1] = k end req.keys = keys", {"z": 1, "1": None, "a": {}, "long": "x" * 2000, "b": []})

    assert out["keys"] == ["z", "1", "a", "long", "b"]


def test_one_part_in_two_places_is_two_parts(run: Any) -> None:
    out = run("req.first = req.messages[1]; req.messages[3] = req.messages[1]", {"messages": [{"role": "user", "meta": {"a": 1}}, {"role": "x"}]})

    out["first"]["meta"]["a"] = 2
    assert out["messages"] == [{"role": "user", "meta": {"a": 1}}, {"role": "x"}, {"role": "user", "meta": {"a": 1}}]
    assert out["messages"][0] is not out["messages"][2]


def test_a_change_after_a_move_is_in_both_places(run: Any) -> None:
    out = run("req.first = req.messages[1]; req.first.role = 'changed'", {"messages": [{"role": "user"}]})

    assert out["first"] == out["messages"][0] == {"role": "changed"}


def test_a_hook_may_give_another_table(make: Any) -> None:
    hooks = Hooks(make("function transform_request(req) return {model = 'other', messages = req.messages} end"))

    assert hooks.transform_request({"model": "m", "messages": [{"content": None}], "x": 1}, Context()) == {"messages": [{"content": None}], "model": "other"}


REFUSED = [
    ("req.x = type", r"x is a function, which JSON does not know"),
    ("req.a = {b = {c = {1, type}}}", r"b\.c|\[2\] is a function"),
    ("req.messages[1].f = tostring", r"messages\[1\]\.f is a function"),
    ("req.x = ctx", "x is an object of the gateway"),
    ("req.x = string", "x is an object of the gateway"),
    ("req.x = _G", "x is an object of the gateway"),
    ("req.x = req", "cycle"),
    ("req.messages[1].parent = req", "cycle"),
    ("local t = {} t.t = t req.x = t", "cycle"),
    ("req.x = 0/0", "x is a number that JSON does not know"),
    ("req.x = {math.huge}", r"\[1\] is a number that JSON does not know"),
    ("req.x = {1, nil, 3}", "hole"),
    ("req.messages[3] = {}", r"messages\[3\] leaves a hole|hole in a list"),
    ("table.insert(req.messages, {}) req.messages[1] = nil", "hole"),
    ("req.x = {1, a = 2}", "mixes|no string"),
    ("req[1] = 2", "no string"),
    ("req.messages.x = 2", "messages mixes list elements with the key 'x'"),
    ("req.x = {[true] = 1}", "no string"),
    ("req.x = {[1.5] = 1}", "no string"),
    ("req.x = '\\255'", "x is not valid UTF-8"),
    ("req.x = ('é'):sub(1, 1)", "x is not valid UTF-8"),
    ("req.x = '\\xed\\xa0\\x80'", "x is not valid UTF-8"),
    ("req['\\255'] = 1", "not valid UTF-8"),
    ("local t = {} for i = 1, 200 do t = {t} end req.x = t", "nested too deeply"),
    ("req.x = think_splitter()", "can only be kept in a field of ctx.state"),
    ("req.x = req.big + 1", "arithmetic"),
    ("local _ = null.x", "attempt to index null"),
    ("null.x = 1", "attempt to set field 'x' of null"),
    ("local _ = null .. 'x'", "concatenate"),
]


@pytest.mark.parametrize(("lua", "message"), REFUSED, ids=[lua for lua, _ in REFUSED])
def test_what_is_no_json_is_refused_by_path(run: Any, lua: str, message: str) -> None:
    with pytest.raises(AdapterError, match=message) as caught:
        run(lua, {"big": 2**64, "messages": [{"role": "user"}]})

    assert caught.value.message.startswith("adapters/x.lua:1: ")


def test_a_failed_hook_changes_nothing(run: Any) -> None:
    body = {"a": 1, "messages": [{"role": "user"}]}

    with pytest.raises(AdapterError):
        run("req.a = 2 req.messages[1].role = 'x' table.insert(req.messages, {}) error('no')", body)

    assert body == {"a": 1, "messages": [{"role": "user"}]}


@pytest.mark.parametrize("name", ["__class__", "__dict__", "keys", "items", "get", "append", "__getitem__", "pop"])
def test_no_python_attribute_is_there(run: Any, name: str) -> None:
    out = run(f"req.found = req.{name} ~= nil or req.list.{name} ~= nil or ctx.{name} ~= nil or ctx.state.{name} ~= nil", {"list": [1], "object": {}})

    assert out["found"] is False


def test_a_value_of_an_earlier_call_cannot_be_read(make: Any) -> None:
    hooks = Hooks(make("local kept\nfunction transform_request(req)\n if kept then req.x = kept.secret end\n kept = req.inner return req end"))
    hooks.transform_request({"inner": {"secret": "of the first"}}, Context())

    with pytest.raises(AdapterError, match=r"x\.lua:3: .*earlier call"):
        hooks.transform_request({"inner": {}}, Context())
