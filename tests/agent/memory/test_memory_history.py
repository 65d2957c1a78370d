"""The history of a session: L1, L2, L3, limits, forks, and what comes back from the store (D12 to D20, H6, X8, B137)."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_histories import bounded, faults, proper

from gateway.agent.memory import history as module
from gateway.agent.memory.compaction import SUMMARY_HEAD, apply, plan_compaction
from gateway.agent.memory.history import RECALL_HEAD, History
from gateway.agent.memory.tokens import Estimator
from gateway.chat import Json, dumps, loads


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def said(content: Any, thought: str | None = None, **more: Any) -> Json:
    return {"role": "assistant", "content": content, **({"reasoning_content": thought} if thought else {}), **more}


def round_(ident: str, thought: str | None = None, output: str = "ok") -> list[Json]:
    call = {"id": ident, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [said(None, thought, tool_calls=[call]), {"role": "tool", "tool_call_id": ident, "content": output}]


def talk(turns: int, limit: int = 100, words: str = "word") -> History:
    history = History(limit=limit)
    for number in range(turns):
        history = history.add([user(f"question {number} {words}")]).add_run(
            [*round_(f"c{number}", f"thought {number}"), said(f"answer {number}", f"why {number}")]
        )
    return history


def stored(history: History) -> History:
    return History.from_json(loads(dumps(history.to_json())), limit=history.limit)


def test_live_turns_go_back_with_their_reasoning() -> None:
    """D12, D6"""
    steps = [*round_("c", "A"), said("done", "B")]
    history = stored(History().add([user("q")]).add_run(steps)).add([user("next")])
    assert history.context("be brief") == [{"role": "system", "content": "be brief"}, user("q"), *steps, user("next")]


def test_no_reasoning_leaves_no_field() -> None:
    """D5"""
    assert "reasoning_content" not in History().add([user("q")]).add_run([said("a")]).context()[1]


def test_the_reasoning_of_the_last_round_is_stored_with_it_and_not_that_of_the_tool_round() -> None:
    """D19"""
    history = History().add([user("q")]).add_run([*round_("c", "A"), said("plain", "B")])
    assert history.turn_reasoning == "B"
    assert [message.get("reasoning_content") for message in history.context()] == [None, "A", None, "B"]
    assert History().add([user("q")]).add_run([*round_("c", "A"), said("plain")]).turn_reasoning == ""
    assert History().turn_reasoning == ""


def test_reasoning_is_kept_in_its_neutral_field_wherever_it_came() -> None:
    """D4, D12"""
    blocks = [{"type": "thinking", "thinking": "B", "signature": "s"}]
    history = History().add([user("q")]).add_run([said("x", reasoning="A"), said("y", thinking_blocks=blocks)])
    assert history.messages[1:] == [said("x", "A"), said("y", "B", thinking_blocks=blocks)]


@bounded
@given(proper(), st.integers(1, 30), st.text(st.characters(exclude_categories=("Cs",)), max_size=20), st.booleans())
def test_a_history_comes_back_from_the_store_as_it_was(messages: list[Json], limit: int, summary: str, told: bool) -> None:
    """D16"""
    history = History(
        limit=limit, summary=summary, todos=[{"task": "x"}], plan="p", thoughts={"history": []}, estimator=Estimator(1.5, 2) if told else Estimator()
    )
    for message in messages:
        history = history.add([message]) if message["role"] == "user" else history.add_run([message])
    assert stored(history) == history
    assert [*history.head, *history.messages] == messages, "nothing is lost between live and cold"


@bounded
@given(proper(), st.integers(1, 30), st.data())
def test_any_context_is_a_valid_history_that_ends_with_the_current_question(messages: list[Json], limit: int, data: st.DataObject) -> None:
    """B137, X10"""
    history = History(limit=limit)
    for message in messages:
        history = history.add([message]) if message["role"] == "user" else history.add_run([message])
    if data.draw(st.booleans()):
        history = history.fork(data.draw(st.integers(0, len(messages))))
    history = history.add([user("and now?")])
    context = history.context("You are.")
    assert faults(context) == []
    assert context[0]["content"].startswith("You are.")
    assert context[-1]["content"].endswith("and now?")


def test_no_more_than_the_limit_stays_live_and_a_call_is_never_without_its_result() -> None:
    """H6 (its source never enforced it), B137"""
    before = [user("first"), *round_("c1"), said("done")]
    history = History(limit=3).add(before[:1]).add_run(before[1:]).add([user("next")])
    context = history.context("sys", recall=0)
    assert context == [{"role": "system", "content": "sys"}, user("next")]
    assert len(talk(200).live) <= 100
    assert len(talk(200).messages) == 800, "the others are cold, not lost"


def test_system_messages_of_a_client_stay_whatever_the_limit_is() -> None:
    """B137"""
    system = {"role": "system", "content": "client"}
    history = stored(History(limit=2).add([system, user("a"), said("b"), user("c"), said("d"), user("e")]))
    assert history.context("agent", recall=0) == [{"role": "system", "content": "agent\n\nclient"}, user("e")]
    assert history.context(recall=0) == [system, user("e")]
    assert history.take([system, *history.messages, user("new")]).new == (user("new"),)


def test_the_default_limit_is_100_messages() -> None:
    """H6"""
    history = talk(25)
    assert len(history.live) == 100
    assert history.cold == ()
    assert len(history.add([user("one more")]).live) == 97


def test_a_turn_of_very_many_calls_leaves_its_question_and_its_end_live() -> None:
    """H6"""
    steps = [message for number in range(100) for message in round_(f"c{number}", "t")]
    history = History().add([user("the question")]).add_run([*steps, said("the answer")]).add([user("next")])
    live = [entry.message for entry in history.live]
    assert live[0] == user("the question")
    assert live[-2:] == [said("the answer"), user("next")]
    assert 30 < len(live) <= 51
    assert faults(history.context()) == []
    assert history.messages == [user("the question"), *steps, said("the answer"), user("next")]


def test_what_left_the_live_context_comes_back_when_it_has_to_do_with_the_question() -> None:
    """D13, D14"""
    history = History(limit=4).add([user("remember the garden")]).add_run([said("yes", "the key lies under the blue pot")])
    for number in range(4):
        history = history.add([user(f"sum {number}")]).add_run([said(f"{number}")])
    asked = stored(history).add([user("under which pot lies the key?")]).context("sys")
    assert asked[-1]["content"].startswith(RECALL_HEAD)
    assert "reasoning: the key lies under the blue pot" in asked[-1]["content"]
    assert asked[-1]["content"].endswith("under which pot lies the key?")
    assert RECALL_HEAD not in str(history.add([user("sum 9")]).context("sys", recall=0))
    assert RECALL_HEAD not in str(history.add([user("what about chess?")]).context("sys")), "only what is useful"


def test_what_is_recalled_leaves_everything_before_the_question_as_it_was() -> None:
    """X8: the prefix that providers cache"""
    history = talk(30, limit=20)
    plain, recalled = history.add([user("x")]).context("sys"), history.add([user("question 3?")]).context("sys")
    assert RECALL_HEAD in recalled[-1]["content"]
    assert recalled[:-1] == plain[:-1]


def test_a_recall_has_a_twentieth_of_the_window_at_most() -> None:
    history = History(limit=2).add([user("heron")]).add_run([said("heron " * 5_000)]).add([user("x")]).add_run([said("y")]).add([user("heron?")])
    assert len(history.context(window=8_000)[-1]["content"]) < 400 * 4 + 200


def test_compacted_turns_become_cold_and_the_summary_stays_word_for_word() -> None:
    """X8, D14"""
    history = talk(20, words="x" * 400).add([user("now?")])
    messages = history.context("sys")
    plan = plan_compaction(messages, 4_000)
    assert plan is not None
    compacted = stored(history.compacted(" much was asked ", plan.kept))
    assert compacted.context("sys", recall=0) == apply(messages, plan, "much was asked")
    assert compacted.messages == history.messages
    later = compacted.add_run([said("fine")]).add([user("next")]).context("sys", recall=0)
    assert later[: plan.kept + 1] == compacted.context("sys", recall=0), "the same prefix until the next compaction"
    assert later[1]["content"].startswith(f"{SUMMARY_HEAD}\nmuch was asked")


def test_a_summary_that_is_empty_or_fits_nothing_changes_nothing() -> None:
    history = talk(5)
    assert history.compacted("  ", 8) == history
    assert history.compacted("s", 0) == history


def test_a_request_with_its_whole_history_adds_one_message_even_to_a_long_session() -> None:
    """CONTRACT 8"""
    history = stored(talk(60, limit=10))
    back = [message for number in range(60) for message in (user(f"question {number} word"), said(f"answer {number}"))]
    taken = history.take([{"role": "system", "content": "s"}, *back, user("new")])
    assert (taken.new, taken.forked_at) == ((user("new"),), None)


def test_an_edited_history_forks_back_into_cold_turns() -> None:
    """CONTRACT 8"""
    history = stored(talk(60, limit=10))
    taken = history.take([user("question 0 word"), said("answer 0"), user("question 1 word"), said("answer 1"), user("other")])
    assert (taken.new, taken.forked_at) == ((user("other"),), 8)
    forked = history.fork(8).add(taken.new)
    assert forked.messages == [*talk(2).messages, user("other")]
    assert forked.context()[-1] == user("other")
    assert forked.context()[:-1] == talk(2).messages, "they are live again"


def test_a_fork_forgets_a_summary_that_tells_of_what_did_not_happen() -> None:
    """CONTRACT 8"""
    history = talk(10).compacted("all of it", 8)
    assert history.summary == "all of it"
    assert history.fork(36).summary == "all of it"
    assert history.fork(4).summary == ""


def test_cold_turns_are_bounded_and_a_client_that_still_has_them_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 8"""
    monkeypatch.setattr(module, "COLD", 2_000)
    history = stored(talk(100, limit=10))
    assert sum(len(block.text) for block in history.cold) <= 2_000
    assert len(history) == 400
    back = [message for number in range(100) for message in (user(f"question {number} word"), said(f"answer {number}"))]
    assert history.take([*back, user("new")]).new == (user("new"),)
    taken = history.take([*back[:4], user("edited")])
    assert taken.forked_at == 8
    assert history.fork(0).add(back[:4]).messages == back[:4]


