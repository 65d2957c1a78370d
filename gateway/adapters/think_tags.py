"""Thoughts that a server left in the text, between tags, become reasoning.

For adapters that opt in (`think_tags: on | start_inside`): a coding model may print
`<think>` and mean it. Any cutting of the text into pieces gives the same result: the
longest end of a piece that may be the start of a tag waits for the next one.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gateway.chat import Json

_TAGS = {
    **{f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning", "mm:think")},
    "◁think▷": "◁/think▷",  # Kimi's tags where no parser is set
}
_LONGEST = max(map(len, _TAGS.values()))


class Wanted(NamedTuple):
    """The tags that may come next."""

    tags: tuple[str, ...]
    pattern: re.Pattern[str]


def _wanted(*tags: str) -> Wanted:
    return Wanted(tags, re.compile("|".join(map(re.escape, tags))))


_OPEN = _wanted(*_TAGS)
_CLOSE = {tag: _wanted(close) for tag, close in _TAGS.items()}
_EITHER = _wanted(*_TAGS, *_TAGS.values())  # an answer that begins inside may still hold the opening tag


class Splitter:
    """One text in pieces -> (reasoning, content) of each piece."""

    __slots__ = ("_held", "_inside", "_wanted")

    def __init__(self, *, start_inside: bool = False) -> None:
        self._inside = start_inside
        self._wanted = _EITHER if start_inside else _OPEN
        self._held = ""

    def feed(self, piece: str) -> tuple[str, str]:
        """What the piece, and what was held back before it, adds to reasoning and to content."""
        if not self._inside and not self._held and "<" not in piece and "◁" not in piece:
            return "", piece
        text, out, at = self._held + piece, ["", ""], 0
        while found := self._wanted.pattern.search(text, at):
            self._add(out, text[at : found.start()])
            at = found.end()
            self._inside = found[0] in _TAGS
            self._wanted = _CLOSE[found[0]] if self._inside else _OPEN
        rest = text[at:]
        keep = self._start_of_tag(rest)
        self._held = rest[keep:]
        self._add(out, rest[:keep])
        return out[0], out[1]

    def finish(self) -> tuple[str, str]:
        """What was held back: no tag came of it."""
        out = ["", ""]
        self._add(out, self._held)
        self._held = ""
        return out[0], out[1]

    def _add(self, out: list[str], text: str) -> None:
        out[0 if self._inside else 1] += text

    def _start_of_tag(self, text: str) -> int:
        """Where an unfinished tag begins; the end of the text if there is none. A tag holds its first character only once."""
        at = max(text.rfind("<", -_LONGEST), text.rfind("◁", -_LONGEST))
        if at < 0:
            return len(text)
        end = text[at:]
        return at if any(tag.startswith(end) for tag in self._wanted.tags) else len(text)


class ThinkTags:
    """One stream of chat chunks; each choice is split for itself.

    Where the server sends the thoughts in a reasoning field as well (MiniMax did, 2026),
    the tagged copy is left out.
    """

    def __init__(self, mode: str) -> None:
        self._start_inside = mode == "start_inside"
        self._choices: dict[int, Splitter] = {}
        self._native: set[int] = set()
        self._last: Json = {}

    def feed(self, chunk: Json) -> Json:
        """The chunk with its text split: the same object where nothing had to change, a new one else."""
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return chunk
        self._last = chunk
        split = [self._choice(choice) if isinstance(choice, dict) else choice for choice in choices]
        return chunk if all(new is old for new, old in zip(split, choices, strict=True)) else {**chunk, "choices": split}

    def finish(self) -> list[Json]:
        """A chunk with what the choices that never finished still hold, if they do."""
        choices = []
        for index, splitter in self._choices.items():
            delta = self._delta(index, {}, *splitter.finish())
            if delta:
                choices.append({"index": index, "delta": delta, "finish_reason": None})
        top = {key: value for key, value in self._last.items() if key != "usage"}
        return [{**top, "choices": choices}] if choices else []

    def _choice(self, choice: Json) -> Json:
        delta = choice.get("delta")
        index = choice.get("index") or 0
        splitter = self._choices.get(index)
        if splitter is None:
            splitter = self._choices[index] = Splitter(start_inside=self._start_inside)
        delta = delta if isinstance(delta, dict) else {}
        if delta.get("reasoning_content") or delta.get("reasoning"):
            self._native.add(index)
        content = delta.get("content")
        reasoning = text = ""
        if isinstance(content, str) and content:
            reasoning, text = splitter.feed(content)
        if choice.get("finish_reason") is not None:
            more, end = splitter.finish()
            reasoning, text = reasoning + more, text + end
        if not reasoning and text == (content or ""):
            return choice
        return {**choice, "delta": self._delta(index, delta, reasoning, text)}

    def _delta(self, index: int, delta: Json, reasoning: str, text: str) -> Json:
        out = dict(delta)
        if text or "content" in delta:
            out["content"] = text
        if reasoning and index not in self._native:
            out["reasoning_content"] = reasoning
        return out


def split_completion(body: Json, mode: str) -> bool:
    """Split the texts of a plain chat answer in place, choice by choice; False if none held a thought."""
    changed = False
    for choice in body.get("choices") or ():
        message = choice.get("message") if isinstance(choice, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if message and isinstance(content, str):
            changed |= _split_message(message, content, mode)
    return changed


def _split_message(message: Json, content: str, mode: str) -> bool:
    splitter = Splitter(start_inside=mode == "start_inside")
    reasoning, text = (one + two for one, two in zip(splitter.feed(content), splitter.finish(), strict=True))
    if not reasoning and text == content:
        return False
    message["content"] = text
    if reasoning and not _has_reasoning(message):
        message["reasoning_content"] = reasoning
    return True


def _has_reasoning(message: Json) -> bool:
    fields: list[Any] = [message.get("reasoning_content"), message.get("reasoning")]
    return any(isinstance(text, str) and text for text in fields)
