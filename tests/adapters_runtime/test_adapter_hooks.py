"""What every hook gets and gives, in both languages, and how several files come together."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gateway.adapters import Context, Hooks
from gateway.errors import AdapterError, Skipped

LUA = """
function transform_request(req, ctx) req.trail = (req.trail or "") .. "NAME" return req end
function transform_response(res, ctx) if res.drop then return nil end res.seen = "NAME" return res end
function transform_chunk(chunk, ctx) if chunk.n == 0 then return nil end if chunk.n == 2 then return {chunk, {n = 9}} end chunk.by = "NAME" return chunk end
function finish(ctx) return {{n = 7, from = "NAME"}} end
function classify_error(err, ctx) if err.status == 418 then return {class = "overload", retry_after = 2.5, message = err.body.error} end end
function repair(req, kind, ctx) if kind == "param" then req.repaired = kind return req end end
function build_request(req, ctx) return {path = "/v2/" .. req.model, query = {a = "NAME"}, headers = {["x-NAME"] = "1"}} end
"""

PYTHON = """
def transform_request(req, ctx):
    req["trail"] = req.get("trail", "") + "NAME"
    return req
def transform_response(res, ctx):
    if res.get("drop"):
        return None
    res["seen"] = "NAME"
    return res
def transform_chunk(chunk, ctx):
    if chunk["n"] == 0:
        return None
    if chunk["n"] == 2:
        return [chunk, {"n": 9}]
    chunk["by"] = "NAME"
    return chunk
def finish(ctx):
    return [{"n": 7, "from": "NAME"}]
def classify_error(err, ctx):
    if err["status"] == 418:
        return {"class": "overload", "retry_after": 2.5, "message": err["body"]["error"]}
def repair(req, kind, ctx):
    if kind == "param":
        req["repaired"] = kind
        return req
def build_request(req, ctx):
    return {"path": "/v2/" + req["model"], "query": {"a": "NAME"}, "headers": {"x-NAME": "1"}}