def test_a_cold_output_keeps_head_and_tail_and_a_client_that_has_the_whole_is_understood() -> None:
    """X7, CONTRACT 8: the result of a client's own tool"""
    long = "\n".join(map(str, range(2_000)))
    history = stored(History(limit=2).add([user("q")]).add_run([*round_("c", output=long), said("done")]).add([user("r")]).add_run([said("b")]))
    assert len(history.messages[2]["content"]) <= 2_000
    assert history.take([user("q"), *round_("c", output=long), said("done"), user("r"), said("b"), user("new")]).new == (user("new"),)


def test_a_fork_to_what_is_gone_is_said_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """D20"""
    monkeypatch.setattr(module, "COLD", 500)
    with caplog.at_level(logging.WARNING, "thinkgate"):
        assert talk(50, limit=10).fork(8).messages == []
    assert "begins anew" in caplog.text


def test_a_block_that_is_missing_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """D20"""
    history = stored(talk(10, limit=8))
    assert history.cold
    with caplog.at_level(logging.WARNING, "thinkgate"):
        assert all(history.block(block.id) is block for block in history.cold)
        assert caplog.text == ""
        assert history.block("blk_none") is None
    assert "blk_none" in caplog.text


def test_a_time_is_settled_once_and_the_cold_block_agrees_with_the_live_message() -> None:
    """D20"""
    history = History(limit=2).add([user("q")], time=0).add_run([said("a", "t")], time=0)
    times = {entry.place: entry.time for entry in history.live}
    assert all(abs(when - time.time()) < 60 for when in times.values())
    moved = stored(stored(history).add([user("r")]).add_run([said("b")]))
    assert {block.place: block.time for block in moved.cold} == times
    assert [block.id for block in moved.cold] == [block.id for block in History(limit=2).from_json(moved.to_json(), limit=2).cold]


