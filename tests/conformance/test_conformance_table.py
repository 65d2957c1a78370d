"""checks.md numbers what clients rely on from 1 to 60 and names the tests that show each of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent


def table() -> dict[int, list[tuple[Path, str]]]:
    """Number -> file and name of each test that is named under it."""
    found: dict[int, list[tuple[Path, str]]] = {}
    for line in (Path(__file__).parent / "checks.md").read_text(encoding="utf-8").splitlines():
        if number := re.match(r"(\d+)\. \S", line):
            found[int(number[1])] = []
        elif named := re.fullmatch(r"    - `([\w/]+\.py)`: (.+)", line):
            last = next(reversed(found.values()))
            last += [(TESTS / named[1], name) for name in re.findall(r"`(\w+)`", named[2])]
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(_names(ast.parse(path.read_text(encoding="utf-8"))))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def test_there_are_sixty_and_each_is_shown() -> None:
    assert list(table()) == list(range(1, 61))
    assert all(table().values())


def test_the_tests_that_are_named_exist() -> None:
    missing = [f"{number}: {path.name}::{name}" for number, tests in table().items() for path, name in tests if name not in names_in(path)]

    assert missing == []


def test_every_test_of_this_folder_shows_one_of_them() -> None:
    named = {test for tests in table().values() for test in tests}
    own = [path for path in Path(__file__).parent.glob("test_*.py") if not path.stem.endswith(("_table", "_schemas"))]

    assert [name for path in own for name in names_in(path) if (path, name) not in named] == []
