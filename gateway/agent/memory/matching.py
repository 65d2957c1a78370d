"""What is new in a request of a session (CONTRACT: the journal is the history; an edited prefix forks).

A client that sends its whole history back has changed it without changing what it says:
parts for a text, no reasoning, null for an empty text, fields of its own; it never saw the
agent's own calls and drafts, and it saw approvals that the model did not. All that is the
same history. Another text, another picture, other arguments are not.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.agent.memory.compaction import PLAN
from gateway.agent.memory.repair import PLACEHOLDER, object_text
from gateway.agent.memory.turns import is_empty, text_of
from gateway.chat import Json, dumps, loads

APPROVAL = "approval_request"
"""the function whose calls ask a person; they are no part of what a model sees"""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a request adds to its session.

    new        the messages to append; never empty unless the request has none
    forked_at  how many of the session's messages stay (the request went another way from
               there, or asks for the last answer once more); None: all of them
    """

    new: tuple[Json, ...]
    forked_at: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """What a message says, as far as two of them are compared. `text` is "" where only the digest was kept."""

    role: str
    digest: str
    calls: tuple[tuple[str, str], ...] = ()
    answers: str = ""
    own: bool = False
    hidden: bool = False
    text: str = ""

    def to_json(self) -> list[Any]:
        return [self.role, self.digest, [list(call) for call in self.calls], self.answers, self.own, self.hidden]

    @staticmethod
    def from_json(value: list[Any]) -> Key:
        role, digest, calls, answers, own, hidden = value
        return Key(role, digest, tuple((ident, said) for ident, said in calls), answers, own, hidden)


def key(message: Json, *, own: bool | None = None) -> Key:
    """`own`: the agent made it (None: its role says); such a message may be hidden from the client: calls, results, nothing at all."""
    role = "system" if message.get("role") == "developer" else str(message.get("role"))
    mine = role in ("assistant", "tool") if own is None else own
    calls = tuple(_call(call) for call in message.get("tool_calls") or () if isinstance(call, dict))
    text = _plain(text_of(message), role)
    said = [role, text, *_media(message.get("content"))]
    if role == "user" and message.get("name"):
        said.append(f"name {message['name']}")
    hidden = mine and (bool(calls) or role == "tool" or is_empty(message))
    answers = message.get("tool_call_id") if role == "tool" else ""
    return Key(role, _digest(said), calls, answers if isinstance(answers, str) else "", mine, hidden, text)


def take_new(session: Sequence[Json], request: Sequence[Json]) -> Taken:
    """What is new in the request, given all messages of the session."""
    return take([key(message) for message in session], request)


def take(keys: Sequence[Key], request: Sequence[Json]) -> Taken:
    """The same from the keys of the session's messages."""
    start = next((place for place, message in enumerate(request) if message.get("role") not in ("system", "developer")), len(request))
    said = list(request[start:])
    wanted = [key(message) for message in said]
    passed = _passed_over(said)
    first = next((place for place, one in enumerate(keys) if one.role != "system" and one != _OPENING), None)
    opening = next((place for place in range(len(said)) if not passed[place]), None)
    if first is None or opening is None or not _same(keys[first], wanted[opening]):
        return Taken(tuple(said))
    at, place, cut, last_user = first, 0, first, None
    while place < len(said):
        if not passed[place]:
            found = _find(keys, at, wanted[place])
            if found is None:
                break
            at = cut = found + 1
            if wanted[place].role == "user":
                last_user = (found, place)
        place += 1
    if place < len(said):
        return Taken(tuple(said[place:]), None if all(one.hidden for one in keys[at:]) else cut)
    again = last_user or (first, opening)
    return Taken(tuple(said[again[1] :]), again[0])


def _find(keys: Sequence[Key], at: int, wanted: Key) -> int | None:
    """Where the session has a message, going on at `at`: in what the agent did next, or behind it if a client saw none of that."""
    end = at
    while end < len(keys) and keys[end].own:
        if _same(keys[end], wanted):
            return end
        end += 1
    if end < len(keys) and all(one.hidden for one in keys[at:end]) and _same(keys[end], wanted):
        return end
    return None


def _same(ours: Key, theirs: Key) -> bool:
    if ours.role != theirs.role:
        return False
    if ours.role == "tool":
        return ours.answers == theirs.answers and (ours.digest == theirs.digest or _capped(ours.text, theirs.text))
    if theirs.calls:
        return set(theirs.calls) <= set(ours.calls) and (not theirs.text or ours.digest == theirs.digest)
    if ours.calls:
        return False
    if ours.digest == theirs.digest:
        return True
    # the accepted plan stands before the answer in what the model sees, the client saw the answer alone
    return ours.role == "assistant" and ours.text.startswith(PLAN) and bool(theirs.text) and ours.text.endswith(theirs.text)


def _passed_over(messages: Sequence[Json]) -> list[bool]:
    """Which messages say nothing about the history: the system's, empty ones, approvals and their answers."""
    out, asked = [], set()
    for message in messages:
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        approval = bool(calls) and all((call.get("function") or {}).get("name") == APPROVAL for call in calls)
        if approval:
            asked |= {call.get("id") for call in calls}
        role = message.get("role")
        nothing = role != "tool" and is_empty(message)
        out.append(approval or nothing or role in ("system", "developer") or (role == "tool" and message.get("tool_call_id") in asked))
    return out


_THOUGHT = re.compile(r"\A\s*(?:<think(?:ing)?>.*?</think(?:ing)?>|<details type=\"reasoning\".*?</details>)\s*", re.S)


def _plain(text: str, role: str) -> str:
    """A text without what travel does to it: line ends, composed characters, blanks around it, thoughts that a front end wrote into an answer."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    if role == "assistant":
        text = _THOUGHT.sub("", text)
    return text.strip()


def _media(content: Any) -> list[str]:
    """What parts of a content carry that is no text, by its address or data."""
    out = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and not isinstance(part.get("text"), str):
            inner = part.get(str(part.get("type")))
            inner = inner if isinstance(inner, dict) else {"url": inner} if isinstance(inner, str) else part
            out.append(next((str(inner[name]) for name in ("url", "data", "file_id", "file_data") if inner.get(name)), _digest([_text(part)])))
    return out


def _call(call: Json) -> tuple[str, str]:
    part = call.get("function") or call.get("custom") or {}
    arguments = part["input"] if isinstance(part.get("input"), str) else _text(loads(object_text(part.get("arguments"))))
    return str(call.get("id")), _digest([str(part.get("name")), arguments])


def _capped(ours: str, theirs: str) -> bool:
    """Whether ours is theirs cut to our limit."""
    head, marker, _ = ours.partition("\n[... ")
    return bool(marker) and len(theirs) > len(head) and theirs.startswith(head)


def _text(value: Any) -> str:
    try:
        return dumps(_sorted(value)).decode()
    except ValueError:
        return repr(value)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _digest(said: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(said).encode("utf-8", "surrogatepass")).hexdigest()[:20]


_OPENING = key(PLACEHOLDER)