@pytest.mark.parametrize("wrap", [lambda records: records, lambda records: {"records": records}])
def test_records_of_before_blocks_are_read(wrap: Any) -> None:
    """D17"""
    records = [{"input": "q", "response": "a"}, {"input": "r", "response": "b", "reasoning": "t", "timestamp": 0}, "junk"]
    history = History.from_json(wrap(records))
    assert history.messages == [user("q"), said("a"), user("r"), said("b", "t")]
    assert stored(history) == history
    assert history.take([user("q"), said("a"), user("r"), said("b"), user("new")]).new == (user("new"),)


@pytest.mark.parametrize("state", [None, {}, {"version": 1}, {"version": 99, "messages": [], "later": 1}, "x", []])
def test_nothing_is_an_empty_history(state: Any) -> None:
    assert History.from_json(state) == History()


def test_bare_messages_of_an_older_state_are_read() -> None:
    """D11"""
    assert History.from_json({"messages": [user("q"), said("a"), None]}).context() == [user("q"), said("a")]


def test_a_state_with_a_lost_result_is_still_usable() -> None:
    """X18"""
    history = stored(History().add([user("q")]).add_run(round_("c")[:1])).add([user("again")])
    assert faults(history.context()) == []


def test_half_a_character_is_not_stored() -> None:
    """B099"""
    history = stored(History().add([user("cut \ud83d here")]).add_run([said("a", "\ud83d")])).add([user("next")])
    assert [message["content"] for message in history.context()] == ["cut \ufffd here", "a", "next"]


def test_an_idle_session_of_ten_turns_is_small() -> None:
    """issue 6: under 20 KiB"""
    assert len(dumps(talk(10, words="some words of a question").to_json())) < 10 * 1024
