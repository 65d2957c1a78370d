"""Finding, checking and reloading adapter files."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters import Context, Hooks, Loader, builtin_folder, check_options
from gateway.adapters.rules import COMMON_OPTIONS
from gateway.config import HookBudget
from gateway.errors import AdapterError

BUDGET = HookBudget()
TABLE = """
local adapter = {
  base_url = "https://api.example.com", dialect = "messages", auth = "header:x-api-key", env = "EXAMPLE_KEY", framing = "ndjson",
  default_model = "m", trailing_assistant = "refuse", options = { reasoning_placeholder = null, own = { a = 1.0, list = {1, 2} } },
  models = { { match = { "m*" }, options = { own = 2 } } },
}
function adapter.transform_request(req, ctx) return req end
return adapter
"""
GLOBALS = 'base_url = "https://api.example.com"\nlocal helper = 1\nanything = {f = type}\nfunction transform_request(req) return req end'
PYTHON = 'base_url = "https://api.example.com"\noptions = {"a": [1]}\ndef transform_request(req, ctx):\n    return req'


def write(folder: Path, name: str, text: str, at: int = 0) -> Path:
    """A file whose time of change is `at` seconds."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, "utf-8")
    os.utime(path, (at, at))
    return path


def test_a_returned_table_is_read(make: Any) -> None:
    adapter = make(TABLE, "example.lua")

    assert (adapter.name, adapter.language, adapter.base_url, adapter.dialect, adapter.auth) == (
        "example",
        "lua",
        "https://api.example.com",
        "messages",
        "header:x-api-key",
    )
    assert (adapter.env, adapter.framing, adapter.default_model, adapter.trailing_assistant) == ("EXAMPLE_KEY", "ndjson", "m", "refuse")
    assert adapter.options["reasoning_placeholder"] is None
    assert repr(adapter.options["own"]["a"]) == "1.0"
    assert adapter.options["own"]["list"] == (1, 2)
    assert adapter.models[0]["match"] == ("m*",)
    assert list(adapter.hooks) == ["transform_request"]


@pytest.mark.parametrize(("name", "text"), [("g.lua", GLOBALS), ("g.py", PYTHON)])
def test_plain_globals_are_read(make: Any, name: str, text: str) -> None:
    adapter = make(text, name)

    assert adapter.base_url == "https://api.example.com"
    assert list(adapter.hooks) == ["transform_request"]


