"""`todo_write`: what has to be gathered and done, as one list that lives in the session."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from gateway.agent.tools import lenient
from gateway.agent.tools.tool import Context, Observation, Tool
from gateway.chat import Json, loads

MAX_TODOS = 100
MAX_LENGTH = 500
"""characters (code points) of one entry"""

Status = Literal["pending", "in_progress", "completed"]
STATUSES: tuple[Status, ...] = ("pending", "in_progress", "completed")
NONE = "The todo list is empty."

_LISTS = {lenient.bare(name): "todos" for name in ("todos", "todo", "todo_list", "items", "list", "tasks", "steps", "plan")}
_FIELDS: dict[str, str] = {name: "content" for name in ("content", "description", "title", "task", "text", "step", "name", "todo")}
_FIELDS |= {name: "status" for name in ("status", "state", "done", "completed")}
_WORDS: dict[str, Status] = {
    **{lenient.bare(word): "pending" for word in ("pending", "todo", "open", "new", "not_started", "waiting", "planned", "false")},
    **{lenient.bare(word): "in_progress" for word in ("in_progress", "doing", "active", "started", "current", "working", "running")},
    **{lenient.bare(word): "completed" for word in ("completed", "complete", "done", "finished", "closed", "true")},
}
_LINE = re.compile(r"\s*(?:[-*+]|\d+[.)])?\s*(?:\[(?P<mark>[ xX>~-]?)\]\s*)?(?P<content>\S.*?)\s*")
_MARKS: dict[str, Status] = {"x": "completed", ">": "in_progress", "~": "in_progress", "-": "in_progress"}
_SHOWN = {"pending": " ", "in_progress": ">", "completed": "x"}


class Todo(msgspec.Struct, frozen=True):
    content: str
    status: Status = "pending"


class Todos:
    """A list of things to do. At most one is in progress.

    What one run left unfinished a later one cannot lose: the first `write` of another run
    keeps the unfinished entries that it does not mention, `start` resumes the list that is there.
    """

    def __init__(self, todos: Iterable[Todo] = (), run: str = "") -> None:
        self.todos = tuple(todos)
        self.run = run

    @classmethod
    def from_json(cls, value: Json | None) -> Todos:
        """What `to_json` gave; None is an empty list. ValueError if it is something else."""
        try:
            return cls(msgspec.convert(value["todos"], list[Todo]), str(value.get("run", ""))) if value is not None else cls()
        except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no todo list: {error}") from None

    def to_json(self) -> Json:
        """The state as plain JSON values; `todos` is what people are shown."""
        return {"todos": msgspec.to_builtins(list(self.todos)), "run": self.run}

    @property
    def unfinished(self) -> tuple[Todo, ...]:
        return tuple(one for one in self.todos if one.status != "completed")

    def write(self, arguments: object, run: str = "") -> tuple[Todo, ...]:
        """Replace the whole list as the model wrote it; the entries that were kept because an earlier run left them.

        Without a list nothing changes. ValueError, for the model, where the new list is not accepted; the old one stays.
        """
        given = _list(arguments)
        if given is None:
            return ()
        todos = [_todo(number, one) for number, one in enumerate(given, 1)]
        _check(todos)
        kept: tuple[Todo, ...] = ()
        if run != self.run:
            mentioned = {_same(one.content) for one in todos}
            kept = tuple(one for one in self.unfinished if _same(one.content) not in mentioned)
            if any(one.status == "in_progress" for one in todos):
                kept = tuple(Todo(one.content) for one in kept)
        if len(todos) + len(kept) > MAX_TODOS:
            raise ValueError(f"a todo list holds at most {MAX_TODOS} entries, with those that are still unfinished this would have {len(todos) + len(kept)}")
        self.todos, self.run = (*kept, *todos), run
        return kept

    def start(self, steps: Iterable[str], run: str = "") -> None:
        """Make the steps of a plan the list. A list with unfinished entries is resumed: it only gets the steps that it lacks."""
        before = self.todos if self.unfinished else ()
        known = {_same(one.content) for one in before}
        fresh = [Todo(step.strip()[:MAX_LENGTH]) for step in steps if step.strip() and _same(step.strip()[:MAX_LENGTH]) not in known]
        self.todos, self.run = (*before, *fresh)[:MAX_TODOS], run

    def tick(self, content: str, *, next_up: str | None = None) -> bool:
        """Mark an entry completed, and `next_up` as the one in progress; whether there was something to mark."""
        done, next_one = _same(content[:MAX_LENGTH]), _same(next_up[:MAX_LENGTH]) if next_up is not None else None
        before = self.todos
        out: list[Todo] = []
        for one in before:
            status = one.status
            if _same(one.content) == done:
                status = "completed"
            elif next_one is not None and status != "completed":
                status = "in_progress" if _same(one.content) == next_one else "pending"
            out.append(Todo(one.content, status))
        self.todos = tuple(_one_at_a_time(out))
        return self.todos != before

    def shown(self) -> str:
        """The list as text, one line per entry: `[x]` completed, `[>]` in progress, `[ ]` pending."""
        if not self.todos:
            return NONE
        done = len(self.todos) - len(self.unfinished)
        lines = [f"[{_SHOWN[one.status]}] {number}. {one.content}" for number, one in enumerate(self.todos, 1)]
        return "\n".join([f"Todo list, {done} of {len(self.todos)} completed:", *lines])


def _one_at_a_time(todos: Iterable[Todo]) -> Iterable[Todo]:
    """Two entries with the same text may not both be in progress."""
    busy = False
    for one in todos:
        yield Todo(one.content) if busy and one.status == "in_progress" else one
        busy = busy or one.status == "in_progress"


def _same(content: str) -> str:
    """What two spellings of one entry have in common."""
    return " ".join(content.split()).casefold()


def _list(arguments: object) -> list[Any] | None:
    """The list in the arguments: a list, a text with one entry a line, or JSON of either. None: there is none."""
    if isinstance(arguments, list):
        return arguments
    given = lenient.named(lenient.arguments(arguments), _LISTS)
    value = given.get("todos")
    if isinstance(value, str):
        value = _read(value)
    if isinstance(value, Mapping):
        value = [value]
    if value is not None and not isinstance(value, list):
        raise ValueError("todos must be a list")
    return value


def _read(text: str) -> Any:
    if text.lstrip().startswith(("[{", '["', "[]", "{")):
        try:
            return loads(text)
        except ValueError:
            raise ValueError("todos is not valid JSON") from None
    return [line for line in text.splitlines() if line.strip()]


def _todo(number: int, given: Any) -> Todo:
    place = f"todos[{number}]"
    if isinstance(given, str):
        match = _LINE.fullmatch(given)
        if match is None:
            raise ValueError(f"{place}.content must be a non-empty string")
        return Todo(lenient.text(f"{place}.content", match["content"], MAX_LENGTH), _MARKS.get((match["mark"] or "").lower(), "pending"))
    if not isinstance(given, Mapping):
        raise ValueError(f"{place} must be an object with content and status")
    fields = lenient.named(dict(given), _FIELDS)
    return Todo(lenient.text(f"{place}.content", fields.get("content"), MAX_LENGTH).strip(), _status(place, fields.get("status")))


def _status(place: str, value: Any) -> Status:
    if lenient.absent(value):
        return "pending"
    found = _WORDS.get(lenient.bare(str(value)))
    if found is None:
        raise ValueError(f"{place}.status must be {', '.join(STATUSES[:-1])} or {STATUSES[-1]}")
    return found


def _check(todos: list[Todo]) -> None:
    busy = [one.content for one in todos if one.status == "in_progress"]
    if len(busy) > 1:
        raise ValueError(f"at most one entry may be in_progress, here are {len(busy)}: finish one before the next begins")
    if len(todos) > MAX_TODOS:
        raise ValueError(f"a todo list holds at most {MAX_TODOS} entries, this one has {len(todos)}")


DESCRIPTION = """\
Keep the list of what has to be gathered and done for a task of several steps, where the user sees it.

