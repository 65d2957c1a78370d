"""Views of lists and objects behave as Lua's own tables do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

LISTS = [
    ("req.out = #req.n", 3),
    ("req.out = req.n[1]", 10),
    ("req.out = req.n[0] == nil and req.n[4] == nil and req.n.x == nil", True),
    ("local s = 0 for i, v in ipairs(req.n) do s = s + i * v end req.out = s", 140),
    ("local s = 0 for k, v in pairs(req.n) do s = s + k * v end req.out = s", 140),
    ("local s = 0 for k, v in next, req.n do s = s + v end req.out = s", 60),
    ("local k, v = next(req.n) req.out = {k, v}", [1, 10]),
    ("req.out = next(req.empty) == nil and next({}) == nil", True),
    ("table.insert(req.n, 40) req.out = req.n", [10, 20, 30, 40]),
    ("table.insert(req.n, 1, 5) req.out = req.n", [5, 10, 20, 30]),
    ("req.n[#req.n + 1] = 40 req.out = #req.n", 4),
    ("req.out = {table.remove(req.n), table.remove(req.n, 1), #req.n}", [30, 10, 1]),
    ("table.sort(req.n, function(a, b) return a > b end) req.out = req.n", [30, 20, 10]),
    ("req.out = table.concat(req.n, ',')", "10,20,30"),
    ("req.out = table.concat(req.n, ',', 2, 3)", "20,30"),
    ("local a, b, c, d = table.unpack(req.n) req.out = {c, b, a, d == nil}", [30, 20, 10, True]),
    ("req.out = select('#', table.unpack(req.n))", 3),
    ("req.out = {n = table.pack(table.unpack(req.n)).n}", {"n": 3}),
    ("req.n[#req.n] = nil req.out = req.n", [10, 20]),
    ("while #req.n > 0 do table.remove(req.n, 1) end req.out = req.n", []),
    ("req.out = is_array(req.n) and is_array(req.empty) and not is_array(req.object) and not is_array({}) and is_array({1}) and not is_array(null)", True),
    ("req.out = is_array('x') or is_array(nil) or is_array(1)", False),
    ("table.sort(req.m, function(a, b) return a.k < b.k end) req.out = req.m", [{"k": 1, "v": None}, {"k": 2, "v": []}]),
    ("req.m[1], req.m[2] = req.m[2], req.m[1] req.out = req.m[1].k", 1),
    ("table.insert(req.m, 2, {k = 9}) req.m[2].z = 1 req.out = req.m", [{"k": 2, "v": []}, {"k": 9, "z": 1}, {"k": 1, "v": None}]),
    ("local m = table.remove(req.m, 1) m.v = 'x' table.insert(req.m, m) req.out = req.m", [{"k": 1, "v": None}, {"k": 2, "v": "x"}]),
    ("for i = #req.m, 1, -1 do if req.m[i].k == 1 then table.remove(req.m, i) end end req.out = req.m", [{"k": 2, "v": []}]),
    ("for k in pairs(req.object) do req.object[k] = nil end req.out = req.object", {}),
    ("req.out = req.object.absent == nil and req.object.b == null and req.object.b ~= nil", True),
    ("req.out = null == null and type(null) == 'null' and tostring(null) == 'null' and null ~= nil", True),
    ("req.out = (req.object.b == null or req.object.b == nil) and not (req.object.a == null)", True),
    ("req.out = type(req) .. type(req.n) .. type(1) .. type('') .. type(nil) .. type(type) .. type(true)", "tabletablenumberstringnilfunctionboolean"),
    ("req.out = tostring(req) .. tostring(req.n) .. tostring(type)", "tabletablefunction"),
    ("req.out = req.n == req.n and req.m[1] == req.m[1] and req.m[1] ~= req.m[2]", True),
    ("local t = {} for i, v in ipairs(req.nulls) do t[i] = v == null end req.out = t", [True, False, True]),
    ("req.out = #req.nulls", 3),
]


@pytest.mark.parametrize(("lua", "wanted"), LISTS, ids=[lua for lua, _ in LISTS])
def test_list_and_object_semantics(run: Any, lua: str, wanted: Any) -> None:
    body = {"n": [10, 20, 30], "m": [{"k": 2, "v": []}, {"k": 1, "v": None}], "empty": [], "object": {"a": 1, "b": None}, "nulls": [None, 1, None]}

    assert run(lua, body)["out"] == wanted


EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 8), st.integers(0, 99)),
        st.tuples(st.just("remove"), st.integers(0, 8), st.just(0)),
        st.tuples(st.just("set"), st.integers(0, 8), st.integers(0, 99)),
        st.tuples(st.just("reverse"), st.just(0), st.just(0)),
        st.tuples(st.just("edit"), st.integers(0, 8), st.integers(0, 99)),
    ),
    max_size=12,
)

EDITOR = """
local m = req.list
for _, step in ipairs(req.steps) do
  local what, at, value = step[1], step[2], step[3]
  if what == "insert" then table.insert(m, at % (#m + 1) + 1, {n = value})
  elseif what == "remove" and #m > 0 then table.remove(m, at % #m + 1)
  elseif what == "set" and #m > 0 then m[at % #m + 1] = {n = value}
  elseif what == "edit" and #m > 0 then m[at % #m + 1].n = value
  elseif what == "reverse" then for i = 1, #m // 2 do m[i], m[#m - i + 1] = m[#m - i + 1], m[i] end
  end
end
req.steps = nil
"""


@given(start=st.lists(st.integers(0, 99), max_size=6), steps=EDITS)
@settings(max_examples=200, deadline=None)
def test_any_edits_of_a_list_do_what_they_do_in_python(run: Any, start: list[int], steps: list[tuple[str, int, int]]) -> None:
    wanted = [{"n": n} for n in start]
    for what, at, value in steps:
        if what == "insert":
            wanted.insert(at % (len(wanted) + 1), {"n": value})
        elif what == "reverse":
            wanted.reverse()
        elif wanted:
            at %= len(wanted)
            if what == "remove":
                del wanted[at]
            else:
                wanted[at] = {"n": value}

    assert run(EDITOR, {"list": [{"n": n} for n in start], "steps": [list(step) for step in steps]}) == {"list": wanted}
