"""The thoughts of one session: their history, their branches, and what revisions make of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gateway.agent.tools import lenient
from gateway.chat import Json

log = logging.getLogger("thinkgate")

MAX_THOUGHTS = 1000
MAX_BRANCHES = 50
MAX_LENGTH = 2000
"""characters (code points) of one thought"""
MAX_BRANCH_ID = 100
SHOWN = 8_000
"""characters that a result spends on repeating thoughts, once for branches and once for revisions, so that it stays
below the cap of a tool's output however long the history is"""
_ENTRY = 40
"""characters of the JSON around a repeated thought"""

Revision = Literal["replace", "amend", "cancel"]
REVISIONS: tuple[Revision, ...] = ("replace", "amend", "cancel")
RECORDED = "Thought recorded."
UNFINISHED = "Thought recorded, unfinished steps remain, continue."

_NAMES = {
    lenient.bare(name): name
    for name in (
        "thought",
        "next_thought_needed",
        "thought_number",
        "total_thoughts",
        "is_revision",
        "revises_thought",
        "revision_type",
        "branch_from_thought",
        "branch_id",
        "needs_more_thoughts",
    )
}


class Thought(msgspec.Struct, frozen=True, omit_defaults=True):
    """One accepted thought. `revision_type` is there only where it revises another."""

    thought: str
    thought_number: int
    total_thoughts: int
    next_thought_needed: bool = False
    is_revision: bool = False
    revises_thought: int | None = None
    revision_type: Revision | None = None
    branch_from_thought: int | None = None
    branch_id: str | None = None
    needs_more_thoughts: bool = False

    @property
    def incomplete(self) -> bool:
        """Whether more thoughts are to come."""
        return self.next_thought_needed or self.needs_more_thoughts or self.thought_number < self.total_thoughts

    @property
    def branch(self) -> str | None:
        """The branch that it is a part of: one alone of branch_id and branch_from_thought makes none."""
        return self.branch_id if self.branch_from_thought is not None else None

    def event(self) -> Json:
        """The data of its `thought` event."""
        return {
            "thought": self.thought,
            "thought_number": self.thought_number,
            "total_thoughts": self.total_thoughts,
            "incomplete_steps": self.incomplete,
            "branch_id": self.branch_id,
            "branch_from_thought": self.branch_from_thought,
            "revises_thought": self.revises_thought,
            "revision_type": self.revision_type,
        }


class InForce(msgspec.Struct, frozen=True):
    """A thought as revisions left it: the text that counts now, and what was added to it."""

    thought_number: int
    thought: str
    branch_id: str | None = None
    amendments: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """What is there of it, as plain JSON values."""
        out: Json = {"thought_number": self.thought_number, "thought": self.thought}
        if self.branch_id is not None:
            out["branch_id"] = self.branch_id
        if self.amendments:
            out["amendments"] = list(self.amendments)
        return out


