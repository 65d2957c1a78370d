"""L2, cold context: turns that left the live context, taken apart into blocks and put together again without loss.

Reasoning is a block of its own and never part of the response's (D14): what was thought can
be searched, and comes back in its own field. The relevance of a turn counts all its blocks.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from gateway.agent.memory.compaction import called
from gateway.agent.memory.turns import REASONING, reasoning_of, text_of
from gateway.chat import Json

ROLES = {"user": "input", "assistant": "response", "tool": "result"}
"""blocks' roles beside `reasoning`, by the role of the message; other messages are `other`"""
QUERY, TERMS = 4_000, 32
"""characters and terms of a query that are looked at"""
USEFUL = 0.35
"""share of a query's weight that a turn must have to be worth a place in the prompt"""


@dataclass(frozen=True, slots=True)
class Block:
    """One part of one message. `place` is the message's number in its session, `fields` what is not text.

    `plain`: the text is the whole content (or reasoning_content); else `fields` has it and
    the text is there to be searched. `own`: it is the agent's, no client sent it.
    """

    id: str
    time: float
    place: int
    role: str
    text: str
    fields: Json
    plain: bool = True
    own: bool = False

    def to_json(self) -> Json:
        out: Json = {"id": self.id, "time": self.time, "place": self.place, "role": self.role, "text": self.text}
        return out | ({"fields": self.fields} if self.fields else {}) | ({} if self.plain else {"plain": False}) | ({"own": True} if self.own else {})

    @staticmethod
    def from_json(value: Json) -> Block:
        role, text, when, place = str(value["role"]), str(value["text"]), stamp(value.get("time")), int(value["place"])
        ident = value.get("id") or block_id(when, place, role, text)
        return Block(ident, when, place, role, text, value.get("fields") or {}, value.get("plain", True), value.get("own", False))


def stamp(when: Any) -> float:
    """A time, in one form before anything is derived from it (D20): unix seconds; what is absent, zero or no time is now."""
    if isinstance(when, int | float) and not isinstance(when, bool) and math.isfinite(when) and when > 0:
        return float(when)
    return time.time()


