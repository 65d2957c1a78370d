"""Which messages of a request are new to its session: the journal is the history, an edited prefix forks (CONTRACT 8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_histories import bounded, proper

from gateway.agent.memory.matching import Key, Taken, key, take, take_new
from gateway.chat import Json, dumps, loads


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def said(content: Any, **more: Any) -> Json:
    return {"role": "assistant", "content": content, **more}


def call(ident: str, name: str = "f", arguments: Any = "{}") -> Json:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(ident: str, content: str = "ok") -> Json:
    return {"role": "tool", "tool_call_id": ident, "content": content}


SYSTEM: Json = {"role": "system", "content": "s"}
NEXT = user("and then?")
SESSION = [user("hi"), said("hello", reasoning_content="they greet"), user("how many?"), said("two")]


def test_a_new_session_takes_everything_but_the_system_message() -> None:
    assert take_new([], [SYSTEM, user("hi")]) == Taken((user("hi"),))


def test_a_request_that_does_not_begin_like_the_session_is_appended() -> None:
    assert take_new(SESSION, [SYSTEM, NEXT]) == Taken((NEXT,))
    assert take_new(SESSION, [NEXT, said("x"), user("y")]) == Taken((NEXT, said("x"), user("y")))


def test_of_a_full_history_what_comes_after_the_common_prefix_is_taken() -> None:
    assert take_new(SESSION, [SYSTEM, user("hi"), said("hello"), user("how many?"), said("two"), NEXT]) == Taken((NEXT,))


@pytest.mark.parametrize(
    "back",
    [
        [user([{"type": "text", "text": "hi"}]), said([{"type": "text", "text": "hello"}]), *SESSION[2:]],
        [user("hi"), said("hello", refusal=None, tool_calls=None, audio=None, annotations=[]), *SESSION[2:]],
        [{**user("hi"), "id": "msg_1", "createdAt": 5}, *SESSION[1:]],
        [user("hi"), said("hello\n"), user("how many? "), said("two")],
        [user("hi"), said("<think>they greet</think>\n\nhello"), *SESSION[2:]],
        [user("hi"), said('<details type="reasoning" done="true"><summary>Thought</summary>they greet</details>\nhello'), *SESSION[2:]],
        [user("hi"), said(""), said(None), *SESSION[1:]],
        [user("hi"), SYSTEM, *SESSION[1:]],
    ],
)
def test_what_clients_change_on_the_way_back_is_the_same_history(back: list[Json]) -> None:
    assert take_new(SESSION, [*back, NEXT]) == Taken((NEXT,))


def test_line_ends_and_composed_characters_do_not_matter() -> None:
    assert take_new([user("caf\u00e9\nbar"), said("ok")], [user("cafe\u0301\r\nbar"), said("ok"), NEXT]) == Taken((NEXT,))


@pytest.mark.parametrize(
    ("back", "at"),
    [
        ([user("hi"), said("hello!"), *SESSION[2:]], 1),
        ([user("hi"), said("hello"), user("how  many?"), said("two")], 2),
        ([user("hi"), user("how many?"), said("two")], 1),
        ([user("hi"), said("hello"), user([{"type": "text", "text": "how many?"}, {"type": "image_url", "image_url": {"url": "https://x/1"}}])], 2),
        ([user("hi"), said("hello"), {**user("how many?"), "name": "bob"}], 2),
    ],
)
def test_an_edited_prefix_forks_where_it_was_edited(back: list[Json], at: int) -> None:
    assert take_new(SESSION, [*back, NEXT]) == Taken((*back[at:], NEXT), at)


def test_pictures_are_compared_by_what_they_show() -> None:
    def shown(url: str, **more: Any) -> Json:
        return user([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url, **more}}])

    session = [shown("data:image/png;base64,AA"), said("a cat")]
    assert take_new(session, [shown("data:image/png;base64,AA", detail="auto"), said("a cat"), NEXT]) == Taken((NEXT,))
    assert take_new(session, [shown("data:image/png;base64,BB"), said("a cat"), NEXT]).new[0] == shown("data:image/png;base64,BB")


def test_asking_again_for_the_last_answer_forks_before_its_question() -> None:
    assert take_new(SESSION, [SYSTEM, *SESSION[:3]]) == Taken((SESSION[2],), 2)
    assert take_new(SESSION, SESSION[:1]) == Taken((SESSION[0],), 0)
    assert take_new(SESSION[:3], SESSION[:3]) == Taken((SESSION[2],), 2)


INNER = [
    user("hi"),
    said(None, tool_calls=[call("srv1"), call("srv2")], reasoning_content="look"),
    result("srv1"),
    result("srv2"),
    said("", reasoning_content="hm"),
    said("found"),
    user("how many?"),
    said("two"),
]


def test_calls_of_the_server_are_no_difference_because_no_client_saw_them() -> None:
    visible = [INNER[0], INNER[5], INNER[6], INNER[7]]
    assert take_new(INNER, [*visible, NEXT]) == Taken((NEXT,))
    assert take_new(INNER, [*visible[:2], user("how few?")]) == Taken((user("how few?"),), 6)
    assert take_new(INNER, [visible[0], said("lost"), NEXT]) == Taken((said("lost"), NEXT), 1)


def test_a_run_that_ended_before_its_answer_is_gone_on_from() -> None:
    assert take_new(INNER[:4], [INNER[0], NEXT]) == Taken((NEXT,))
    assert take_new(INNER[:4], [INNER[0]]) == Taken((INNER[0],), 0)


def test_calls_of_the_client_are_compared_by_id_name_and_arguments() -> None:
    """CONTRACT 8: client tools beside server tools"""
    session = [user("hi"), said("let me see", tool_calls=[call("srv"), call("cli", "g", '{"a":1,"b":2}')]), result("srv"), result("cli", "7"), said("seven")]
    mine = said(None, tool_calls=[call("cli", "g", '{"b": 2, "a": 1}')])
    assert take_new(session, [user("hi"), mine, result("cli", "7"), said("seven"), NEXT]) == Taken((NEXT,))
    other = said(None, tool_calls=[call("cli", "g", '{"a": 3}')])
    assert take_new(session, [user("hi"), other, result("cli", "7"), said("seven"), NEXT]).forked_at == 1
    silent = said("let me see")
    assert take_new(session, [user("hi"), silent, user("go on"), said("seven"), NEXT]).forked_at == 1, "its call was taken out"
    assert take_new(session, [user("hi"), mine, result("cli", "8"), said("seven"), NEXT]).forked_at == 2


def test_a_result_that_was_cut_to_our_limit_is_the_same_result() -> None:
    """X7"""
    long = "\n".join(map(str, range(10_000)))
    session = [user("hi"), said(None, tool_calls=[call("c")]), result("c", long[:300] + "\n[... 40,000 characters cut ...]\n" + long[-100:]), said("done")]
    assert take_new(session, [user("hi"), session[1], result("c", long), said("done"), NEXT]) == Taken((NEXT,))


def test_approvals_are_passed_over() -> None:
    """CONTRACT 8: an approval is an ordinary call for the client and no part of what the model saw"""
    asked = said(None, tool_calls=[call("a1", "approval_request", '{"tool": "fetch"}')])
    history = [INNER[0], asked, result("a1", '{"approved": true}'), INNER[5], NEXT]
    assert take_new(INNER[:6], history) == Taken((NEXT,))


def test_an_answer_with_its_plan_before_it_is_the_answer() -> None:
    """P11, P18"""
    session = [user("hi"), said("[Plan]\nlook, then say\n\nfound")]
    assert take_new(session, [user("hi"), said("found"), NEXT]) == Taken((NEXT,))
    assert take_new(session, [user("hi"), said("lost"), NEXT]).forked_at == 1


def test_drafts_of_the_agent_are_passed_over() -> None:
    """H33: a reflecting agent keeps drafts and feedback, the client saw the last answer"""
    kept = [user("q"), said("draft"), user("shorter"), said("final")]
    keys = [key(message, own=place > 0) for place, message in enumerate(kept)]
    assert take(keys, [user("q"), said("final"), NEXT]) == Taken((NEXT,))


def test_a_greeting_with_which_a_session_began_is_a_beginning() -> None:
    """P11"""
    session = [said("Welcome"), user("hi"), said("hello")]
    assert take_new(session, [*session, NEXT]) == Taken((NEXT,))
    assert take_new([user("(The conversation goes on.)"), *session], [*session, NEXT]) == Taken((NEXT,))


@bounded
@given(proper(), st.data())
def test_any_history_sent_back_takes_only_what_is_new(session: list[Json], data: st.DataObject) -> None:
    back = []
    for message in session:
        message = {name: value for name, value in message.items() if name != "reasoning_content" or data.draw(st.booleans())}
        if isinstance(message.get("content"), str) and message["role"] != "tool" and data.draw(st.booleans()):
            message["content"] = [{"type": "text", "text": message["content"]}]
        back.append(message)
    inner = data.draw(st.booleans())
    visible = [message for message in back if not (inner and (message["role"] == "tool" or message.get("tool_calls")))]
    new = {"role": "user", "content": "something quite new that nobody said before"}
    assert take_new(session, [*visible, new]) == Taken((new,))
    stored = [Key.from_json(loads(dumps(key(message).to_json()))) for message in session]
    assert take(stored, [*visible, new]) == Taken((new,)), "from what is kept of messages that are gone, too"


@bounded
@given(proper(turns=4), st.data())
def test_any_edit_of_what_the_user_said_forks_there(session: list[Json], data: st.DataObject) -> None:
    users = [place for place, message in enumerate(session) if message["role"] == "user"]
    place = data.draw(st.sampled_from(users))
    edited = [*session[:place], {"role": "user", "content": session[place]["content"] + " (edited)"}]
    taken = take_new(session, edited)
    assert taken.new[-1] == edited[-1]
    if place == users[0]:
        assert taken.forked_at is None, "it does not begin like the session: it is appended"
    else:
        assert taken == Taken((edited[-1],), place)
