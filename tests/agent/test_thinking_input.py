"""What the thinking tool reads, however it is written (T30), and properties over all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinking_steps import accepted, step

from gateway.agent.tools.thinking import PARAMETERS, Thoughts

# lenient input


def test_numbers_as_text_become_integers() -> None:
    """T30, B139.1"""
    data = accepted(Thoughts(), {"thought": "a", "thought_number": "1", "total_thoughts": "3", "next_thought_needed": True})
    assert (data["thought_number"], data["total_thoughts"]) == (1, 3)
    assert type(data["thought_number"]) is int
    assert type(data["total_thoughts"]) is int


def test_camel_case_is_read_and_the_exact_name_wins() -> None:
    """T30, B139.3"""
    thoughts = Thoughts()
    accepted(thoughts, step(1))
    camel = {
        "thought": "a",
        "nextThoughtNeeded": False,
        "thoughtNumber": 2,
        "totalThoughts": 2,
        "isRevision": True,
        "revisesThought": 1,
        "revisionType": "Replace",
        "branchFromThought": 1,
        "branchId": "b",
        "needsMoreThoughts": True,
    }
    accepted(thoughts, camel)
    kept = thoughts.history[1]
    assert (kept.thought_number, kept.total_thoughts, kept.next_thought_needed, kept.needs_more_thoughts) == (2, 2, False, True)
    assert (kept.is_revision, kept.revises_thought, kept.revision_type) == (True, 1, "replace")
    assert (kept.branch_from_thought, kept.branch_id) == (1, "b")
    for both in ({"thoughtNumber": 9, "thought_number": 3}, {"thought_number": 3, "thoughtNumber": 9}):
        assert accepted(thoughts, {"thought": "c", **both})["thought_number"] == 3


@pytest.mark.parametrize("word", ["false", "False", "FALSE", " false ", "0", "no", "off", "n", 0, 0.0, False])
def test_no_spelling_of_false_becomes_true(word: Any) -> None:
    """T30"""
    assert accepted(Thoughts(), step(2, 2, word))["incomplete_steps"] is False


@pytest.mark.parametrize("word", ["true", "True", "yes", "1", "on", "y", 1, 1.0, True])
def test_no_spelling_of_true_becomes_false(word: Any) -> None:
    """T30"""
    assert accepted(Thoughts(), step(2, 2, word))["next_thought_needed"] is True


def test_missing_numbers_are_counted() -> None:
    """T30: the history's length plus one, the larger of the last total and the number"""
    thoughts = Thoughts()
    seen = [
        accepted(thoughts, one) for one in ({"thought": "a"}, step(2, 5), {"thought": "c", "next_thought_needed": True}, {"thought": "d", "thought_number": 8})
    ]
    assert [(one["thought_number"], one["total_thoughts"]) for one in seen] == [(1, 1), (2, 5), (3, 5), (8, 8)]
    assert accepted(Thoughts(), {"thought": "a", "thought_number": None, "total_thoughts": None})["thought_number"] == 1


def test_a_missing_next_thought_needed_follows_from_the_numbers() -> None:
    """T30"""
    assert accepted(Thoughts(), {"thought": "a", "thought_number": 1, "total_thoughts": 2})["next_thought_needed"] is True
    assert accepted(Thoughts(), {"thought": "a", "thought_number": 2, "total_thoughts": 2})["next_thought_needed"] is False


@pytest.mark.parametrize("nothing", [None, "", " ", "null", "None"])
def test_an_optional_field_may_say_that_it_is_not_there(nothing: Any) -> None:
    """T30: models that fill in every field of a schema"""
    thoughts = Thoughts()
    fields = ("is_revision", "revises_thought", "revision_type", "branch_from_thought", "branch_id", "needs_more_thoughts")
    data = accepted(thoughts, step(1, 1, False, **dict.fromkeys(fields, nothing)))
    assert data["branches"] == []
    assert thoughts.history[0].event()["revision_type"] is None
    assert data["incomplete_steps"] is False