"""


@pytest.fixture(params=["lua", "py"])
def one(request: Any, make: Any) -> Hooks:
    return Hooks(make((LUA if request.param == "lua" else PYTHON).replace("NAME", "one"), f"one.{request.param}"))


def test_every_hook_gets_and_gives(one: Hooks) -> None:
    ctx = Context()

    assert one.transform_request({"model": "m"}, ctx) == {"model": "m", "trail": "one"}
    assert one.transform_response({"a": None}, ctx) == {"a": None, "seen": "one"}
    assert one.transform_response({"drop": True}, ctx) is None
    assert one.transform_chunk({"n": 0}, ctx) == []
    assert one.transform_chunk({"n": 1, "usage": None}, ctx) == [{"n": 1, "usage": None, "by": "one"}]
    assert one.transform_chunk({"n": 2, "usage": None}, ctx) == [{"n": 2, "usage": None}, {"n": 9}]
    assert one.finish(ctx) == [{"n": 7, "from": "one"}]
    assert one.classify_error({"status": 418, "headers": {}, "body": {"error": "tea"}}, ctx) == {"class": "overload", "retry_after": 2.5, "message": "tea"}
    assert one.classify_error({"status": 500, "headers": {}, "body": "html"}, ctx) is None
    assert one.repair({"a": 1}, "param", ctx) == {"a": 1, "repaired": "param"}
    assert one.repair({"a": 1}, "server", ctx) is None
    assert one.build_request({"model": "m"}, ctx) == {"path": "/v2/m", "query": {"a": "one"}, "headers": {"x-one": "1"}}
    assert ctx.seconds > 0


def test_a_file_without_hooks_changes_nothing(make: Any) -> None:
    hooks, ctx, body = Hooks(make('return {base_url = "https://x.example"}')), Context(), {"a": None}

    assert hooks.transform_request(body, ctx) is body
    assert hooks.transform_response(body, ctx) is body
    assert hooks.transform_chunk(body, ctx) == [body]
    assert hooks.finish(ctx) == []
    assert hooks.classify_error({}, ctx) is hooks.repair(body, "param", ctx) is hooks.build_request(body, ctx) is None
    assert not hooks.has("transform_request")


def test_files_run_in_order_and_a_flush_passes_the_later_ones(make: Any) -> None:
    hooks = Hooks(make(LUA.replace("NAME", "one"), "one.lua"), [make(PYTHON.replace("NAME", "two"), "two.py")])
    ctx = Context()

    assert hooks.transform_request({"model": "m"}, ctx)["trail"] == "onetwo"
    assert hooks.transform_chunk({"n": 2}, ctx) == [{"n": 2}, {"n": 9}, {"n": 9, "by": "two"}]
    assert hooks.finish(ctx) == [{"n": 7, "from": "one", "by": "two"}, {"n": 7, "from": "two"}]
    assert hooks.build_request({"model": "m"}, ctx) == {"path": "/v2/m", "query": {"a": "two"}, "headers": {"x-one": "1", "x-two": "1"}}


@pytest.mark.parametrize(
    ("hook", "gives", "message"),
    [
        ("transform_request", "nil", "transform_request gave nil; it gives the body"),
        ("transform_request", "{1}", "gave a list"),
        ("transform_request", "'x'", "gave a string"),
        ("transform_response", "{{}, {}}", "gave a list"),
        ("transform_chunk", "1", "gave a number"),
        ("transform_chunk", "{{}, 1}", "gave a list"),
        ("finish", "'x'", "gave a string"),
        ("classify_error", "{class = 'overlaod'}", "unknown class 'overlaod'; did you mean \"overload\""),
        ("classify_error", "{class = 'overload', retry_after = -1}", "retry_after"),
        ("classify_error", "{class = 'overload', message = 1}", "message"),
        ("repair", "true", "gave a boolean"),
        ("build_request", "{url = '/'}", "gives {path=, query=, headers=}"),
        ("build_request", "{path = 1}", "path"),
        ("build_request", "{headers = {a = 'x\\r\\nb: c'}}", "headers.a"),
        ("build_request", "{query = 'a=b'}", "query"),
    ],
)
def test_a_result_of_the_wrong_shape_is_refused(make: Any, hook: str, gives: str, message: str) -> None:
    hooks, ctx = Hooks(make(f"function {hook}() return {gives} end")), Context()
    args: tuple[Any, ...] = () if hook == "finish" else ({}, "param") if hook == "repair" else ({},)

    with pytest.raises(AdapterError, match=r"^adapters/x\.lua:1: ") as caught:
        getattr(hooks, hook)(*args, ctx)

    assert message in caught.value.message


def test_ctx_tells_what_is_known_and_takes_what_may_be_set(run: Any) -> None:
    ctx = Context("deepseek", "m", "chat", "chat", True, 2, "low", options={"list": (1, 2), "null": None})

    out = run(
        """
        local given = ctx.options
        req.out = {ctx.provider, ctx.model, ctx.endpoint, ctx.dialect, ctx.stream, ctx.attempt, ctx.thinking,
          given.list, given.null == null, given.absent == nil}
        ctx.force_stream = true req.forced = ctx.force_stream ctx.state.n = (ctx.state.n or 0) + 1 ctx.options.list[1] = 9""",
        {},
        ctx,
    )

    assert out == {"out": ["deepseek", "m", "chat", "chat", True, 2, "low", [9, 2], True, True], "forced": True}
    assert (ctx.force_stream, ctx.state, ctx.options["list"]) == (True, {"n": 1}, (1, 2))


def test_state_is_shared_by_the_files_of_an_attempt(make: Any) -> None:
    writes = make("function transform_request(req, ctx) ctx.state.ids = {a = 'b', list = {1}} return req end", "w.lua")
    reads = make("def transform_request(req, ctx):\n    req['ids'] = ctx.state['ids']\n    return req", "r.py")

    assert Hooks(writes, [reads]).transform_request({}, Context()) == {"ids": {"a": "b", "list": [1]}}


@pytest.mark.parametrize("name", ["warner.lua", "warner.py"])
def test_warn_lands_in_the_notes_once_and_in_the_log(make: Any, caplog: pytest.LogCaptureFixture, name: str) -> None:
    lua = "function transform_request(req, ctx) ctx.warn('tool \"x\"\\nwas é') ctx:warn('again') ctx.warn('again') ctx.log('a line') return req end"
    python = "def transform_request(req, ctx):\n    ctx.warn('tool \"x\"\\nwas é'); ctx.warn('again'); ctx.warn('again'); ctx.log('a line')\n    return req"
    ctx = Context(provider="p", model="m")

    with caplog.at_level(logging.INFO, "thinkgate.adapters"):
        Hooks(make(lua if name.endswith("lua") else python, name)).transform_request({}, ctx)

    assert ctx.notes == ["warner.warn=\"tool 'x' was \\xe9\"", 'warner.warn="again"']
    assert [record.message for record in caplog.records] == [
        "warner: tool 'x' was é (provider=p model=m)",
        "warner: again (provider=p model=m)",
        "warner: a line (provider=p model=m)",
    ]


def test_notes_do_not_grow_without_end() -> None:
    ctx = Context()
    for i in range(1000):
        ctx.warn(str(i))

    assert len(ctx.notes) == 64


@pytest.mark.parametrize("name", ["x.lua", "x.py"])
def test_skip_names_who_and_why(make: Any, name: str) -> None:
    lua, python = "function transform_request(req, ctx) ctx.skip('no images') end", "def transform_request(req, ctx):\n    ctx.skip('no images')"

    with pytest.raises(Skipped, match=r"^x: no images$"):
        Hooks(make(lua if name.endswith("lua") else python, name)).transform_request({}, Context())


def test_state_that_grows_too_large_fails_and_is_let_go(make: Any) -> None:
    hooks, ctx = Hooks(make("function transform_chunk(c, ctx) ctx.state[c.n] = ('x'):rep(1000000) return c end")), Context()

    with pytest.raises(AdapterError, match=r"ctx\.state holds more than 32 MiB"):
        stream(hooks, ctx, 80)

    assert ctx.state == {}


def stream(hooks: Hooks, ctx: Context, chunks: int) -> None:
    for i in range(chunks):
        hooks.transform_chunk({"n": str(i)}, ctx)


def test_a_long_stream_may_touch_its_state_forever(make: Any) -> None:
    hooks, ctx = Hooks(make("function transform_chunk(c, ctx) ctx.state.text = ('x'):rep(1000000) return c end")), Context()

    stream(hooks, ctx, 80)

    assert len(ctx.state["text"]) == 1000000