Each call gives the whole list: it takes the place of the one before. Called without todos it returns the list as it is.
- status is pending, in_progress or completed; at most one entry is in_progress.
- Mark an entry completed as soon as it is done, and only then; set the next one in_progress in the same call.
- A list that an earlier request of this session left unfinished is gone on with: keep its entries.

This list tracks what to gather and do. Analysis, conclusions and doubts do not belong here but into thinking: \
the list collects, thinking synthesises. A task of one or two simple steps needs no list."""

PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "description": "The whole list, in the order of the work",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "description": "What is to be done, in the user's words"},
                    "status": {"type": "string", "enum": list(STATUSES)},
                },
                "required": ["content", "status"],
            },
        }
    },
    "required": ["todos"],
}


class TodoWrite(Tool):
    """The todo list. Its state is the session's: `Todos.from_json(context.session["todo_write"])`; each change is a `todo.updated` event."""

    name = "todo_write"
    description = DESCRIPTION
    aliases: ClassVar[tuple[str, ...]] = ("todowrite", "todo")
    lenient: ClassVar[bool] = True
    pure: ClassVar[bool] = True
    annotations: ClassVar[Json] = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def parameters(self) -> Json:
        return PARAMETERS

    async def call(self, arguments: Json, context: Context) -> Observation:
        """Take the list. What is wrong with it becomes an observation that says so, and the list stays as it was."""
        with self._lock:  # no await in here: calls of one session, from whatever thread, are taken one after the other
            todos = Todos.from_json(context.session.get(self.name))
            before = todos.todos
            try:
                kept = todos.write(arguments, context.run_id)
            except ValueError as error:
                return Observation(f"The todo list was not changed: {error}.\n{todos.shown()}", ok=False)
            context.session[self.name] = todos.to_json()
        if todos.todos != before:
            await context.emit("todo.updated", {"todos": todos.to_json()["todos"]})
        note = f"\n{len(kept)} unfinished from before this request, kept at the top." if kept else ""
        return Observation(todos.shown() + note)