class Thoughts:
    """The state of the thinking tool. All methods may be called from several threads at once.

    `add` never raises: what it does not accept is not kept, and its result says why.
    """

    def __init__(
        self, history: Iterable[Thought] = (), *, max_thoughts: int = MAX_THOUGHTS, max_branches: int = MAX_BRANCHES, max_length: int = MAX_LENGTH
    ) -> None:
        self._history: list[Thought] = []
        self._branches: dict[str, list[Thought]] = {}
        self._highest = 0
        self._lock = threading.Lock()
        self.max_thoughts, self.max_branches, self.max_length = max_thoughts, max_branches, max_length
        for thought in history:
            self._append(thought)

    @classmethod
    def from_json(cls, value: Json | None, *, max_thoughts: int = MAX_THOUGHTS, max_branches: int = MAX_BRANCHES, max_length: int = MAX_LENGTH) -> Thoughts:
        """What `to_json` gave; None is an empty history. ValueError if it is something else."""
        try:
            history = msgspec.convert(value["thoughts"], list[Thought]) if value is not None else []
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise ValueError(f"this is no history of thoughts: {error}") from None
        return cls(history, max_thoughts=max_thoughts, max_branches=max_branches, max_length=max_length)

    def to_json(self) -> Json:
        """The state as plain JSON values."""
        return {"thoughts": msgspec.to_builtins(list(self.history))}

    @property
    def history(self) -> tuple[Thought, ...]:
        """Every accepted thought in the order of the calls, whatever revisions say."""
        with self._lock:
            return tuple(self._history)

    @property
    def branches(self) -> dict[str, tuple[Thought, ...]]:
        """The thoughts of each branch, branches in the order in which they began."""
        with self._lock:
            return {name: tuple(thoughts) for name, thoughts in self._branches.items()}

    def in_force(self) -> tuple[InForce, ...]:
        """The thoughts that count now: replaced, amended and cancelled ones as their revisions say."""
        return in_force(self.history)

    def add(self, arguments: object) -> Json:
        """Take one thought, as the model wrote it. `{success, output, data, error?}`."""
        return self.take(arguments)[0]

    def take(self, arguments: object) -> tuple[Json, Thought | None]:
        """The same with the thought itself; None where it was refused."""
        with self._lock:
            try:
                thought, counted = self._read(arguments)
                self._room(thought)
            except ValueError as error:
                return {"success": False, "output": "", "data": {}, "error": str(error)}, None
            warnings = self._warnings(thought, counted)
            self._append(thought)
            contents, left_out = newest(self._branches)
            if left_out:
                warnings.append(f"branch_contents leaves out the oldest {left_out} thoughts")
            data = self._data(thought, contents)
            if thought.revises_thought is not None:
                data["effective_thoughts"] = _shown(in_force(self._history))
        if warnings:
            data["warnings"] = warnings
        return {"success": True, "output": UNFINISHED if thought.incomplete else RECORDED, "data": data}, thought

    def _data(self, thought: Thought, contents: Json) -> Json:
        return {
            "thought_number": thought.thought_number,
            "total_thoughts": thought.total_thoughts,
            "next_thought_needed": thought.next_thought_needed,
            "branches": list(self._branches),
            "branch_contents": contents,
            "thought_history_length": len(self._history),
            "display_type": "thinking",
            "thought": thought.thought,
            "incomplete_steps": thought.incomplete,
        }

    def _read(self, arguments: object) -> tuple[Thought, bool]:
        """The thought, and whether its number was counted because the model gave none."""
        given = lenient.named(lenient.arguments(arguments), _NAMES)
        thought = lenient.text("thought", given.get("thought"), self.max_length)
        number = lenient.number("thought_number", given.get("thought_number"))
        total = lenient.number("total_thoughts", given.get("total_thoughts"))
        counted = number is None
        if number is None:
            number = len(self._history) + 1
        if total is None:
            total = self._history[-1].total_thoughts if self._history else 0
        total = max(total, number)
        needed = lenient.flag("next_thought_needed", given.get("next_thought_needed"))
        revises = _optional(given, "revises_thought")
        revision = lenient.flag("is_revision", given.get("is_revision"))
        kind = _revision_type(given.get("revision_type"))
        return Thought(
            thought=thought,
            thought_number=number,
            total_thoughts=total,
            next_thought_needed=number < total if needed is None else needed,
            is_revision=revises is not None if revision is None else revision,
            revises_thought=revises,
            revision_type=kind if revises is not None else None,
            branch_from_thought=_optional(given, "branch_from_thought"),
            branch_id=None if lenient.absent(given.get("branch_id")) else lenient.text("branch_id", _id(given["branch_id"]), MAX_BRANCH_ID),
            needs_more_thoughts=bool(lenient.flag("needs_more_thoughts", given.get("needs_more_thoughts"))),
        ), counted

    def _room(self, thought: Thought) -> None:
        if len(self._history) >= self.max_thoughts:
            raise ValueError(f"this session holds {self.max_thoughts} thoughts, the most it may; go on without this tool")
        if thought.branch is not None and thought.branch not in self._branches and len(self._branches) >= self.max_branches:
            raise ValueError(f"this session holds {self.max_branches} branches, the most it may; go on with one of them (branch_id)")

    def _warnings(self, thought: Thought, counted: bool) -> list[str]:
        out: list[str] = []
        first, last = self._highest + 1, thought.thought_number - 1
        if first <= last and not counted:
            missing = f"thought {first} is" if first == last else f"thoughts {first} to {last} are"
            out.append(f"gap in the numbering: {missing} missing before thought {thought.thought_number}")
            log.warning("sequential_thinking: %s", out[0])
        if thought.revises_thought is not None and targets((*self._history, thought))[-1] is None:
            out.append(f"there is no thought {thought.revises_thought} to revise")
        return out

    def _append(self, thought: Thought) -> None:
        self._history.append(thought)
        self._highest = max(self._highest, thought.thought_number)
        if thought.branch is not None:
            self._branches.setdefault(thought.branch, []).append(thought)