def test_declared_data_cannot_be_changed(make: Any) -> None:
    with pytest.raises(TypeError):
        make(TABLE).options["own"]["a"] = 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("return {base_ulr = 'x'}", "adapters/x.lua: unknown key 'base_ulr'; did you mean \"base_url\"?"),
        ("return {transform_requst = function() end}", 'did you mean "transform_request"?'),
        ("function transform_requst() end", 'did you mean "transform_request"?'),
        ("return {foo = 1}", "unknown key 'foo'"),
        ("return {transform_request = 1}", "transform_request must be a function"),
        ("return {base_url = function() end}", "adapters/x.lua:1: base_url is a function; only hooks are"),
        ("return {base_url = 1}", "base_url must be a text"),
        ("return {dialect = 'chta'}", 'did you mean "chat"'),
        ("return {framing = 'xml'}", "sse, ndjson, eventstream"),
        ("return {auth = 'basic'}", "bearer, none, header:NAME"),
        ("return {options = 1}", "options must be a table"),
        ("return {models = {a = 1}}", "models must be a list"),
        ("return {options = {reasoning_echo = 'sometimes'}}", "reasoning_echo must be one of"),
        ("return {options = {f = type}}", "f is a function, which JSON does not know"),
        ("return {1, 2}", "adapters/x.lua"),
        ("return 1", "the file returns a number"),
        ("return {", "adapters/x.lua:1: "),
        ("\n\nlocal x = = 1", "adapters/x.lua:3: "),
        ("\nerror('at load')", "adapters/x.lua:2: at load"),
        ("\nwhile true do end", "adapters/x.lua:2: budget spent: 1000000 instructions"),
        ("os.exit(1)", "adapters/x.lua:1: attempt to index a nil value (global 'os')"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(make: Any, text: str, message: str) -> None:
    with pytest.raises(AdapterError) as caught:
        make(text)

    assert message in caught.value.message


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.lua").write_bytes(b"-- one\nlocal s = '\xff'")
    (tmp_path / "y.lua").write_bytes(b"\x1bLuaT\x00")
    (tmp_path / "z.lua").write_text("--" + "x" * 300_000)
    loader = Loader([tmp_path], BUDGET)

    with pytest.raises(AdapterError, match=r"x\.lua:2: not UTF-8"):
        loader.get("x")
    with pytest.raises(AdapterError, match=r"y\.lua:1: attempt to load a binary chunk"):
        loader.get("y")
    with pytest.raises(AdapterError, match=r"z\.lua: larger than 256 KiB"):
        loader.get("z")


def test_the_earlier_folder_wins_and_names_are_the_union(tmp_path: Path) -> None:
    write(tmp_path / "own", "a.lua", 'return {env = "OWN"}')
    write(tmp_path / "built", "a.lua", 'return {env = "BUILT"}')
    write(tmp_path / "built", "b.py", "")
    write(tmp_path / "built", "_c.py", "")
    loader = Loader([tmp_path / "own", tmp_path / "absent", tmp_path / "built"], BUDGET)

    assert loader.get("a").env == "OWN"
    assert loader.names() == ["a", "b"]
    with pytest.raises(AdapterError, match='unknown adapter "aa"; known: a, b; did you mean "a"'):
        loader.get("aa")


@pytest.mark.parametrize("name", ["../a", "own/a", "/a", "", ".", "..", "a.lua"])
def test_a_name_cannot_leave_the_folders(tmp_path: Path, name: str) -> None:
    write(tmp_path, "a.lua", "")
    write(tmp_path / "own", "a.lua", "")

    with pytest.raises(AdapterError, match="unknown adapter"):
        Loader([tmp_path / "own"], BUDGET).get(name)


def test_two_languages_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.lua", "")
    write(tmp_path, "a.py", "")

    with pytest.raises(AdapterError, match="two adapters of one name"):
        Loader([tmp_path], BUDGET).get("a")


def test_a_changed_file_is_loaded_anew(tmp_path: Path) -> None:
    write(tmp_path, "a.lua", 'return {env = "ONE"}')
    loader = Loader([tmp_path], BUDGET, check_every=0)
    first = loader.get("a")

    assert loader.get("a") is first
    write(tmp_path, "a.lua", 'return {env = "TWO"}', at=10)

    assert (first.env, loader.get("a").env) == ("ONE", "TWO")


def test_a_file_is_not_looked_at_more_often_than_asked(tmp_path: Path) -> None:
    write(tmp_path, "a.lua", 'return {env = "ONE"}')
    loader = Loader([tmp_path], BUDGET, check_every=60)
    loader.get("a")

    write(tmp_path, "a.lua", 'return {env = "TWO"}', at=10)

    assert loader.get("a").env == "ONE"


def test_a_bad_new_version_keeps_the_old_one_and_says_why_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a.lua", 'return {env = "ONE"}')
    loader = Loader([tmp_path], BUDGET, check_every=0)
    loader.get("a")
    write(tmp_path, "a.lua", "return {", at=10)

    kept = [loader.get("a").env for _ in range(3)]

    assert kept == ["ONE"] * 3
    assert "a.lua:1:" in loader.faults["a"]
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    write(tmp_path, "a.lua", 'return {env = "THREE"}', at=20)
    assert loader.get("a").env == "THREE"
    assert loader.faults == {}


def test_a_file_that_never_was_good_fails_each_time_but_is_loaded_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a.lua", "return {")
    loader = Loader([tmp_path], BUDGET, check_every=0)

    for _ in range(3):
        with pytest.raises(AdapterError, match=r"a\.lua:1:"):
            loader.get("a")

    assert len(caplog.records) == 1


def test_a_file_that_is_gone_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, "a.lua", 'return {env = "ONE"}')
    loader = Loader([tmp_path], BUDGET, check_every=0)
    loader.get("a")

    path.unlink()

    assert [loader.get("a").env for _ in range(2)] == ["ONE", "ONE"]
    assert loader.faults == {"a": 'unknown adapter "a"'}
    write(tmp_path, "a.lua", 'return {env = "ONE"}')
    assert (loader.get("a").env, loader.faults) == ("ONE", {})


def test_a_hook_file_holds_hooks_only(tmp_path: Path) -> None:
    good = write(tmp_path, "trim.lua", "function transform_request(req) req.trimmed = true return req end")
    bad = write(tmp_path, "bad.lua", 'base_url = "https://x.example"')
    loader = Loader([], BUDGET)

    assert Hooks(loader.file(good)).transform_request({}, Context()) == {"trimmed": True}
    with pytest.raises(AdapterError, match="base_url is an adapter's; a hook file holds only hooks"):
        loader.file(bad)
    with pytest.raises(AdapterError, match="No such file"):
        loader.file(tmp_path / "absent.lua")
    with pytest.raises(AdapterError, match=r"ends in \.lua or \.py"):
        loader.file(tmp_path / "trim.js")


def test_messages_hold_no_home_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "hooks", "bad.lua", "x = = 1")

    with pytest.raises(AdapterError) as caught:
        Loader([], BUDGET).file(path)

    assert caught.value.message.startswith("hooks/bad.lua:1: ")


def test_options_are_checked_against_both_declarations(make: Any) -> None:
    adapter = make("return {options = {text = 'x', number = 1, flag = true, list = array{}, object = {}, any = null}}", "o.lua")
    good = {"text": "y", "number": 2.5, "flag": "off", "list": [1], "object": {"a": 1}, "any": 5, "reasoning_echo": "all", "hoist_extra_body": True}
    bad = {"text": 1, "number": True, "flag": "true", "list": "x", "object": [], "reasoning_echo": "sometimes", "reasoning_plaseholder": "", "txet": ""}

    known = ", ".join([*sorted(adapter.options), *COMMON_OPTIONS])

    assert check_options(adapter, good) == []
    assert check_options(adapter, bad) == [
        ("text", "must be a text"),
        ("number", "must be a number"),
        ("flag", "must be true or false"),
        ("list", "must be a list"),
        ("object", "must be a mapping"),
        ("reasoning_echo", "must be one of null, none, tool_turns, with_tools, all"),
        ("reasoning_plaseholder", f'unknown option of the adapter o; known: {known}; did you mean "reasoning_placeholder"?'),
        ("txet", f'unknown option of the adapter o; known: {known}; did you mean "text"?'),
    ]


def test_every_built_in_adapter_loads() -> None:
    loader = Loader([builtin_folder()], BUDGET)

    names = [loader.get(name).name for name in loader.names()]

    assert "deepseek" in names
    assert loader.faults == {}
