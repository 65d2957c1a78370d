"""`Thought: ... Action: tool[input]` or `Finish[answer]`, as models really write it (H24, H25).

Labels in any case, bold, numbered, in Chinese; `tool[input]`, `tool(input)`, `Action Input:`,
JSON; several lines; nested brackets. What the model writes after `Observation:` it has made
up: it is cut off before anything is read (B123), unless it stands inside the answer itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.agent.written import after_thinking, end_of, fences, value_of
from gateway.chat import dumps


@dataclass(frozen=True, slots=True)
class ReactTurn:
    """One turn. What was not written, or cannot be read, is None.

    action  (tool, input as it was written): the first one; None where there is an answer
    finish  the answer
    text    the turn without anything behind its action or answer: what goes into the history
    """

    thought: str | None
    action: tuple[str, str] | None
    finish: str | None
    text: str


@dataclass(frozen=True, slots=True)
class _Mark:
    """A label: what kind, where it begins, where its text begins."""

    kind: str
    start: int
    end: int


_LABEL = re.compile(
    r"""
    ^[ \t>#*_`•-]*
    (?: (?: (?P<thought>thoughts?|thinking|思考|想法)
          | (?P<input>(?:action|tool)[ _]?input|input|arguments|行动输入|动作输入|输入)
          | (?P<action>action|行动|动作|操作)
          | (?P<observation>observations?|观察结果|观察|观测)
          | (?P<final>final[ _]answer|最终答案|最终回答)
          | (?P<told>finish|完成|结束)
        )
        (?:[ \t]*\#?\d{1,3})?[ \t*_`]*[:：][ \t*_`]*
      | (?P<finish>finish|完成|结束)[ \t*_`]*(?=[\[(（【［])
    )
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_INLINE = re.compile(
    r"(?<=[\s.!?。！？;；,，])(?P<action>action|行动)[ \t*_`]{0,8}[:：][ \t*_`]{0,8}(?=[^\W\d][\w.-]{0,63}[ \t*_`]{0,8}[\[(（【［])", re.IGNORECASE
)
_FINISH = re.compile(r"(?:finish|完成|结束)[ \t*_`]*(?=[\[(（【［])", re.IGNORECASE)
_TOOL = re.compile(r"([^\W\d][\w.-]{0,63})[ \t*_`]{0,8}(?:([\[(（【［])|(?=[\r\n]|\Z))")
_NO_TOOL = frozenset(("none", "n/a", "no", "null", "nothing", "无", "没有"))
_FINISHES = frozenset(("finish", "final", "完成", "结束"))
_LANGUAGE = re.compile(r"\w*[ \t]*\n\s*")
_PAIRS = {"[": "]", "(": ")", "（": "）", "【": "】", "［": "］"}
_EITHER = {open_: re.compile(f"[{re.escape(open_ + close)}]") for open_, close in _PAIRS.items()}
_DECORATION = " \t\r\n*_`"
_BEHIND = re.compile(r"[*_`]{1,3}|\s*(?:`{3,}|~{3,})")
_MOST, _TRIES = 200, 32  # labels, and answers in sentences, that are looked at in one reply
_TOOL_KEYS = ("action", "tool", "tool_name", "name")
_INPUT_KEYS = ("action_input", "input", "arguments", "args", "parameters", "params")


def react(text: str, tools: Collection[str] = ()) -> ReactTurn:
    """Read one reply. `tools`: with them `name[input]` on a line of its own is an action without a label, too."""
    begin = after_thinking(text)
    marks = [_Mark(found.lastgroup or "", found.start(), found.end()) for found in islice(_LABEL.finditer(text, begin), _MOST)]
    turn = _Reading(text, marks, begin)
    turn.walk()
    if turn.action is None and turn.finish is None:
        turn.look_closer(tools)
    action = turn.action if turn.finish is None else None
    end = turn.end if turn.end is not None else turn.cut
    if turn.end is not None:  # the end of what is bold, or of a block
        behind = _BEHIND.match(text, end)
        end = behind.end() if behind else end
    return ReactTurn(turn.thought, action, turn.finish, text[:end].rstrip())


class _Reading:
    def __init__(self, text: str, marks: Sequence[_Mark], begin: int) -> None:
        self.text = text
        self.begin = begin
        self.marks = marks
        self.thought: str | None = None
        self.action: tuple[str, str] | None = None
        self.finish: str | None = None
        self.end: int | None = None
        """where the action or the answer ends"""
        self.cut = len(text)
        """where an invented observation begins"""

    def walk(self) -> None:
        """From label to label. An answer ends it, an observation too; an action only keeps later ones out."""
        for place, mark in enumerate(self.marks):
            if self.finish is None and (self.end is None or mark.start >= self.end):
                if mark.kind == "observation":
                    self.cut = mark.start
                    return
                self._take(place, mark)

    def _take(self, place: int, mark: _Mark) -> None:
        if mark.kind == "finish":
            self._finish(mark.end)
        elif self.action is not None:
            # `Final Answer:` behind an action is written without having seen what it brings; only Finish[...] wins (H25)
            found = _FINISH.match(self.text, mark.end) if mark.kind == "action" else None
            if found is not None:
                self._finish(found.end())
        elif mark.kind in ("final", "told"):
            self._rest(mark)
        elif mark.kind == "action":
            self._act(place, mark)
        elif mark.kind == "thought" and self.thought is None:
            self.thought = self.text[mark.end : self._until(place, "thought", "input")].strip(_DECORATION)

    def look_closer(self, tools: Collection[str]) -> None:
        """No label at the beginning of a line: `... Action: tool[x]` in a sentence, an answer at the very end, a call without a label."""
        found = _INLINE.search(self.text, self.begin, self.cut)
        if found is not None:
            self._call(found.end(), self.cut, None)
            self._thought_until(found.start())
        if self.action is None and self.finish is None:
            for found in islice(_FINISH.finditer(self.text, self.begin, self.cut), _TRIES):
                inner, end = _bracket(self.text, found.end(), self.cut)
                if inner is not None and not self.text[end : self.cut].strip(_DECORATION + ".。"):
                    self.finish, self.end = inner.strip(), end
                    self._thought_until(found.start())
                    return
        if self.action is None and self.finish is None and tools:
            self._known(tools)

    def _known(self, tools: Collection[str]) -> None:
        """`name[input]` of a known tool: on a line of its own, or somewhere behind `Action:`."""
        names = "|".join(re.escape(name) for name in sorted(tools, key=len, reverse=True))
        behind = rf"(?=(?:{names})[ \t*_`]{{0,8}}[\[(（【［])"
        found = re.compile(rf"^[ \t>*_`-]*{behind}", re.MULTILINE).search(self.text, self.begin, self.cut)
        for mark in self.marks:
            if found is None and mark.kind == "action" and mark.start < self.cut:
                found = re.compile(rf"[^\n]{{0,200}}?\b{behind}").match(self.text, mark.end, self.cut)
        if found is not None:
            self._call(found.end(), self.cut, None)
            self._thought_until(found.start())

    def _thought_until(self, place: int) -> None:
        """The thought does not go on into an action that stands on its line."""
        if self.end is None:
            return
        label = next((mark for mark in self.marks if mark.kind == "thought" and mark.end <= place), None)
        if label is not None:
            self.thought = self.text[label.end : place].strip(_DECORATION)

    def _until(self, place: int, *over: str) -> int:
        """Where the next label begins that is none of these."""
        return next((mark.start for mark in self.marks[place + 1 :] if mark.kind not in over), len(self.text))

    # ---- answers ----

    def _finish(self, place: int) -> None:
        """`Finish[...]`, the bracket at `place`."""
        inner, end = _bracket(self.text, place, self._next_label(place))
        if self.text[place] != "[" and (inner is None or self.text[end : self._next_label(end)].strip(_DECORATION + ".。")):
            return  # `Finish (the task) by ...` is a sentence
        if inner is None:
            end = self._next_label(place, "observation")
            inner = _unclosed(self.text[place + 1 : end], _PAIRS[self.text[place]])
        self.finish, self.end = inner.strip(), end

    def _rest(self, mark: _Mark) -> None:
        """`Final Answer: ...` goes on to the end."""
        end = self._next_label(mark.end, "observation")
        given = self.text[mark.end : end].strip()
        found = _FINISH.match(given)
        if found is not None:
            self._finish(mark.end + self.text[mark.end :].index(given) + found.end())
        elif given:
            self.finish, self.end = given.removesuffix("**").strip() if given.count("**") % 2 else given, end

    def _next_label(self, place: int, *kinds: str) -> int:
        return next((mark.start for mark in self.marks if mark.start >= place and (not kinds or mark.kind in kinds)), len(self.text))

    # ---- actions ----

    def _act(self, place: int, mark: _Mark) -> None:
        following = self.marks[place + 1] if place + 1 < len(self.marks) else None
        given = following if following is not None and following.kind == "input" else None
        self._call(mark.end, self._until(place, "input"), given)

    def _call(self, start: int, limit: int, given: _Mark | None) -> None:
        """What is called at `start`; nothing of it goes beyond `limit`, its input may have a label of its own."""
        text = self.text
        while start < limit and text[start] in _DECORATION:
            start += 1
        found = _FINISH.match(text, start)
        if found is not None:
            self._finish(found.end())
            return
        language = _LANGUAGE.match(text, start, limit) if text[:start].endswith("```") else None
        start = language.end() if language is not None else start
        if text.startswith("{", start):
            self._json(start, limit)
            return
        tool = _TOOL.match(text, start, limit)
        if tool is None:
            return
        rest = text[tool.end() : limit].strip(_DECORATION)
        if tool[2]:
            inner, end = _argument(text, tool.start(2), limit)
            if inner is not None:
                self.action, self.end = (tool[1], inner), end
        elif given is not None or rest.startswith(("{", "json\n")):
            self._input(tool[1], given or _Mark("input", tool.end(), tool.end()))
        elif tool[1].casefold() in _FINISHES:
            self.finish, self.end = rest or None, limit if rest else None
        elif not rest and tool[1].casefold() not in _NO_TOOL:
            self.action, self.end = (tool[1], ""), tool.end()

    def _input(self, tool: str, mark: _Mark) -> None:
        """`Action Input:` JSON on however many lines, a fenced block, or text to the next label."""
        start = mark.end
        while start < len(self.text) and self.text[start].isspace():
            start += 1
        before = self.text[mark.start : start].rstrip()
        fenced = self.text.startswith("```", start) or before.endswith("```")
        if fenced:
            fence = start if self.text.startswith("```", start) else self.text.rindex("```", mark.start, start)
            blocks = fences(self.text[fence:])
            if blocks:
                inner = blocks[0][1]
                self._given(tool, inner.strip(), self.text.index(inner, fence) + len(inner))
        elif self.text[start : start + 1] in ("{", "["):
            end = end_of(self.text, start)
            if end is not None:
                self._given(tool, self.text[start:end], end)
        else:
            end = self._next_label(mark.end)
            self._given(tool, self.text[start:end].strip(_DECORATION), end)

    def _given(self, tool: str, given: str, end: int) -> None:
        if tool.casefold() in _FINISHES:
            self.finish = given
        else:
            self.action = (tool, given)
        self.end = end

    def _json(self, start: int, limit: int) -> None:
        """`Action: {"name": ..., "arguments": ...}`, in a fenced block or not."""
        brace = self.text.find("{", start, limit)
        end = end_of(self.text, brace) if brace >= 0 else None
        if end is None:
            return
        try:
            value = value_of(self.text[brace:end])
        except ValueError:
            return
        tool = next((value[key] for key in _TOOL_KEYS if isinstance(value, dict) and isinstance(value.get(key), str)), None)
        if tool is None:
            return
        given = next((value[key] for key in _INPUT_KEYS if key in value), "")
        written = given if isinstance(given, str) else "" if given is None else dumps(given).decode()
        if re.fullmatch(r"finish|final[ _]answer", tool, re.IGNORECASE):
            self.finish = written
        else:
            self.action = (tool, written)
        self.end = end


def _argument(text: str, place: int, limit: int) -> tuple[str | None, int]:
    """The input in the bracket at `place`: JSON as far as it goes, else up to the bracket that matches."""
    start = place + 1
    while start < limit and text[start].isspace():
        start += 1
    if text[start : start + 1] in ("{", "["):
        end = end_of(text, start)
        if end is not None:
            close = re.compile(r"\s*").match(text, end)
            behind = close.end() if close else end
            if text[behind : behind + 1] == _PAIRS[text[place]]:
                return text[start:end], behind + 1
    inner, end = _bracket(text, place, limit)
    return (None, end) if inner is None else (inner.strip(), end)


def _bracket(text: str, place: int, limit: int) -> tuple[str | None, int]:
    """(what is in the bracket at `place`, where it ends). None: it is not closed.

    A bracket more inside than was opened (`Finish[a ] b]`) belongs to the text, if the last one ends the segment.
    """
    open_, close = text[place], _PAIRS[text[place]]
    depth = 0
    for found in _EITHER[open_].finditer(text, place):
        depth += 1 if found[0] == open_ else -1
        if depth == 0:
            at = found.start()
            break
    else:
        return None, len(text)
    rest = text[at + 1 : limit].rstrip(_DECORATION)
    if rest.endswith(close) and rest.count(close) > rest.count(open_):
        at += len(rest)
    return text[place + 1 : at], at + 1


def _unclosed(text: str, close: str) -> str:
    """An answer whose bracket never closes: all of it, without a bracket at its end."""
    text = text.rstrip(_DECORATION)
    return text.removesuffix(close)