def _optional(given: Json, field: str) -> int | None:
    value = given.get(field)
    return None if lenient.absent(value) else lenient.number(field, value)


def _id(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _revision_type(value: object) -> Revision:
    if lenient.absent(value):
        return "amend"
    word = value.strip().lower() if isinstance(value, str) else value
    for kind in REVISIONS:
        if word == kind:
            return kind
    raise ValueError("revision_type must be replace, amend or cancel")


def newest(branches: Mapping[str, list[Thought]]) -> tuple[Json, int]:
    """The contents of the branches, and how many of the oldest thoughts of each had no room."""
    room, left_out = SHOWN, 0
    out: Json = {}
    for name, thoughts in reversed(list(branches.items())):
        kept: list[Json] = []
        for thought in reversed(thoughts):
            if len(thought.thought) + _ENTRY > room:
                break
            room -= len(thought.thought) + _ENTRY
            kept.append({"thought_number": thought.thought_number, "thought": thought.thought})
        left_out += len(thoughts) - len(kept)
        out[name] = kept[::-1]
    return dict(reversed(list(out.items()))), left_out


def _shown(thoughts: tuple[InForce, ...]) -> list[Json]:
    """The newest of them that have room."""
    room = SHOWN
    kept: list[Json] = []
    for one in reversed(thoughts):
        room -= len(one.thought) + len(one.branch_id or "") + sum(map(len, one.amendments)) + _ENTRY
        if room < 0:
            break
        kept.append(one.to_json())
    return kept[::-1]


def targets(history: Iterable[Thought]) -> list[int | None]:
    """For each thought the index of the earlier one that it revises: the newest with that number,

    of its own branch where there is one, else of the main line, else of any branch.
    """
    out: list[int | None] = []
    latest: dict[tuple[int, str | None], int] = {}
    anywhere: dict[int, int] = {}
    for index, one in enumerate(history):
        number = one.revises_thought
        if number is None:
            out.append(None)
        else:
            main_line = latest.get((number, None), anywhere.get(number))
            out.append(latest.get((number, one.branch), main_line))
        latest[one.thought_number, one.branch] = anywhere[one.thought_number] = index
    return out


def in_force(history: list[Thought] | tuple[Thought, ...]) -> tuple[InForce, ...]:
    """A history with its revisions applied.

    replace  the new text stands where the old thought stood; what amended the old one is gone
    amend    the old thought stays and the new text is added to it
    cancel   the old thought no longer counts, nor does what it did as a revision: the thought that it replaced is back

    From the newest to the oldest, so that what a later thought says of a revision is known before the revision is applied.
    """
    size, revised = len(history), targets(history)
    text: list[str] = [one.thought for one in history]
    amendments: list[list[str]] = [[] for _ in history]
    replaced, gone = [False] * size, [False] * size
    for index in range(size - 1, -1, -1):
        one, at = history[index], revised[index]
        if at is None:
            gone[index] = gone[index] or one.revision_type == "cancel"  # a cancellation of nothing is no thought either
            continue
        if not gone[index] and not replaced[at]:
            if one.revision_type == "cancel":
                gone[at] = True
            elif one.revision_type == "replace":
                text[at], replaced[at] = text[index], True
                amendments[at] = amendments[index] + amendments[at]
            else:
                amendments[at] = [text[index], *amendments[index], *amendments[at]]
        gone[index] = True  # it stands in the thought that it revises
    return tuple(InForce(one.thought_number, text[i], one.branch, tuple(amendments[i])) for i, one in enumerate(history) if not gone[i])
