"""A script can hurt nobody but its own request."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lua_attacks import ATTACKS, BENIGN, LETHAL

from gateway.adapters import Context, Hooks
from gateway.config import HookBudget
from gateway.errors import AdapterError, Skipped

BUDGET = HookBudget()


@pytest.fixture(autouse=True, scope="module")
def quiet_collector() -> Iterator[None]:
    """Python's own collector does not walk what other tests left, which can take longer than a budget."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def request() -> dict[str, Any]:
    return {"thinking": 1, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}]}


HEALED = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}], "reasoning_content": ""}]}


def attacked(chunk: str) -> str:
    """A file whose first hook is the attack and whose second is harmless."""
    return (
        f"local attack = (function(...) {chunk}\nend)()\nfunction transform_request(req, ctx) return attack(req, ctx) end\n"
        f"local benign = (function() {BENIGN} end)()\nfunction repair(req) return benign(req) end"
    )


def outcome(call: Any) -> tuple[Any, str | None, float]:
    """What the call gives, or the message of its AdapterError; and the CPU seconds that it took."""
    started = time.process_time()
    try:
        return call(), None, time.process_time() - started
    except AdapterError as fault:
        return None, fault.message, time.process_time() - started


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_harmless_and_the_next_caller_unharmed(make: Any, name: str) -> None:
    adapter, refused, loading = outcome(lambda: make(attacked(ATTACKS[name])))
    hooks = Hooks(adapter or make(attacked("return function(req) return req end")))

    out, fault, took = outcome(lambda: hooks.transform_request(request(), Context()))

    assert not str(out).startswith("ESC")
    assert all(message is None or message.startswith("adapters/x.lua:") for message in (refused, fault))
    assert max(took, loading) < 2 * BUDGET.time
    assert hooks.repair(request(), "bad_request", Context()) == HEALED


@pytest.mark.parametrize("name", LETHAL)
def test_what_could_end_the_process_does_not(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.lua"
    path.write_text(attacked(LETHAL[name]), "utf-8")

    done = subprocess.run([sys.executable, "-c", OUTSIDE, str(path)], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])

    assert done.stdout.strip() == "unharmed", (done.returncode, done.stderr[-500:])


OUTSIDE = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from collections.abc import Iterator
from pathlib import Path
from gateway.adapters import Context, Hooks
from gateway.adapters.loader import load
from gateway.config import HookBudget
from gateway.errors import AdapterError
hooks = Hooks(load(Path(sys.argv[1]), HookBudget()))
for _ in range(2):
    ctx = Context()
    for _ in range(8):
        try:
            hooks.transform_request({request()!r}, ctx)
        except AdapterError:
            pass
assert hooks.repair({request()!r}, "bad_request", Context()) == {HEALED!r}
print("unharmed")
"""


@pytest.mark.parametrize(
    ("lua", "line", "what"),
    [
        ("while true do end", 3, "1000000 instructions"),
        ("local s = 'x'\nwhile true do s = s .. s end", None, "32 MiB of memory"),
        ("local t = {}\nfor i = 1, 1e9 do t[i] = 1.5 * i end", None, "budget spent"),
    ],
)
def test_a_spent_budget_names_file_line_and_budget(make: Any, lua: str, line: int | None, what: str) -> None:
    hooks = Hooks(make(f"\nfunction transform_request(req)\n{lua} end"))

    with pytest.raises(AdapterError) as caught:
        hooks.transform_request({}, Context())

    assert what in caught.value.message
    assert caught.value.message.startswith(f"adapters/x.lua:{line}:" if line else "adapters/x.lua:")


def test_the_budget_is_the_configs(make: Any) -> None:
    small = Hooks(make("function transform_request(req) for i = 1, 5000 do end return req end", budget=HookBudget(instructions=2000)))
    brief = Hooks(make("function transform_request(req) for i = 1, 1e9 do end return req end", "y.lua", budget=HookBudget(instructions=10**12, time=0.01)))
    tight = Hooks(
        make("function transform_request(req) local t = {} for i = 1, 1e5 do t[i] = {} end return req end", "z.lua", budget=HookBudget(memory=1024 * 1024))
    )

    for hooks, what in ((small, "2000 instructions"), (brief, "10 ms"), (tight, "1 MiB of memory")):
        with pytest.raises(AdapterError, match=f"budget spent: {what}"):
            hooks.transform_request({}, Context())


def test_an_error_is_caught_with_try(run: Any) -> None:
    out = run("local function f(x) return x.a.b end req.a = array{try(f, {a = {b = 1}})} req.b = array{try(f, {})} req.c = array{try(error, 'x', 0)}", {})

    assert out["a"] == [True, 1]
    assert out["b"] == [False, "adapters/x.lua:1: attempt to index a nil value (field 'a')"]
    assert out["c"] == [False, "x"]


def test_skip_leaves_the_provider_out_and_cannot_be_caught(make: Any) -> None:
    hooks = Hooks(make("function transform_request(req, ctx) try(ctx.skip, 'no images') try(function() ctx:skip('again') end) return req end"))

    with pytest.raises(Skipped, match="no images"):
        hooks.transform_request({}, Context())


def test_a_global_of_one_call_is_not_seen_by_the_next(make: Any) -> None:
    hooks = Hooks(
        make("limit = 3\nfunction transform_request(req) req.seen = secret ~= nil req.limit = limit secret = req.text req.now = secret return req end")
    )

    first = hooks.transform_request({"text": "mine"}, Context())
    second = hooks.transform_request({"text": "yours"}, Context())

    assert (first["seen"], first["now"], second["seen"], second["limit"]) == (False, "mine", False, 3)


def test_a_script_that_keeps_much_gets_a_new_state(make: Any) -> None:
    hooks = Hooks(
        make(
            "local kept = {}\nfunction transform_request(req) for i = 1, 10 do kept[#kept + 1] = ('x'):rep(1000000 + #kept) end req.kept = #kept return req end"
        )
    )

    kept = [hooks.transform_request({}, Context())["kept"] for _ in range(5)]

    assert max(kept) <= 20


def test_an_error_tells_the_scripts_line_not_the_librarys(make: Any) -> None:
    hooks = Hooks(make("function transform_request(req)\n  table.concat(1)\n  return req\nend"))

    with pytest.raises(AdapterError, match=r"^adapters/x\.lua:2: table expected, got number"):
        hooks.transform_request({}, Context())


@pytest.mark.parametrize(
    "name",
    [
        "os",
        "io",
        "require",
        "load",
        "debug",
        "package",
        "coroutine",
        "pcall",
        "xpcall",
        "python",
        "getmetatable",
        "setmetatable",
        "rawset",
        "collectgarbage",
        "print",
    ],
)
def test_nothing_that_reaches_outside_is_there(run: Any, name: str) -> None:
    assert run(f"req.there = {name} ~= nil or _G.{name} ~= nil", {})["there"] is False