def test_a_branch_may_be_named_by_a_number() -> None:
    """T30"""
    assert accepted(Thoughts(), step(branch_from_thought="1", branch_id=2))["branches"] == ["2"]


def test_fields_that_nobody_knows_are_left_alone() -> None:
    """T30"""
    assert accepted(Thoughts(), step(mood="good", Thought_="other"))["thought"] == "hm"


def _spell_name(name: str, style: int) -> str:
    head, *rest = name.split("_")
    return (name, head + "".join(part.title() for part in rest), "-".join((head, *rest)), name.upper())[style]


@given(
    number=st.integers(1, 10**6),
    total=st.integers(1, 10**6),
    needed=st.booleans(),
    more=st.booleans(),
    style=st.integers(0, 3),
    number_style=st.sampled_from([int, float, str, lambda n: f" {n} ", lambda n: f"{n}.0", lambda n: f"+{n}"]),
    flag_style=st.sampled_from([bool, int, lambda b: str(b).lower(), str, lambda b: "yes" if b else "no", lambda b: str(int(b))]),
)
@settings(max_examples=200, deadline=None)
def test_every_spelling_means_the_same(number: int, total: int, needed: bool, more: bool, style: int, number_style: Any, flag_style: Any) -> None:
    """T30"""
    plain = {"thought": "a", "thought_number": number, "total_thoughts": total, "next_thought_needed": needed, "needs_more_thoughts": more}
    spelt = {
        _spell_name(name, style): (flag_style(value) if isinstance(value, bool) else number_style(value) if isinstance(value, int) else value)
        for name, value in plain.items()
    }
    assert Thoughts().add(spelt) == Thoughts().add(plain)
    assert Thoughts().add(plain)["success"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ANYTHING = st.one_of(JSON, st.dictionaries(st.sampled_from([*PARAMETERS["properties"], "thoughtNumber", "x"]), JSON, max_size=8))


@given(calls=st.lists(ANYTHING, max_size=8))
@settings(max_examples=150, deadline=None)
def test_whatever_comes_is_kept_or_refused_and_never_an_exception(calls: list[Any]) -> None:
    """T6, T9, T30"""
    thoughts = Thoughts()
    taken = [thoughts.add(one) for one in calls]
    assert len(thoughts.history) == sum(one["success"] for one in taken)
    assert all(one["error"] for one in taken if not one["success"])
    state = json.loads(json.dumps(thoughts.to_json()))
    assert Thoughts.from_json(state).history == thoughts.history
    assert len(thoughts.in_force()) <= len(thoughts.history)


REVISIONS = st.lists(st.tuples(st.integers(1, 6), st.none() | st.integers(1, 6), st.sampled_from(["replace", "amend", "cancel"])), max_size=12)


@given(REVISIONS)
@settings(max_examples=200, deadline=None)
def test_revisions_lose_nothing_unasked(steps: list[tuple[int, int | None, str]]) -> None:
    """T22: without replace and cancel every text is still in force, and no text is in force twice"""
    thoughts = Thoughts()
    for index, (number, revises, kind) in enumerate(steps):
        accepted(thoughts, step(number, 9, thought=f"t{index}", revises_thought=revises, revision_type=kind))
    shown = [text for one in thoughts.in_force() for text in (one.thought, *one.amendments)]
    assert len(shown) == len(set(shown))
    if all(kind == "amend" or revises is None for _, revises, kind in steps):
        assert sorted(shown) == sorted(f"t{index}" for index in range(len(steps)))


@pytest.mark.parametrize("value", [{}, {"thoughts": [{"thought": 1}]}, [], "x", {"thoughts": None}])
def test_what_is_no_history_is_not_taken_for_one(value: Any) -> None:
    with pytest.raises(ValueError, match="no history of thoughts"):
        Thoughts.from_json(value)
