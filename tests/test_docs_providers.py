"""docs/providers.md says what the adapter files say. `THINKGATE_WRITE_DOCS=1` writes its generated parts anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from provider_docs import COLUMNS, MODEL_COLUMNS, Reason, by_model, cell, overview, reasons, table, thinking

from gateway import config
from gateway.adapters import HOOKS, Adapter, Loader, builtin_folder

PAGE = Path(__file__).parent.parent / "docs" / "providers.md"
LOADER = Loader([builtin_folder()], config.HookBudget())
NAMES = LOADER.names()


def block(name: str, lines: Iterable[str]) -> None:
    """The page's generated block must be these lines."""
    text = PAGE.read_text(encoding="utf-8")
    before, start, rest = text.partition(f"<!-- {name} -->\n")
    old, end, after = rest.partition(f"<!-- /{name} -->")
    assert start, f"{PAGE.name} has no block {name}"
    assert end, f"{PAGE.name} has no end of block {name}"
    wanted = "\n".join(lines) + "\n"
    if os.environ.get("THINKGATE_WRITE_DOCS"):
        PAGE.write_text(before + start + wanted + end + after, encoding="utf-8")
        return
    assert old == wanted, f"docs/{PAGE.name}: block {name} is not what the adapters say; THINKGATE_WRITE_DOCS=1 writes it anew"


def section(adapter: Adapter) -> list[str]:
    """What stands under an adapter's own heading."""
    assert adapter.path is not None
    head, why = reasons(adapter.path)
    models = list(by_model(adapter))
    default = f" Default model: `{adapter.default_model}`." if adapter.default_model else ""
    return [
        f"## {adapter.name}",
        "",
        *([cell(head), ""] if head else []),
        f"File: [adapters/{adapter.path.name}](../adapters/{adapter.path.name}).{default}",
        "",
        *([*table(MODEL_COLUMNS, models), ""] if models else []),
        *(f"- {reason.about}: {cell(reason.text)}" if reason.about else f"- {cell(reason.text)}" for reason in why),
        *([""] if why else []),
    ]


def test_the_table_of_providers_is_the_adapters() -> None:
    block("providers", table(COLUMNS, [overview(LOADER.get(name)) for name in NAMES]))


def test_the_reasons_are_the_adapters() -> None:
    block("reasons", [line for name in NAMES for line in section(LOADER.get(name))])


@pytest.mark.parametrize("name", NAMES)
def test_every_adapter_says_where_its_facts_come_from(name: str) -> None:
    adapter = LOADER.get(name)
    assert adapter.path is not None
    head, _ = reasons(adapter.path)

    assert len(head) > 10, f"{adapter.path.name} begins with no comment"
    assert all(name in HOOKS for name in adapter.hooks)


LUA = """-- Head, first line.
-- Second line.
local adapter = {
  base_url = "https://a--b", -- not a "comment" before
  -- About
  -- the options.
  options = { x = 1 }, -- and inline
  models = {
    -- These think.
    { match = { "a*", "b*" }, thinking = false }, -- really
    {
      match = "c*",
      -- Long.
      options = {},
    },
  },
}
-- Before a hook.
function adapter.repair(req, class)
  if class then return req end -- inside
end
return adapter
"""
PYTHON = '''"""Head.

More."""

base_url = "x"  # why
# Two
# lines.
models = [{"match": ["a*"]}]


def repair(req, kind, ctx):
    """Not a reason."""
    # Inside.
    return req
'''


def test_the_comments_of_a_file_in_lua_are_found_with_what_they_are_about(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text(LUA, encoding="utf-8")

    assert reasons(tmp_path / "a.lua") == (
        "Head, first line. Second line.",
        [
            Reason("`base_url`", 'not a "comment" before'),
            Reason("`options`", "About the options."),
            Reason("`options`", "and inline"),
            Reason("`a*`, `b*`", "These think."),
            Reason("`a*`, `b*`", "really"),
            Reason("`c*`", "Long."),
            Reason("`repair`", "Before a hook."),
            Reason("`repair`", "inside"),
        ],
    )


def test_the_comments_of_a_file_in_python_are_found_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PYTHON, encoding="utf-8")

    assert reasons(tmp_path / "a.py") == ("Head.\n\nMore.", [Reason("`base_url`", "why"), Reason("`a*`", "Two lines."), Reason("`repair`", "Inside.")])


def test_a_rule_is_told_in_a_few_words() -> None:
    rule = {"off": {"thinking": {"type": "disabled"}}, "on": "omit", "effort": "reasoning_effort", "levels": {"minimal": "low", "low": "low"}, "default": "off"}

    assert thinking(rule) == ("`thinking.type = disabled`", "no field", "`reasoning_effort`: minimal as `low`, low", "off")
    assert thinking({"off": "low", "effort": "e"})[0] == "cannot be: `low`"
    assert thinking({"off": "omit", "on": "off"})[:2] == ("the fields are removed", "cannot think")
    assert thinking({"off": {"e": "low"}, "always": True})[0] == "at the least: `e = low`"
    assert thinking(None)[0] == "as it came"