def block_id(when: float, place: int, role: str, text: str) -> str:
    return "blk_" + hashlib.sha256(f"{when!r}\n{place}\n{role}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()[:20]


def to_blocks(message: Json, place: int, when: float, *, own: bool = False) -> list[Block]:
    """The blocks of a message: its reasoning if it has any (D15), then the message."""
    role = ROLES.get(str(message.get("role")), "other")
    rest = {name: value for name, value in message.items() if name != "role" or role == "other"}
    out = []
    if role == "response" and any(message.get(name) for name in REASONING):
        thought = {name: rest.pop(name) for name in REASONING if rest.get(name)}
        plain = isinstance(thought.get("reasoning_content"), str)
        text = thought.pop("reasoning_content") if plain else reasoning_of(message)
        out.append(Block(block_id(when, place, "reasoning", text), when, place, "reasoning", text, thought, plain, own))
    plain = isinstance(rest.get("content"), str)
    text = rest.pop("content") if plain else text_of(message)
    out.append(Block(block_id(when, place, role, text), when, place, role, text, rest, plain, own))
    return out


def from_blocks(blocks: Iterable[Block]) -> list[tuple[int, Json]]:
    """The messages of blocks with their places, each field where it was. Blocks of one message stand together."""
    out = []
    for place, group in groupby(blocks, key=lambda block: block.place):
        message: Json = {}
        for block in group:
            if block.role == "reasoning":
                message |= {"role": "assistant", **({"reasoning_content": block.text} if block.plain else {}), **block.fields}
            else:
                role = next((name for name, one in ROLES.items() if one == block.role), None)
                message |= ({"role": role} if role else {}) | ({"content": block.text} if block.plain else {}) | block.fields
        out.append((place, message))
    return out


def record_blocks(record: Json, place: int) -> list[Block]:
    """The blocks of a record of the time before blocks: `input` and `response`, perhaps `reasoning` (D17)."""
    when = stamp(record.get("time", record.get("timestamp")))
    out = to_blocks({"role": "user", "content": str(record.get("input") or "")}, place, when)
    answer: Json = {"role": "assistant", "content": str(record.get("response") or "")}
    if record.get("reasoning"):
        answer["reasoning_content"] = str(record["reasoning"])
    return [*out, *to_blocks(answer, place + 1, when, own=True)]


def cold_turns(blocks: Sequence[Block]) -> list[tuple[Block, ...]]:
    """Blocks by turn: each begins with an input that a client sent, or where messages between are not cold."""
    starts = [
        number for number, block in enumerate(blocks) if not number or (block.role == "input" and not block.own) or block.place > blocks[number - 1].place + 1
    ]
    return [tuple(blocks[first:end]) for first, end in pairwise([*starts, len(blocks)])]


def relevant(blocks: Sequence[Block], query: str, k: int) -> list[tuple[Block, ...]]:
    """The at most `k` cold turns that have to do with a query, in the order in which they happened.

    BM25 over words and, for CJK, pairs of characters; reasoning counts like any other text
    (D13). A turn that shares only what every turn has is not relevant.
    """
    turns = cold_turns(blocks)
    wanted = list(dict.fromkeys(terms(query[:QUERY])))[:TERMS]
    if not turns or not wanted or k <= 0:
        return []
    texts = ["\n".join(map(_searchable, turn)).lower() for turn in turns]
    found = {term: _occurrences(term, texts) for term in wanted}
    # one more than there are: a word that no turn has still weighs something, and one that all have nearly nothing
    rarity = {term: math.log(1 + (len(texts) + 1 - len(times) + 0.5) / (len(times) + 0.5)) for term, times in found.items()}
    total, mean = sum(rarity.values()), max(sum(map(len, texts)) / len(texts), 1.0)
    scored = []
    for number, text in enumerate(texts):
        times = {term: found[term][number] for term in wanted if number in found[term]}
        if times and sum(rarity[term] for term in times) >= USEFUL * total:
            long = 1.2 * (0.25 + 0.75 * len(text) / mean)
            scored.append((sum(rarity[term] * n * 2.2 / (n + long) for term, n in times.items()), number))
    best = sorted(sorted(scored, reverse=True)[:k], key=lambda one: one[1])
    return [turns[number] for _, number in best]


def _occurrences(term: str, texts: Sequence[str]) -> dict[int, int]:
    """How often a term stands in each text that has it: words whole, pairs of CJK characters anywhere.

    Plain searches: taking every text apart into words costs fifty times as much.
    """
    whole = not _CJK_CHAR.match(term)
    times = {number: _times(term, text, whole) for number, text in enumerate(texts) if term in text}
    return {number: n for number, n in times.items() if n}


def _times(term: str, text: str, whole: bool) -> int:
    """At most 20: more add nothing to a score."""
    if not whole:
        return min(text.count(term), 20)
    n, at = 0, text.find(term)
    while at >= 0 and n < 20:
        end = at + len(term)
        n += not (_in_word(text[at - 1 : at]) or _in_word(text[end : end + 1]))
        at = text.find(term, end)
    return n


def _in_word(character: str) -> bool:
    return character.isalnum() and not _CJK_CHAR.match(character)


_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CJK_CHAR = re.compile(f"[{_CJK}]")
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_COMMON_WORDS = (
    "a an and are as at be but by can could did do does for from had has have he her him his how i if in is it its me my no not of on or our she so "
    "tell that the their them then there they this to was we were what when where which who why will with would you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def terms(text: str) -> list[str]:
    """The words of a text in lower case without the commonest English ones; runs of CJK characters as pairs, one alone as itself."""
    out: list[str] = []
    for match in _RUN.finditer(text.lower()):
        run = match.group()
        if not _CJK_CHAR.match(run):
            if run not in _COMMON:
                out.append(run)
        elif len(run) == 1:
            out.append(run)
        else:
            out += [run[place : place + 2] for place in range(len(run) - 1)]
    return out


def _searchable(block: Block) -> str:
    return "\n".join([block.text, *called(block.fields)]) if block.role == "response" else block.text
