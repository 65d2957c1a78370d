"""Conversations that grow too large for their model, while a run is under way (X8, P21, B137)."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Kept, Killed, Scripted, agent, calls, made, paired
from test_replay import Look, dense

from gateway.agent.drive import Outcome, carry_out
from gateway.agent.run import Run
from gateway.chat import Json
from gateway.errors import UpstreamError

OLD: list[Json] = [
    message for n in range(12) for message in ({"role": "user", "content": f"old {n} " + "word " * 400}, {"role": "assistant", "content": f"said {n}"})
]
QUESTION: list[Json] = [*OLD, {"role": "user", "content": "and now?"}]
WINDOW = 8_000
LOOK = calls(("look", {"q": "x"}))


def condenses(body: Json) -> bool:
    return "<transcript>" in str(body["messages"][-1]["content"])


def model(*turns: Any, summary: Any = "what was said before") -> Scripted:
    """These turns in order; a summary whenever one is asked for."""
    left = list(turns)
    return Scripted(lambda body: summary if condenses(body) else left.pop(0), repeats=True)


async def through(pattern: str, said: Scripted, log: Kept | None = None, **settings: Any) -> tuple[Run, Outcome, Kept]:
    log = log or Kept()
    one = made(agent(pattern, **settings), said, [Look()], QUESTION, log)
    one.window = WINDOW
    outcome = await carry_out(one)
    assert all(paired(body["messages"]) for body in said.asked)
    return one, outcome, log


@pytest.mark.parametrize(
    ("pattern", "turns"),
    [
        ("simple", [LOOK, calls(("look", {"q": "y"})), "end"]),
        ("react", ["Action: look[x]", "Action: look[y]", "Finish[end]"]),
        ("two_stage", ["plan", LOOK, "plan", calls(("look", {"q": "y"})), "plan", "end"]),
        ("reflection", ["draft", "weak", "end"]),
        ("plan_and_solve", ['["a", "b"]', "r1", "end"]),
    ],
)
async def test_old_turns_become_a_summary_once_and_the_question_stays(pattern: str, turns: list[Any]) -> None:
    """Not once a turn: what was condensed stays condensed for the rest of the run."""
    said = model(*turns)
    one, outcome, log = await through(pattern, said, options={"max_reflections": 1})
    assert (outcome.status, one.output) == ("completed", "end")
    assert sum(condenses(body) for body in said.asked) == 1
    told = [event.data for event in log.of("context.compacted")]
    assert [one["how"] for one in told] == ["summary"]
    assert told[0]["tokens_after"] < told[0]["tokens_before"]
    for body in said.asked[1:]:
        text = str(body["messages"])
        assert "and now?" in text
        assert "old 0 " not in text


async def test_a_session_learns_what_its_old_turns_became() -> None:
    """Only whole turns, and never those that the run itself added."""
    one, _, _ = await through("simple", model(LOOK, "end"))
    assert one.summary is not None
    text, kept = one.summary
    assert text == "what was said before"
    assert 1 <= kept <= len(QUESTION)
    assert QUESTION[-kept]["role"] == "user"


async def test_without_a_summary_the_conversation_is_trimmed() -> None:
    """B137: calls keep their results, the question and the system text stay."""
    said = model("end", summary=UpstreamError("server", "down"))
    one, outcome, log = await through("simple", said, system="Be brief.")
    assert (outcome.status, one.output) == ("completed", "end")
    assert log.of("context.compacted")[0].data["how"] == "failed"
    last = said.asked[-1]["messages"]
    assert last[0] == {"role": "system", "content": "Be brief."}
    assert last[-1] == QUESTION[-1]


@pytest.mark.parametrize("pattern", ["simple", "two_stage"])
async def test_a_crash_around_a_summary_takes_no_turn_for_another(pattern: str) -> None:
    turns = [LOOK, "end"] if pattern == "simple" else ["plan", LOOK, "plan", "end"]
    expected, _, whole = await through(pattern, model(*turns))
    for seq in range(1, len(whole.events) + 1):
        log = Kept(killed_at=seq)
        with pytest.raises(Killed):
            await through(pattern, model(*turns), log)
        done = sum(event.type == "usage" and event.key.startswith("turn:") for event in log.events)
        one, outcome, again = await through(pattern, model(*turns[done:]), Kept(log.events))
        assert (outcome.status, one.output, one.new, one.summary) == ("completed", "end", expected.new, expected.summary)
        assert dense(again)
        assert len(again.events) == len(whole.events)


async def test_a_window_that_is_learned_after_a_crash_does_not_disturb_what_is_known() -> None:
    """The journal was written when nobody knew the window."""
    log = Kept(killed_at=3)
    one = made(agent(), Scripted(LOOK, "end"), [Look()], QUESTION, log)
    with pytest.raises(Killed):
        await carry_out(one)
    assert log.types() == ["usage", "tool.started", "tool.finished"]
    said = model("end")
    one, outcome, _ = await through("simple", said, Kept(log.events))
    assert (outcome.status, one.output) == ("completed", "end")
    assert [condenses(body) for body in said.asked] == [True, False]
