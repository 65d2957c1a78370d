"""The history of a session: what its runs said and thought, and what of it the next model call is told.

L1  live messages, as they were, with their reasoning (D12)
L2  cold blocks: older messages, found again when a question has to do with them
L3  a summary, distilled from live turns when they grew too large

    history = History.from_json(state, limit=limits.history)
    taken = history.take(request_messages)
    if taken.forked_at is not None:
        history = history.fork(taken.forked_at)
    history = history.add(taken.new)
    messages = history.context(system, window)
    if plan := plan_compaction(messages, window, estimator=history.estimator):
        history = history.compacted(await ask(summary_request(plan)), plan.kept)
        messages = history.context(system, window)
    ...                                          # the run; its own messages are `steps`
    state = history.add_run(steps).to_json()
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from gateway.agent.memory.blocks import Block, cold_turns, from_blocks, record_blocks, relevant, stamp, to_blocks
from gateway.agent.memory.caps import cap_output, cap_tokens
from gateway.agent.memory.compaction import distilled, with_summary
from gateway.agent.memory.matching import Key, Taken, key, take
from gateway.agent.memory.repair import encodable, repair
from gateway.agent.memory.tokens import Estimator
from gateway.agent.memory.turns import has_reasoning, join_content, reasoning_of, system_end, text_of, turn_starts, unit_starts
from gateway.chat import Json, dumps

log = logging.getLogger("thinkgate")

VERSION = 1
LIMIT = 100
"""messages that stay live (H6)"""
COLD, COLD_OUTPUT = 512 * 1024, 2_000
"""characters of text that stay in cold blocks (what is older is in the summary, if there is one), and that a tool's output has there"""
RECALL_HEAD, RECALL_END = "[From earlier in this conversation]", "[End of what was earlier]"
RECALL_SHARE = 20
"""what is recalled has at most the twentieth part of the window"""
RECALL = 3
"""cold turns that are recalled at once"""


_UNTOLD = Estimator()


