"""The todo list: one list per session, replaced as a whole, never lost by a new run (T29, P26, X15)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.tools import Context, Observation
from gateway.agent.tools.thinking import SequentialThinking
from gateway.agent.tools.todo import MAX_TODOS, Todos, TodoWrite

Session = dict[str, Any]


def pairs(todos: Todos) -> list[tuple[str, str]]:
    return [(one.content, one.status) for one in todos.todos]


def written(given: Any, run: str = "", todos: Todos | None = None) -> list[tuple[str, str]]:
    todos = todos or Todos()
    todos.write({"todos": given}, run)
    return pairs(todos)


def entry(content: str, status: str = "pending") -> dict[str, str]:
    return {"content": content, "status": status}


async def call(session: Session, arguments: Any, run: str = "r1", events: list[Any] | None = None) -> Observation:
    async def emit(type: str, data: dict[str, Any]) -> None:
        if events is not None:
            events.append((type, data))

    return await TodoWrite().call(arguments, Context(run_id=run, session=session, emit=emit))


def kept(session: Session) -> list[tuple[str, str]]:
    return pairs(Todos.from_json(session["todo_write"]))


def test_it_is_advertised_under_one_name_with_three_statuses() -> None:
    """T29, X15"""
    schema = TodoWrite().to_openai_schema()["function"]
    assert schema["name"] == "todo_write"
    assert schema["parameters"]["required"] == ["todos"]
    assert schema["parameters"]["properties"]["todos"]["items"]["properties"]["status"]["enum"] == ["pending", "in_progress", "completed"]


def test_the_descriptions_split_the_roles_of_todo_and_thinking() -> None:
    """T29: todo tracks what to gather, thinking synthesises"""
    for tool in (TodoWrite(), SequentialThinking()):
        assert "gather" in tool.description
        assert "synthesises" in tool.description


async def test_todo_and_thinking_work_side_by_side_in_one_session() -> None:
    """T29"""
    session: Session = {}
    await call(session, {"todos": [entry("gather")]})
    await SequentialThinking().call({"thought": "a"}, Context(session=session))
    assert sorted(session) == ["sequential_thinking", "todo_write"]
    assert kept(session) == [("gather", "pending")]


def test_a_call_replaces_the_whole_list() -> None:
    """X15"""
    todos = Todos()
    written([entry("a", "in_progress"), entry("b")], "r", todos)
    assert written([entry("c")], "r", todos) == [("c", "pending")]
    assert written([], "r", todos) == []


async def test_two_entries_in_progress_are_refused_and_the_list_stays() -> None:
    """X15: at most one"""
    session: Session = {}
    events: list[Any] = []
    await call(session, {"todos": [entry("a", "in_progress")]})
    observation = await call(session, {"todos": [entry("b", "in_progress"), entry("c", "in_progress")]}, events=events)
    assert not observation.ok
    assert "at most one entry may be in_progress" in observation.text
    assert "[>] 1. a" in observation.text
    assert kept(session) == [("a", "in_progress")]
    assert events == []


async def test_each_change_is_an_event_with_the_whole_list() -> None:
    """CONTRACT 8: todo.updated"""
    events: list[Any] = []
    session: Session = {}
    for _ in range(2):  # the second changes nothing
        observation = await call(session, {"todos": [entry("a", "completed"), entry("b")]}, events=events)
    assert events == [("todo.updated", {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]})]
    assert observation.ok
    assert observation.text == "Todo list, 1 of 2 completed:\n[x] 1. a\n[ ] 2. b"


async def test_a_call_without_a_list_shows_it() -> None:
    session: Session = {}
    assert (await call(session, {})).text == "The todo list is empty."
    await call(session, {"todos": [entry("a")]})
    events: list[Any] = []
    assert "[ ] 1. a" in (await call(session, {"todos": None}, "r2", events)).text
    assert events == []
    assert kept(session) == [("a", "pending")]


async def test_a_new_run_cannot_lose_what_an_earlier_one_left_unfinished() -> None:
    """P26: resumed, never overwritten"""
    session: Session = {}
    await call(session, {"todos": [entry("read", "completed"), entry("write", "in_progress"), entry("check")]}, "r1")
    observation = await call(session, {"todos": [entry("something else", "in_progress"), entry("  Check ", "completed")]}, "r2")
    assert kept(session) == [("write", "pending"), ("something else", "in_progress"), ("Check", "completed")]
    assert "1 unfinished from before" in observation.text
    await call(session, {"todos": [entry("something else", "completed")]}, "r2")
    assert kept(session) == [("something else", "completed")], "once it has seen the list it may change it"


async def test_a_refused_first_list_does_not_open_the_way() -> None:
    """P26"""
    session: Session = {}
    await call(session, {"todos": [entry("old")]}, "r1")
    await call(session, {"todos": "[{"}, "r2")
    await call(session, {"todos": [entry("new")]}, "r2")
    assert kept(session) == [("old", "pending"), ("new", "pending")]


async def test_a_list_survives_the_store() -> None:
    """P26: over a restart"""
    session: Session = {}
    await call(session, {"todos": [entry("a", "in_progress")]})
    again = json.loads(json.dumps(session))
    assert again == session
    assert kept(again) == [("a", "in_progress")]


async def test_the_same_calls_rebuild_the_same_state() -> None:
    """a run that is gone through again makes its calls again"""
    calls = [{"todos": [entry("a")]}, {"todos": 3}, {"todos": [entry("b", "in_progress")]}, {}]
    states = []
    for _ in range(2):
        session: Session = {"todo_write": {"todos": [entry("left")], "run": "r0"}}
        texts = [(await call(session, one, "r1")).text for one in calls]
        states.append((session, texts))
    assert TodoWrite.pure
    assert states[0] == states[1]


def test_the_steps_of_a_plan_become_the_list_and_are_ticked_one_by_one() -> None:
    """P26: one tick per finished step"""
    todos = Todos()
    todos.start(["find", "read ", "", "tell"], "r1")
    assert todos.tick("find", next_up="read")
    assert pairs(todos) == [("find", "completed"), ("read", "in_progress"), ("tell", "pending")]
    assert todos.tick("read", next_up="tell")
    assert todos.tick("tell")
    assert not todos.tick("tell")
    assert not todos.tick("unknown")
    assert todos.unfinished == ()


def test_a_plan_resumes_an_unfinished_list_and_follows_a_finished_one() -> None:
    """P26"""
    todos = Todos()
    todos.start(["find", "read"], "r1")
    todos.tick("find")
    todos.start(["Find", "read", "tell"], "r2")
    assert pairs(todos) == [("find", "completed"), ("read", "pending"), ("tell", "pending")]
    todos.tick("read")
    todos.tick("tell")
    todos.start(["a new task"], "r3")
    assert pairs(todos) == [("a new task", "pending")]


def test_two_steps_with_the_same_words_are_never_both_in_progress() -> None:
    """X15"""
    todos = Todos()
    todos.write([entry("wait"), entry("again"), entry("again")])
    todos.tick("wait", next_up="again")
    assert [status for _, status in pairs(todos)] == ["completed", "in_progress", "pending"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}, {"content": "c", "status": "pending"}]},
        {"todos": '[{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}, {"content": "c"}]'},
        '{"todos": [{"content": "a", "status": "done"}, {"content": "b", "status": "doing"}, "c"]}',
        {"steps": [{"id": 1, "description": "a", "status": "Completed"}, {"description": "b", "status": "in-progress"}, {"description": "c", "status": ""}]},
        {"todoList": [{"title": "a", "completed": True}, {"title": "b", "state": "In Progress"}, {"title": "c", "done": False}]},
        {"tasks": "- [x] a\n- [>] b\n\n- [ ] c\n"},
        {"items": ["[x] a", "2. [~] b", "* c"]},
        [{"task": "a", "status": "finished"}, {"task": "b", "status": "active"}, {"task": "c", "status": "todo"}],
    ],
    ids=range(8),
)
async def test_a_list_is_read_however_it_is_written(arguments: Any) -> None:
    """T29, T30"""
    session: Session = {}
    assert (await call(session, arguments)).ok
    assert kept(session) == [("a", "completed"), ("b", "in_progress"), ("c", "pending")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{", "the arguments are not valid JSON"),
        (7, "the arguments must be a JSON object"),
        ({"todos": 7}, "todos must be a list"),
        ({"todos": '[{"content"'}, "todos is not valid JSON"),
        ({"todos": [7]}, "todos[1] must be an object with content and status"),
        ({"todos": [entry("a"), entry("")]}, "todos[2].content must be a non-empty string"),
        ({"todos": [entry("a"), "  "]}, "todos[2].content must be a non-empty string"),
        ({"todos": [entry("a" * 501)]}, "todos[1].content must be at most 500 characters"),
        ({"todos": [entry("a", "cancelled")]}, "todos[1].status must be pending, in_progress or completed"),
        ({"todos": [entry("a")] * (MAX_TODOS + 1)}, f"holds at most {MAX_TODOS} entries"),
    ],
    ids=range(10),
)
async def test_what_is_no_list_is_refused_in_words(arguments: Any, words: str) -> None:
    """T29: an observation, never an exception"""
    session: Session = {}
    observation = await call(session, arguments)
    assert not observation.ok
    assert words in observation.text
    assert session == {}


async def test_what_an_earlier_run_left_counts_for_the_limit() -> None:
    session: Session = {}
    await call(session, {"todos": [entry(f"old {number}") for number in range(MAX_TODOS)]}, "r1")
    observation = await call(session, {"todos": [entry("new")]}, "r2")
    assert not observation.ok
    assert len(kept(session)) == MAX_TODOS


def test_threads_leave_a_list_that_one_of_them_wrote() -> None:
    """T24"""
    tool, session = TodoWrite(), Session()
    start = threading.Barrier(6)

    def work(name: int) -> None:
        start.wait(10)
        for number in range(20):
            asyncio.run(tool.call({"todos": [entry(f"{name}.{number}", "in_progress"), entry(f"{name}")]}, Context(run_id="r", session=session)))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    (first, _), (second, _) = kept(session)
    assert first == f"{second}.19"


@pytest.mark.parametrize("value", [{}, [], "x", {"todos": [{"status": "pending"}]}, {"todos": [{"content": "a", "status": "lost"}]}])
def test_what_is_no_list_in_the_store_is_not_taken_for_one(value: Any) -> None:
    with pytest.raises(ValueError, match="no todo list"):
        Todos.from_json(value)


ENTRIES = st.lists(st.builds(entry, st.sampled_from(["a", "b", "c", "A "]), st.sampled_from(["pending", "in_progress", "completed"])), max_size=4)
WRITES = st.lists(st.tuples(st.sampled_from(["r1", "r2", "r3"]), ENTRIES | st.none() | st.text(max_size=10)), max_size=10)


@given(WRITES)
@settings(max_examples=200, deadline=None)
def test_whatever_runs_write_one_entry_at_most_is_in_progress_and_a_new_run_loses_nothing(writes: list[tuple[str, Any]]) -> None:
    """X15, P26"""
    todos = Todos()
    for run, value in writes:
        before, owner = todos.unfinished, todos.run
        try:
            todos.write({"todos": value}, run)
        except ValueError:
            assert todos.unfinished == before
        assert sum(one.status == "in_progress" for one in todos.todos) <= 1
        if run != owner:
            assert {one.content.casefold() for one in before} <= {one.content.casefold() for one in todos.todos}
