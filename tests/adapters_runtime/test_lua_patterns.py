"""Strings and patterns mean in the sandbox what they mean in Lua, whichever matcher runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lupa import lua54

from gateway.adapters import Context, Hooks
from gateway.adapters.lua import _chunks
from gateway.errors import AdapterError

ITEMS = st.sampled_from(
    [
        *"aab.-()",
        "%a",
        "%d",
        "%w",
        "%s",
        "%%",
        "[ab]",
        "[^a]",
        "[a-c%d]",
        "[]a]",
        "[^]]",
        "a*",
        "a-",
        "a+",
        "a?",
        ".-",
        ".*",
        "%w+",
        "()",
        "(a)",
        "%1",
        "%bab",
        "%f[a]",
        "^",
        "$",
        "[%]]",
    ]
)
PATTERNS = st.lists(ITEMS, max_size=5).map("".join)
TEXTS = st.text("aabc1 %]", max_size=12)

PROBE = """
local find, match, text, pattern, init = ...
local function all(f, ...)
  local r = table.pack(pcall(f, ...))
  for i = 1, r.n do r[i] = tostring(r[i]) end
  return r[1] == "true" and table.concat(r, "|") or "error"
end
return all(find, text, pattern, init), all(match, text, pattern, init)
"""


@pytest.fixture(scope="module")
def both() -> Any:
    """Lua's own matcher and ours, in a state without a sandbox: (find, match) each."""
    runtime = lua54.LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    ours = runtime.execute(f"return function(...) {_chunks()[0]}\nend")()
    strings = runtime.globals().string
    probe = runtime.execute(f"return function(...) {PROBE} end")
    return lambda text, pattern, init: (probe(strings.find, strings.match, text, pattern, init), probe(ours.find, ours.match, text, pattern, init))


@given(text=TEXTS, pattern=PATTERNS, init=st.integers(-3, 14))
@settings(max_examples=1500, deadline=None)
def test_our_matcher_finds_what_luas_finds(both: Any, text: str, pattern: str, init: int) -> None:
    assume(any(special in pattern for special in "^$*+?.([%-"))  # else Lua looks for the plain text

    theirs, ours = both(text, pattern, init)

    assert ours == theirs


GSUB = """
local out = {}
local function note(...) out[#out + 1] = table.concat({...}, ",") end
local ok = (pcall or try)(function()
  local s, n = string.gsub(req.text, req.pattern, "<%0>") note(s, n)
  s, n = string.gsub(req.text, req.pattern, function(...) return #tostring(...) % 2 == 0 and "E" or nil end) note(s, n)
  s, n = string.gsub(req.text, req.pattern, {a = "A", b = 1, aa = false}, 2) note(s, n)
  for a, b in string.gmatch(req.text, req.pattern) do note(tostring(a), tostring(b)) if #out > 60 then break end end
end)
req.out = ok and table.concat(out, ";") or "error"
"""


@pytest.fixture(scope="module")
def plain() -> Any:
    runtime = lua54.LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    return runtime.execute(f"return function(text, pattern) local req = {{text = text, pattern = pattern}} {GSUB} return req.out end")


@given(text=TEXTS, pattern=PATTERNS)
@settings(max_examples=400, deadline=None)
def test_gsub_and_gmatch_do_what_luas_do(run: Any, plain: Any, text: str, pattern: str) -> None:
    try:
        ours = run(GSUB, {"text": text, "pattern": pattern})["out"]
    except AdapterError as error:
        if "budget spent" not in error.message:
            raise
        return  # a pattern that tries every way there is, as `.-.-.-.-a` does
    assert ours == plain(text, pattern)


LONG = [
    ("req.out = #(req.long .. '   '):match('^%s*(.-)%s*$')", 5000),
    ("req.out = select(2, (req.words):gsub('%w+', ''))", 1000),
    ("local n = 0 for w in req.words:gmatch('%a+') do n = n + 1 end req.out = n", 1000),
    ("req.out = req.long:find('</think>', 1, true) == nil", True),
    ("req.out = (req.long .. '<think>'):find('<think>')", 5001),
    ("req.out = (req.words:gsub('word', 'WORD')):sub(1, 9)", "WORD word"[:4] + " WORD"),
    ("req.out = ('key: value'):match('^(%w+):%s*(%w+)$')", "key"),
    ("req.out = ('%s-%d-%5.1f-%q'):format('a', 3, 2.5, 'x')", 'a-3-  2.5-"x"'),
    ("req.out = ('x'):rep(3, ',')", "x,x,x"),
    ("req.out = utf8.len('héé')", 3),
    ("req.out = ('héé'):sub(1, utf8.offset('héé', 3) - 1)", "hé"),
    ("local t = {} for _, c in utf8.codes('hé') do t[#t + 1] = c end req.out = t", [104, 233]),
    ("req.out = utf8.char(104, 233)", "hé"),
    ("req.out = math.floor(2.7) + math.max(1, 3, 2) + (math.type(1) == 'integer' and 1 or 0)", 6),
    ("req.out = tonumber('12') + tonumber('0x10') + tonumber('z', 36)", 63),
    ("req.out = ('abc'):byte(1, -1)", 97),
    ("req.out = ('A'):lower() .. ('b'):upper() .. ('ab'):reverse()", "aBba"),
    ("req.out = #'abc' + ('abc'):len()", 6),
    ("req.out = 'a' .. 1 .. 2.0", "a12.0"),
    ("req.out = 7 // 2 + 7 % 4 + (7 & 3) + (1 << 4)", 25),
]


@pytest.mark.parametrize(("lua", "wanted"), LONG, ids=[lua for lua, _ in LONG])
def test_ordinary_string_work_fits_the_budget(run: Any, lua: str, wanted: Any) -> None:
    assert run(lua, {"long": "x" * 5000, "words": "word " * 1000})["out"] == wanted


def test_a_pattern_error_names_the_scripts_line(make: Any) -> None:
    hooks = Hooks(make("function transform_request(req)\n  local _ = ('x'):find('[')\n return req end"))

    with pytest.raises(AdapterError, match=r"^adapters/x\.lua:\d: .*malformed pattern"):
        hooks.transform_request({}, Context())
