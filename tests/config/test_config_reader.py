"""YAML text -> nodes with places: what is refused, and what variables do."""

from __future__ import annotations

import pytest

from gateway.config.reader import MAX_BYTES, MAX_DEPTH, decode, read, substitute
from gateway.errors import ConfigError, Fault


def faults_of(text: str, env: dict[str, str] | None = None) -> list[str]:
    faults: list[Fault] = []
    try:
        read(text, env or {}, faults, "f")
    except ConfigError as error:
        return error.lines()
    return ConfigError(faults, "f").lines()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "f:1:1: the file is empty; `thinkgate init` writes a first config"),
        ("# only a comment\n", "f:1:1: the file is empty; `thinkgate init` writes a first config"),
        ("- a\n", "f:1:1: a config is a map of settings, this is a list"),
        ("word\n", "f:1:1: a config is a map of settings, this is a text"),
        ("a: 1\nb: 2\na: 3\n", 'f:3:1: a: duplicate key "a"; it is already in line 1'),
        ("a:\n  b: {c: 1, c: 2}\n", 'f:2:13: a.b.c: duplicate key "c"; it is already in line 2'),
        ("a: &x 1\n", "f:1:4: a: an anchor (&x) is not allowed here; write the value out where it is needed"),
        ("a: [b, *x]\n", "f:1:8: a[1]: an alias (*x) is not allowed here; write the value out"),
        ("a:\n  <<: {b: 1}\n", "f:2:3: a: merge keys (<<) are not allowed; write the settings out"),
        ("a: !!python/object:os.system x\n", "f:1:4: a: a tag is not allowed here; values have the type that the setting needs"),
        ("? [a]\n: b\n", "f:1:3: a key must be a text"),
        ("null: b\n", "f:1:1: a key is missing"),
        ('"a\\u0007": b\n', "f:1:1: a key may hold visible characters only"),
        ("a: 1\n---\nb: 2\n", "f:2:1: a second document begins here; a config is one document"),
        ("a:\n\tb: 1\n", "f:2:1: not valid YAML: a tab cannot indent; use spaces"),
        ("a: b: c\n", "f:1:5: not valid YAML: mapping values are not allowed here"),
        ("a: {b: ${C}}\n", "f:1:9: not valid YAML: between { } and [ ] a ${NAME} must be in quotes"),
        ("a: x\x00y\n", "f:1:5: the character U+0000 may not stand in YAML"),
        ('a: "\\ud800"\n', "f:1:4: a: half of a surrogate pair is no character"),
        ('a: "\\UFFFFFFFF"\n', "f:1:1: not valid YAML: an escape here names no character"),
    ],
)
def test_each_trap_of_yaml_has_one_clear_fault(text: str, fault: str) -> None:
    assert faults_of(text) == [fault]


def test_faults_that_leave_a_tree_are_found_together() -> None:
    found = faults_of("a: &x 1\nb: *x\na: 2\nc: ${MISSING}\n")

    assert [line.split(": ")[0] for line in found] == ["f:1:4", "f:2:4", "f:3:1", "f:4:4"]


def test_deep_nesting_is_refused_before_it_costs_anything() -> None:
    assert f"nested deeper than {MAX_DEPTH} levels" in faults_of("{a: " * 100_000)[0]


def test_a_million_laughs_are_refused_at_the_first_anchor() -> None:
    text = "a: &a [x, x]\n" + "".join(f"k{i}: &k{i} [*a, *a]\n" for i in range(50))

    assert "an anchor (&a)" in faults_of(text)[0]


def test_scalars_stay_text() -> None:
    root = read("a: 017\nb: 12:30:45\nc: off\nd: 1_000\ne: 2027-01-01\nf: ~\ng: '~'\n", {}, [], "f")

    assert [entry.value.text for entry in root.entries.values()] == ["017", "12:30:45", "off", "1_000", "2027-01-01", "~", "~"]
    assert [entry.value.null for entry in root.entries.values()] == [False] * 5 + [True, False]


def test_variables_are_replaced_in_values_only() -> None:
    root = read('"${A}": "${A}"\nb: ${A}\nc: pre-${A}-${B:-none}\n', {"A": "1"}, [], "f")

    assert {key: entry.value.text for key, entry in root.entries.items()} == {"${A}": "1", "b": "1", "c": "pre-1-none"}


def test_a_variable_cannot_change_the_structure() -> None:
    root = read('a: ${A}\nb: ["${A}"]\n', {"A": "{x: 1}\nc: [1, 2]"}, [], "f")

    assert list(root.entries) == ["a", "b"]
    assert root.entries["a"].value.text == "{x: 1}\nc: [1, 2]"
    assert len(root.entries["b"].value.items) == 1


@pytest.mark.parametrize(
    ("text", "env", "value"),
    [
        ("$$", {}, "$"),
        ("$${A}", {"A": "x"}, "${A}"),
        ("a$b $", {}, "a$b $"),
        ("${A}", {"A": "$$ ${B}"}, "$$ ${B}"),
        ("${A:-}", {}, ""),
        ("${A:-x y}", {}, "x y"),
        ("${A:-x}", {"A": ""}, "x"),
        ("${A:-x}", {"A": "y"}, "y"),
    ],
)
def test_substitution(text: str, env: dict[str, str], value: str) -> None:
    assert substitute(text, env)[0] == value


@pytest.mark.parametrize(
    ("text", "env", "message"),
    [
        ("${A}", {}, "the environment variable A is not set; set it, or write ${A:-default}"),
        ("${A}", {"A": ""}, "the environment variable A is empty; set it, or write ${A:-default}"),
        ("${A", {}, "a variable is written ${NAME} or ${NAME:-default}, a literal dollar $$"),
        ("${A-x}", {}, "a variable is written ${NAME} or ${NAME:-default}, a literal dollar $$"),
        ("${A:-${B}}", {"A": "x", "B": "y"}, "a default may not hold another variable"),
        ("${1}", {}, "a variable is written ${NAME} or ${NAME:-default}, a literal dollar $$"),
        ("${A}", {"A": "\udcff"}, "the environment variable A is not UTF-8 text"),
    ],
)
def test_a_variable_that_cannot_be_replaced_is_named(text: str, env: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        substitute(text, env)

    assert str(caught.value) == message


def test_a_file_that_is_not_utf8_says_where() -> None:
    with pytest.raises(ConfigError) as caught:
        decode("a: ü\nb: ü".encode()[:-1] + b"\xff", "f")

    assert caught.value.lines() == ["f:2:4: the file is not UTF-8 text"]


def test_a_byte_order_mark_is_no_content() -> None:
    assert decode(b"\xef\xbb\xbfa: 1", "f") == "a: 1"


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        decode(b"#" * (MAX_BYTES + 1), "f")

    assert caught.value.lines() == ["f:1:1: the file is larger than 4 MiB"]
