"""The helpers do the same in Lua and in Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.adapters import Context, Hooks
from gateway.adapters.helpers import Splitter

HELPED = [
    ("has_tools(req)", {"tools": [{}]}, True),
    ("has_tools()", {"tools": [{}]}, True),
    ("has_tools(req)", {"tools": []}, False),
    ("has_tools(req)", {"tools": None}, False),
    ("has_tools(req)", {}, False),
    ('hoist(req, "extra_body")', {"extra_body": {"a": 1, "b": 2}, "b": 3}, 1),
    ('hoist("extra_body")', {"extra_body": {"a": {"deep": [None]}}}, 1),
    ('hoist("extra_body")', {"extra_body": None}, 0),
    ('hoist("extra_body")', {"extra_body": [1]}, 0),
    ('hoist("extra_body")', {}, 0),
    ("is_array(req)", {}, False),
    ("is_array(array())", {}, True),
    (
        "each_assistant(FIELDS)",
        {"messages": [{"role": "assistant"}, {"role": "user"}, {"role": "assistant", "rc": None}, {"role": "assistant", "rc": "own"}]},
        2,
    ),
    ("each_assistant(FIELDS)", {"messages": None}, 0),
    ("each_assistant(FIELDS)", {}, 0),
    ("each_assistant(FIELDS)", {"messages": ["odd", None, {"role": "assistant"}]}, 1),
]


@pytest.mark.parametrize(("call", "body", "given_back"), HELPED, ids=[f"{call} {body}" for call, body, _ in HELPED])
def test_both_languages_change_and_give_the_same(make: Any, call: str, body: dict[str, Any], given_back: Any) -> None:
    lua_call = call.replace("(FIELDS)", '(req, {rc = ""})')
    python_call = call.replace("(FIELDS)", '(req, {"rc": ""})')
    lua = Hooks(make(f"function transform_request(req) req.out = {lua_call} return req end"))
    python = Hooks(make(f"def transform_request(req):\n    req['out'] = {python_call}\n    return req", "x.py"))
    ctx, other = Context(), Context()

    by_lua, by_python = lua.transform_request(copy(body), ctx), python.transform_request(copy(body), other)

    assert by_lua == by_python
    assert by_lua["out"] == given_back
    assert ctx.notes == other.notes


def copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    return [copy(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["x.lua", "x.py"])
def test_what_a_helper_changed_is_noted(make: Any, name: str) -> None:
    lua = 'function transform_request(req) hoist("extra_body") each_assistant(req, {reasoning_content = ""}) return req end'
    python = 'def transform_request(req):\n    hoist("extra_body"); each_assistant(req, {"reasoning_content": ""}); return req'
    ctx = Context()

    Hooks(make(lua if name.endswith("lua") else python, name)).transform_request(
        {"extra_body": {"a": 1}, "messages": [{"role": "assistant"}, {"role": "assistant"}]}, ctx
    )

    assert ctx.notes == ["x.hoist_extra_body", "x.reasoning_backfill=2"]


@pytest.mark.parametrize("name", ["x.lua", "x.py"])
def test_each_assistant_calls_and_iterates(make: Any, name: str) -> None:
    lua = """function transform_request(req)
      for m in each_assistant(req) do m.seen = true end
      req.n = each_assistant(function(m) m.content = m.content .. "!" end)
      return req end"""
    python = """def transform_request(req):
    for m in each_assistant(req):
        m["seen"] = True
    req["n"] = each_assistant(lambda m: m.update(content=m["content"] + "!"))
    return req"""
    body = {"messages": [{"role": "user", "content": "u"}, *({"role": "assistant", "content": str(i)} for i in range(30))]}

    out = Hooks(make(lua if name.endswith("lua") else python, name)).transform_request(body, Context())

    assert out["n"] == 30
    assert out["messages"] == [{"role": "user", "content": "u"}, *({"role": "assistant", "content": f"{i}!", "seen": True} for i in range(30))]


def test_filling_after_looking_sees_both_looked_at_and_untouched_turns(run: Any) -> None:
    messages = [{"role": "assistant", "n": i} for i in range(4)]

    out = run(
        "req.messages[2].rc = 'own' local _ = req.messages[3].n req.n = each_assistant(req, {rc = ''}) req.seen = req.messages[4].rc", {"messages": messages}
    )

    assert [m["rc"] for m in out["messages"]] == ["", "own", "", ""]
    assert (out["n"], out["seen"]) == (3, "")


CUTS = st.lists(st.integers(0, 60), max_size=12)
TEXT = st.text("<think>/ab", max_size=60) | st.lists(st.sampled_from(["<think>", "</think>", "a", "<", "</", "<thi", "b<"]), max_size=10).map("".join)


def split(text: str, cuts: list[int]) -> list[str]:
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    return [text[a:b] for a, b in pairwise(at)] or [""]


def by_python(pieces: list[str], inside: bool) -> tuple[str, str]:
    splitter = Splitter(inside=inside)
    parts = [*(splitter.feed(piece) for piece in pieces), splitter.finish()]
    return "".join(thought for thought, _ in parts), "".join(answer for _, answer in parts)


@given(text=TEXT, cuts=CUTS, inside=st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_cutting_splits_the_same(text: str, cuts: list[int], inside: bool) -> None:
    whole, cut = by_python([text], inside), by_python(split(text, cuts), inside)

    assert cut == whole
    assert len(whole[0]) + len(whole[1]) == len(text) - 7 * marks(text, inside)[0] - 8 * marks(text, inside)[1]


def marks(text: str, inside: bool) -> tuple[int, int]:
    """How many opening and closing tags count, read one after the other."""
    opened = closed = at = 0
    while True:
        tag = "</think>" if inside else "<think>"
        found = text.find(tag, at)
        if found < 0:
            return opened, closed
        opened, closed = opened + (not inside), closed + inside
        inside, at = not inside, found + len(tag)


STREAM = """
function transform_chunk(chunk, ctx)
  ctx.state.split = ctx.state.split or think_splitter("<think>", "</think>", ctx.state.inside)
  local thought, answer = ctx.state.split:feed(chunk.text)
  if thought == "" and answer == "" then return nil end
  return {thought = thought, answer = answer}
end
function finish(ctx)
  if not ctx.state.split then return nil end
  local thought, answer = ctx.state.split:finish()
  return {thought = thought, answer = answer}
end
"""


@given(text=TEXT, cuts=CUTS, inside=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_splitter_lives_in_the_state_of_a_lua_hook(make: Any, text: str, cuts: list[int], inside: bool) -> None:
    hooks, ctx = Hooks(make(STREAM, "stream.lua")), Context(state={"inside": inside})

    out = [chunk for piece in split(text, cuts) for chunk in hooks.transform_chunk({"text": piece}, ctx)] + hooks.finish(ctx)

    assert ("".join(c["thought"] for c in out), "".join(c["answer"] for c in out)) == by_python([text], inside)