@dataclass(frozen=True, slots=True)
class Entry:
    """A live message: its number in the session, when it came, whether the agent made it (`own`) or a client sent it."""

    message: Json
    place: int
    time: float
    own: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """All that a session keeps. A value: every change gives a new one.

    `head` are system messages with which a client began; they always stay, and no limit counts them.
    `gone` are the keys of messages that are no longer kept at all, so that a client that
    still has them is understood. `thoughts`, `todos` and `plan` are the tools' and the
    pattern's own; they are kept and given back as they are.
    """

    head: tuple[Json, ...] = ()
    live: tuple[Entry, ...] = ()
    cold: tuple[Block, ...] = ()
    summary: str = ""
    summarised: int = 0
    gone: tuple[Key, ...] = ()
    thoughts: Any = None
    todos: Any = None
    plan: Any = None
    estimator: Estimator = _UNTOLD
    limit: int = LIMIT

    @property
    def messages(self) -> list[Json]:
        """Every message that is kept but the head, cold and live, in the order of the session."""
        both = [*from_blocks(self.cold), *((entry.place, entry.message) for entry in self.live)]
        return [message for _, message in sorted(both, key=lambda one: one[0])]

    @property
    def turn_reasoning(self) -> str:
        """What was thought before the latest answer, whether tools were called in that turn or not (D19); "" if nothing."""
        answer = next((entry.message for entry in reversed(self.live) if entry.message.get("role") == "assistant"), None)
        return reasoning_of(answer) if answer is not None else ""

    def __len__(self) -> int:
        return len(self.gone) + len({block.place for block in self.cold}) + len(self.live)

    def add(self, messages: Iterable[Json], *, time: float = 0.0) -> Self:
        """With what a client sent. `time`: when, in unix seconds; 0 is now."""
        return self._with(messages, time, own=False)

    def add_run(self, messages: Iterable[Json], *, time: float = 0.0) -> Self:
        """With what a run made: the assistant's turns, each with its own reasoning (D19), and the results of its calls."""
        return self._with((_with_thought(message) for message in messages), time, own=True)

    def _with(self, messages: Iterable[Json], time: float, *, own: bool) -> Self:
        when, place = stamp(time), len(self)
        new: list[Entry] = []
        head = list(self.head)
        for message in messages:
            try:
                dumps(message)
            except ValueError:
                message = encodable(message)  # half a character, once stored, would fail every later request of the session
            if message.get("role") in ("system", "developer") and not place and not new:
                head.append(message)
            else:
                new.append(Entry(message, place + len(new), when, own))
        return replace(self, head=tuple(head), live=(*self.live, *new))._settled()

    def _settled(self) -> Self:
        """With no more live messages than the limit allows, and no more cold ones than are worth keeping."""
        live = self.live
        moved = _inner(live, self.limit // 2) if self.limit >= 20 else set()  # a tiny limit leaves nothing to choose
        live = tuple(entry for number, entry in enumerate(live) if number not in moved)
        start = _cut([entry.message for entry in live], self.limit)
        moving = sorted([*(self.live[number] for number in moved), *live[:start]], key=lambda entry: entry.place)
        if not moving:
            return self
        return replace(self, live=live[start:])._cooled(moving)

    def _cooled(self, moving: Sequence[Entry]) -> Self:
        new = [block for entry in moving for block in to_blocks(_capped(entry.message), entry.place, entry.time, own=entry.own)]
        cold = tuple(sorted([*self.cold, *new], key=lambda block: block.place))
        gone = list(self.gone)
        turns, size = cold_turns(cold), sum(len(block.text) for block in cold)
        while len(turns) > 1 and size > COLD:
            turn = turns.pop(0)
            if any(entry.place < turn[-1].place for entry in self.live):
                break  # the rest of that turn is live
            size -= sum(len(block.text) for block in turn)
            own = {block.place: block.own for block in turn}
            gone += [key(message, own=own[place]) for place, message in from_blocks(turn)]
            cold = cold[len(turn) :]
        return replace(self, cold=cold, gone=tuple(gone))

    def take(self, request: Sequence[Json]) -> Taken:
        """What a request of this session adds to it (`matching.take_new`); `fork` understands its `forked_at`."""
        return take([*self.gone, *(key(message, own=own) for message, own in self._owned())], request)

    def _owned(self) -> list[tuple[Json, bool]]:
        own = {block.place: block.own for block in self.cold}
        both = [(place, message, own[place]) for place, message in from_blocks(self.cold)]
        both += [(entry.place, entry.message, entry.own) for entry in self.live]
        return [(message, mine) for _, message, mine in sorted(both, key=lambda one: one[0])]

    def fork(self, at: int) -> Self:
        """The history as it was after its first `at` messages. A summary that speaks of later ones is forgotten."""
        if at < len(self.gone):
            log.warning("session forked at message %d, of which only %d later ones are kept: its history begins anew", at, len(self) - len(self.gone))
            return replace(self, live=(), cold=(), gone=(), summary="", summarised=0)
        live = tuple(entry for entry in self.live if entry.place < at)
        back = replace(self, live=live, cold=tuple(block for block in self.cold if block.place < at))
        return (back if self.summarised <= at else replace(back, summary="", summarised=0))._warmed()

    def _warmed(self) -> Self:
        """After a fork back into cold turns: the latest ones that nothing summarises are live again, as far as the limit goes."""
        first = min((entry.place for entry in self.live), default=len(self))
        own = {block.place: (block.own, block.time) for block in self.cold}
        back = [Entry(m, place, own[place][1], own[place][0]) for place, m in from_blocks(self.cold) if self.summarised <= place and place < first]
        room = self.limit - len(self.live)
        back = back[_cut([entry.message for entry in back], room) :] if room > 0 else []
        if not back:
            return self
        return replace(self, live=(*back, *self.live), cold=tuple(block for block in self.cold if block.place < back[0].place or block.place > first))

    def compacted(self, summary: str, kept: int) -> Self:
        """With a summary in the place of all but the latest `kept` messages of `context()`, which become cold.

        `Compaction.kept` is the number, less the run's own messages that stood behind the context.
        """
        places = [number for number in turn_starts([entry.message for entry in self.live]) if number]
        found = bisect_left(places, True, key=lambda number: len(self._rendered(self.live[number:])) <= kept)
        if found == len(places) or not summary.strip():
            return self
        cut = places[found]
        gone, live = self.live[:cut], self.live[cut:]
        return replace(self, live=live, summary=summary.strip(), summarised=live[0].place)._cooled(gone)

    def relevant(self, query: str, k: int = RECALL) -> list[tuple[Block, ...]]:
        """Cold turns that have to do with a query; their thoughts count as much as their words (D13)."""
        return relevant(self.cold, query, k)

    def block(self, ident: str) -> Block | None:
        """A cold block by its id. None is said in the log too: an id that nothing has means that something was lost (D20)."""
        found = next((block for block in self.cold if block.id == ident), None)
        if found is None:
            log.warning("no cold block %s among %d", ident[:64], len(self.cold))
        return found

    def context(self, system: str = "", window: int | None = None, *, recall: int = RECALL, alternate: bool = False) -> list[Json]:
        """The messages of the next model call: system, the summary, what is relevant of the cold turns, the live messages with their reasoning.

        The summary stands in front of the first live message and does not change until the
        next compaction; what is recalled stands in front of the latest user message, so that
        everything before it stays as the provider has it cached. Nothing is cut here: that is
        for `plan_compaction` and `trim`, in this order.
        """
        live = self._rendered(self.live, alternate)
        last = max(turn_starts(live), default=None)
        if last is not None and recall and self.cold:
            live[last] = self._recalling(live[last], window, recall)
        if self.summary and live:
            start = system_end(live)
            live = [*live[:start], *with_summary(live[start:], self.summary)]
        top = [{"role": "system", "content": system}] if system else []
        return self._topped([*top, *self.head], live, alternate)

    @staticmethod
    def _topped(top: Sequence[Json], live: Sequence[Json], alternate: bool) -> list[Json]:
        """System messages in front, those of one role as one."""
        start = system_end(live)
        heads, _ = repair([*top, *live[:start]], alternate=alternate)
        return [*heads, *live[start:]]

    @staticmethod
    def _rendered(entries: Sequence[Entry], alternate: bool = False) -> list[Json]:
        return repair([entry.message for entry in entries], alternate=alternate)[0]

    def _recalling(self, message: Json, window: int | None, k: int) -> Json:
        turns = self.relevant(text_of(message), k)
        if not turns:
            return message
        text = "\n\n".join(distilled([one for _, one in from_blocks(turn)], piece=1_200) for turn in turns)
        if window:
            text = cap_tokens(text, window // RECALL_SHARE)
        return {**message, "content": join_content(f"{RECALL_HEAD}\n{text}\n{RECALL_END}", message.get("content"))}

    def to_json(self) -> Json:
        """The state that the store keeps."""
        out: Json = {"version": VERSION, "messages": [_entry_json(entry) for entry in self.live]}
        if self.head:
            out["head"] = list(self.head)
        if self.cold:
            out["cold"] = [block.to_json() for block in self.cold]
        if self.summary:
            out |= {"summary": self.summary, "summarised": self.summarised}
        if self.gone:
            out["gone"] = [one.to_json() for one in self.gone]
        out |= {name: getattr(self, name) for name in ("thoughts", "todos", "plan") if getattr(self, name) is not None}
        if self.estimator.told:
            out["tokens"] = [self.estimator.ratio, self.estimator.told]
        return out

    @classmethod
    def from_json(cls, state: Any, *, limit: int = LIMIT) -> Self:
        """The history of a state: `to_json`'s, nothing at all, or a list of records with `input` and `response` (D17)."""
        limit = max(limit, 1)
        records = state if isinstance(state, list) else state.get("records") if isinstance(state, Mapping) else None
        if isinstance(records, list):
            return cls(live=_records(records), limit=limit)._settled()
        if not isinstance(state, Mapping):
            return cls(limit=limit)
        read = cls(
            head=tuple(state.get("head") or ()),
            cold=tuple(Block.from_json(one) for one in state.get("cold") or ()),
            summary=str(state.get("summary") or ""),
            summarised=int(state.get("summarised") or 0),
            gone=tuple(Key.from_json(one) for one in state.get("gone") or ()),
            thoughts=state.get("thoughts"),
            todos=state.get("todos"),
            plan=state.get("plan"),
            estimator=Estimator(*state["tokens"]) if state.get("tokens") else _UNTOLD,
            limit=limit,
        )
        place = len(read)
        given = [one for one in state.get("messages") or () if isinstance(one, dict)]
        live = tuple(_entry(one, place + number) for number, one in enumerate(given))
        return replace(read, live=live)._settled()


def _with_thought(message: Json) -> Json:
    """An assistant's message with its reasoning in `reasoning_content`, wherever the provider put it as text."""
    if message.get("role") != "assistant" or message.get("reasoning_content") or not has_reasoning(message):
        return message
    text = reasoning_of(message)
    return {**{name: value for name, value in message.items() if name != "reasoning"}, **({"reasoning_content": text} if text else {})}


def _capped(message: Json) -> Json:
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, str) or len(content) <= COLD_OUTPUT:
        return message
    return {**message, "content": cap_output(content, COLD_OUTPUT)}


def _inner(live: Sequence[Entry], most: int) -> set[int]:
    """What leaves of turns that are longer than `most`: the units between their user message and the latest ones."""
    out: set[int] = set()
    messages = [entry.message for entry in live]
    for start, end in pairwise([*turn_starts(messages), len(messages)]):
        if end - start > most:
            units = [start + 1 + unit for unit in unit_starts(messages[start + 1 : end])]
            keep = next((unit for unit in units if end - unit < most), units[-1] if units else end)
            out |= set(range(start + 1, keep))
    return out


def _cut(messages: Sequence[Json], limit: int) -> int:
    """Where the latest at most `limit` messages begin: at a turn, else at a unit, never at a result (B137). The latest turn's beginning stays."""
    if len(messages) <= limit:
        return 0
    least = len(messages) - limit
    turn = next((place for place in turn_starts(messages) if place >= least), None)
    if turn is not None:
        return turn
    starts = turn_starts(messages)
    if starts:
        return starts[-1]  # one turn alone is longer than the limit: the question is worth more than the number
    return next((place for place in unit_starts(messages) if place >= least), len(messages))


def _records(records: Sequence[Any]) -> tuple[Entry, ...]:
    """Live entries of records with `input` and `response`; what is no such record is left out."""
    out: list[Entry] = []
    for record in records:
        if isinstance(record, Mapping):
            blocks = record_blocks(dict(record), len(out))
            own = {block.place: (block.own, block.time) for block in blocks}
            out += [Entry(message, place, own[place][1], own[place][0]) for place, message in from_blocks(blocks)]
    return tuple(out)


def _entry_json(entry: Entry) -> Json:
    return {"message": entry.message, "place": entry.place, "time": entry.time, **({"own": True} if entry.own else {})}


def _entry(value: Json, place: int) -> Entry:
    """A live entry; a bare message is one of the time before entries."""
    message = value.get("message")
    if not isinstance(message, dict):
        return Entry(value, place, stamp(None), value.get("role") in ("assistant", "tool"))
    return Entry(message, int(value.get("place", place)), stamp(value.get("time")), bool(value.get("own")))
