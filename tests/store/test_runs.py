"""Agent runs in the store (agents.md 5.4, D10, D11): the same on SQLite, in memory and on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store import (
    Busy,
    EventRow,
    Fenced,
    RunRow,
    Runs,
    SessionRow,
    Sql,
    SqlStore,
    Steps,
    StoreRefused,
    Wait,
    open_store,
    session_key,
)

KEY = session_key("k1", "analyst", "s1")


def run(id: str = "run_1", **changes: Any) -> RunRow:
    return replace(RunRow(id, "analyst", tenant="k1", key_name="team"), **changes)


def in_session(id: str = "run_1", **changes: Any) -> RunRow:
    return run(id, session=KEY, session_id="s1", **changes)


def event(type: str = "thought", key: str = "", data: str = "{}", state: str | None = None) -> EventRow:
    return EventRow(0, type, 1, data, key, state, '["sub","run_9",null]', 5.0)


def events(first: int, count: int = 1) -> list[EventRow]:
    return [event(key=str(seq))._replace(seq=seq) for seq in range(first, first + count)]


def statement(text: str) -> Steps[list]:
    return (yield Sql(text))


async def lapse(store: SqlStore, id: str = "run_1") -> None:
    """The lease runs out, as if its owner had died a while ago."""
    await store.engine.write(statement(f"UPDATE thinkgate_runs SET lease_until = lease_until - 100 WHERE id = '{id}'"))


async def age(store: SqlStore, id: str, seconds: float) -> None:
    await store.engine.write(statement(f"UPDATE thinkgate_runs SET finished_at = finished_at - {seconds} WHERE id = '{id}'"))


async def finished(store: SqlStore, row: RunRow, status: str = "completed") -> RunRow:
    made, _ = await store.runs.create(row, "me")
    await store.runs.append(made.id, 1, 0, events(1, 2), {"status": status})
    found = await store.runs.run(made.id)
    assert found is not None
    return found


async def test_a_run_is_kept_as_it_was_made(store):
    given = in_session(
        input=[{"role": "user", "content": "a\0b"}],
        settings={"model": "x", "n": 2**70},
        metadata={"a": "ü"},
        background=True,
        detached=True,
        parent_run="run_0",
    )

    made, new = await store.runs.create(given)

    assert new
    assert made.created_at > 1.7e9
    assert made.nr > 0
    assert made == replace(given, created_at=made.created_at, nr=made.nr)
    assert await store.runs.run("run_1") == made
    assert await store.runs.run("another") is None


async def test_a_run_that_is_made_with_an_owner_is_his_at_once(store):
    made, _ = await store.runs.create(run(), "me")

    assert (made.status, made.owner, made.epoch) == ("running", "me", 1)
    assert made.lease_until == pytest.approx(made.created_at + store.runs.lease, abs=0.5)
    assert await store.runs.claim("run_1", "you") is None


async def test_events_are_numbered_without_gaps_and_read_in_order(store):
    await store.runs.create(run(), "me")
    given = [event("run.started", "a", '{"x":1}'), event("thought", "b", state='{"y":[2]}'), event("thought", "c")]
    await store.runs.append("run_1", 1, 0, [given[0]._replace(seq=1)])
    kept = await store.runs.append("run_1", 1, 1, [given[1]._replace(seq=2), given[2]._replace(seq=3)])

    assert kept == (3, False)
    assert await store.runs.events("run_1") == [item._replace(seq=seq, epoch=1) for seq, item in enumerate(given, 1)]
    assert [row.seq for row in await store.runs.events("run_1", after=1, limit=1)] == [2]
    assert await store.runs.head("run_1") == (3, "running")
    assert await store.runs.head("another") is None


async def test_a_write_keeps_what_the_run_is_now_and_holds_it_longer(store):
    made, _ = await store.runs.create(run(), "me")
    await lapse(store)
    changes = {"output": "ü\0", "reasoning": "r", "usage": {"total_tokens": 3}, "cost": 0.5, "steps": 2, "error": {"message": "m"}, "metadata": {"k": 1}}

    await store.runs.append("run_1", 1, 0, events(1), changes)

    found = await store.runs.run("run_1")
    assert found == replace(made, **changes, last_seq=1, lease_until=found.lease_until)
    assert found.lease_until >= made.lease_until


async def test_what_has_no_json_form_is_kept_as_near_as_can_be(store):
    await store.runs.create(run(), "me")

    await store.runs.append("run_1", 1, 0, [], {"output": "half \ud800 a pair", "usage": {1: ("a", None, True, 1.5), "b": 1j, "c": "\udfff"}})

    found = await store.runs.run("run_1")
    assert found.output == "half ? a pair"
    assert found.usage == {"1": ["a", None, True, 1.5], "b": "1j", "c": "?"}


async def test_only_known_fields_of_a_run_can_be_changed(store):
    await store.runs.create(run(), "me")
    with pytest.raises(ValueError, match="epoch"):
        await store.runs.append("run_1", 1, 0, [], {"epoch": 7})


async def test_an_owner_of_an_older_epoch_may_write_no_more(store):
    """A worker that froze, lost its lease and comes back (5.3: the zombie's commit is refused)."""
    await store.runs.create(run(), "me")
    await store.runs.append("run_1", 1, 0, events(1))
    await lapse(store)

    taken = await store.runs.claim("run_1", "you")

    assert (taken.owner, taken.epoch, taken.attempts, taken.last_seq) == ("you", 2, 1, 1)
    for refused in (
        store.runs.append("run_1", 1, 1, events(2)),
        store.runs.append("run_1", 1, 0, events(1)),
        store.runs.append("run_1", 1, 1, [], {"status": "completed"}),
        store.runs.renew("run_1", 1),
    ):
        with pytest.raises(Fenced):
            await refused
    assert not await store.runs.release("run_1", 1)
    assert len(await store.runs.events("run_1")) == 1
    assert (await store.runs.run("run_1")).status == "running"
    await store.runs.append("run_1", 2, 1, events(2))
    assert [row.epoch for row in await store.runs.events("run_1")] == [1, 2]


async def test_a_write_whose_outcome_was_never_heard_can_be_repeated(store):
    await store.runs.create(run(), "me")

    first = await store.runs.append("run_1", 1, 0, events(1, 2))
    again = await store.runs.append("run_1", 1, 0, events(1, 2))

    assert first == again == (2, False)
    assert [row.seq for row in await store.runs.events("run_1")] == [1, 2]
    waits = await store.runs.append("run_1", 1, 2, [], {"status": "waiting"}, waits=[Wait("c")])
    assert await store.runs.append("run_1", 1, 2, [], {"status": "waiting"}, waits=[Wait("c")]) == waits
    await store.runs.claim("run_1", "me", also=("waiting",))
    last = await store.runs.append("run_1", 2, 2, events(3), {"status": "completed"})
    assert await store.runs.append("run_1", 2, 2, events(3), {"status": "completed"}) == last


async def test_a_write_that_does_not_follow_the_last_event_is_refused(store):
    await store.runs.create(run(), "me")
    await store.runs.append("run_1", 1, 0, events(1))

    for after in (0, 2, 7):
        with pytest.raises(Fenced):
            await store.runs.append("run_1", 1, after, events(after + 1, 3))
    assert len(await store.runs.events("run_1")) == 1


async def test_nothing_is_written_to_a_run_that_is_over_or_gone(store):
    await finished(store, run())
    for refused in (store.runs.append("run_1", 1, 2, events(3)), store.runs.append("none", 1, 0, events(1)), store.runs.renew("run_1", 1)):
        with pytest.raises(Fenced):
            await refused
    assert await store.runs.claim("run_1", "you") is None


async def test_of_many_who_claim_a_run_one_gets_it(pair):
    one, other = pair
    for id in ("run_1", "run_2", "run_3"):
        await one.runs.create(run(id))
        claims = await asyncio.gather(*(store.runs.claim(id, f"{name}{i}") for i in range(4) for name, store in (("a", one), ("b", other))))
        assert len([row for row in claims if row is not None]) == 1


async def test_a_run_that_is_given_back_waits_for_anybody(store):
    await store.runs.create(run(), "me")
    await store.runs.append("run_1", 1, 0, events(1))

    assert await store.runs.release("run_1", 1)

    assert (await store.runs.run("run_1")).status == "queued"
    taken = await store.runs.claim("run_1", "you")
    assert (taken.epoch, taken.attempts) == (2, 0)  # nobody died


async def test_runs_are_due_that_are_queued_left_alone_or_have_waited_too_long(store):
    for id in ("queued", "held", "left", "waits", "waited"):
        await store.runs.create(run(id, detached=id == "left"), None if id == "queued" else "me")
    await lapse(store, "left")
    await store.runs.append("waits", 1, 0, [], {"status": "waiting", "wake_at": 4e9})
    await store.runs.append("waited", 1, 0, [], {"status": "waiting", "wake_at": 1.0})
    await finished(store, run("over"))

    assert await store.runs.due() == [("queued", "queued", False, 0), ("left", "running", True, 0), ("waited", "waiting", False, 0)]
    assert len(await store.runs.due(limit=1)) == 1


async def test_the_same_idempotency_key_gives_the_same_run(store):
    given = run(idempotency_key="once", request_hash="h")
    made, new = await store.runs.create(given)
    again, renewed = await store.runs.create(replace(given, id="run_2"))

    assert (new, renewed) == (True, False)
    assert again == made
    with pytest.raises(Conflict) as refused:
        await store.runs.create(replace(given, id="run_3", request_hash="other"))
    assert (refused.value.status, refused.value.code) == (409, "idempotency_conflict")
    for elsewhere in (replace(given, id="run_4", tenant="k2"), replace(given, id="run_5", agent="writer")):
        assert (await store.runs.create(elsewhere))[1]
    with pytest.raises(InvalidRequest):
        await store.runs.create(replace(given, id="run_6", idempotency_key="x" * 256))


async def test_a_repeated_request_in_a_session_finds_its_run_while_that_is_busy(store):
    given = in_session(idempotency_key="once")
    await store.runs.create(given, "me")

    again, new = await store.runs.create(replace(given, id="run_2"), "me")

    assert (again.id, new) == ("run_1", False)


async def test_one_idempotency_key_makes_one_run_from_many_replicas_at_once(pair):
    made = await asyncio.gather(
        *(store.runs.create(run(f"run_{i}_{name}", idempotency_key="once")) for i in range(4) for name, store in zip("ab", pair, strict=True))
    )

    assert len({row.id for row, _ in made}) == 1
    assert [new for _, new in made].count(True) == 1


async def test_a_session_has_one_run_at_a_time(store):
    await store.runs.create(in_session(), "me")
    with pytest.raises(Busy) as refused:
        await store.runs.create(in_session("run_2"), "me")
    assert (refused.value.status, refused.value.code) == (409, "run_busy")
    assert await store.runs.run("run_2") is None

    await store.runs.create(run("run_3", session=session_key("k2", "analyst", "s1"), session_id="s1"), "me")  # another key's of the same name
    await store.runs.append("run_1", 1, 0, [], {"status": "waiting"})
    with pytest.raises(Busy):
        await store.runs.create(in_session("run_2"), "me")
    await store.runs.claim("run_1", "me", also=("waiting",))
    await store.runs.append("run_1", 2, 0, [], {"status": "cancelled"})
    assert (await store.runs.session(KEY)).run_id is None
    assert (await store.runs.create(in_session("run_2"), "me"))[1]


async def test_a_session_is_given_to_one_of_many_replicas_at_once(pair):
    async def start(store: SqlStore, id: str) -> bool:
        with contextlib.suppress(Busy):
            return (await store.runs.create(in_session(id), "me"))[1]
        return False

    made = await asyncio.gather(*(start(store, f"run_{i}_{name}") for i in range(4) for name, store in zip("ab", pair, strict=True)))

    assert made.count(True) == 1


async def test_a_run_that_died_with_its_client_does_not_hold_its_session(store):
    await store.runs.create(in_session(), "me")
    await lapse(store)
    await store.runs.create(in_session("run_2"), "me")
    assert (await store.runs.session(KEY)).run_id == "run_2"

    dead = await store.runs.claim("run_1", "sweeper")  # to be ended
    await store.runs.append("run_1", dead.epoch, 0, [], {"status": "incomplete", "reason": "crash"}, session={"late": True})

    found = await store.runs.session(KEY)
    assert (found.run_id, found.state) == ("run_2", {})


async def test_a_run_that_goes_on_elsewhere_keeps_its_session(store):
    await store.runs.create(in_session(detached=True), "me")
    await lapse(store)
    with pytest.raises(Busy):
        await store.runs.create(in_session("run_2"), "me")


async def test_the_end_of_a_run_is_kept_with_its_sessions_state_in_one_piece(store):
    await store.runs.create(in_session(), "me")
    await store.runs.append("run_1", 1, 0, events(1), session={"todo": ["a"]})
    assert (await store.runs.session(KEY)).state == {"todo": ["a"]}

    await store.runs.append("run_1", 1, 1, events(2), {"status": "completed", "output": "done"}, session={"todo": []}, durable=True)

    row, session = await store.runs.run("run_1"), await store.runs.session(KEY)
    assert (row.status, row.owner, row.lease_until, row.over) == ("completed", None, None, True)
    assert row.finished_at >= row.created_at
    assert (session.state, session.version, session.run_id, session.session_id, session.tenant, session.agent) == ({"todo": []}, 2, None, "s1", "k1", "analyst")


async def test_a_session_deleted_during_its_run_is_not_made_again_by_its_end(store):
    await store.runs.create(in_session(), "me")
    with pytest.raises(Busy):
        await store.runs.delete_session(KEY)
    await store.runs.append("run_1", 1, 0, [], {"status": "waiting"})
    assert await store.runs.delete_session(KEY)
    assert not await store.runs.delete_session(KEY)

    await store.runs.ask_cancel("run_1")

    assert await store.runs.session(KEY) is None


async def test_a_session_is_saved_over_the_version_that_was_read(store):
    first = await store.runs.save_session(SessionRow(KEY, "s1", "k1", "analyst", {"a": 1}))
    second = await store.runs.save_session(replace(first, state={"a": 2}))

    assert (first.version, second.version, second.state) == (1, 2, {"a": 2})
    with pytest.raises(Conflict) as refused:
        await store.runs.save_session(replace(first, state={"a": 3}))
    assert refused.value.code == "session_changed"
    assert (await store.runs.session(KEY)).state == {"a": 2}


def test_nobody_reaches_the_session_of_another_key_by_a_clever_name():
    names = [("a", "b", "c"), ("a", "b,c", ""), ("", "a", "b"), ("a", "", "bc"), ("ab", "", "c"), ("a", "b", "\ud800"), ("a", "b", "?")]
    assert len({session_key(*name) for name in names}) == len(names)


async def test_a_run_waits_under_ids_that_can_be_used_once(store):
    await store.runs.create(run(), "me")
    await store.runs.append("run_1", 1, 0, events(1), {"status": "waiting", "waiting": {"calls": ["c1", "c2"]}}, waits=[Wait("c1"), Wait("c2", 4e9)])

    found = await store.runs.waiting("k1", ["c2", "c1"])
    assert (found.id, found.waiting, found.owner) == ("run_1", {"calls": ["c1", "c2"]}, None)

    taken = await store.runs.claim("run_1", "you", also=("waiting",), calls=["c1", "c2"], rows=[event("approval.resolved"), event("tool.finished")])

    assert (taken.epoch, taken.last_seq, taken.waiting) == (2, 3, {"calls": ["c1", "c2"]})
    assert [(row.seq, row.type, row.epoch) for row in await store.runs.events("run_1", 1)] == [(2, "approval.resolved", 2), (3, "tool.finished", 2)]
    assert await not_waiting(store.runs, ["c1"])


async def not_waiting(runs: Runs, calls: list[str], tenant: str = "k1") -> bool:
    with pytest.raises(Conflict) as refused:
        await runs.waiting(tenant, calls)
    return refused.value.code == "run_not_waiting" and refused.value.status == 409


async def test_unknown_used_expired_and_foreign_ids_find_no_run(store):
    for id in ("run_1", "run_2"):
        await store.runs.create(run(id), "me")
        await store.runs.append(id, 1, 0, [], {"status": "waiting"}, waits=[Wait(f"of {id}"), Wait(f"late {id}", 1.0)])

    assert await not_waiting(store.runs, ["unknown"])
    assert await not_waiting(store.runs, ["late run_1"])
    assert await not_waiting(store.runs, ["of run_1"], tenant="k2")
    assert await not_waiting(store.runs, ["of run_1", "of run_2"])
    assert await not_waiting(store.runs, [])
    for calls in (["unknown"], ["late run_1"], ["of run_2"], ["of run_1", "of run_1"]):
        with pytest.raises(Conflict):
            await store.runs.claim("run_1", "me", also=("waiting",), calls=calls)
    assert (await store.runs.run("run_1")).status == "waiting"
    assert (await store.runs.waiting("k1", ["of run_1"])).id == "run_1"
    assert await store.runs.claim("run_1", "me") is None  # nobody asked for one that waits


async def test_one_of_two_answers_to_the_same_call_continues_the_run(pair):
    await pair[0].runs.create(run(), "me")
    await pair[0].runs.append("run_1", 1, 0, [], {"status": "waiting"}, waits=[Wait("c")])

    async def answer(store: SqlStore) -> RunRow | None:
        with contextlib.suppress(Conflict):
            return await store.runs.claim("run_1", "me", also=("waiting",), calls=["c"], rows=[event("tool.finished")])
        return None

    taken = await asyncio.gather(*(answer(store) for store in pair))

    assert len([row for row in taken if row is not None]) == 1
    assert await pair[1].runs.head("run_1") == (1, "running")


async def test_an_incomplete_run_goes_on_in_its_session_unless_another_has_it(store):
    await store.runs.create(in_session(), "me")
    await store.runs.append("run_1", 1, 0, events(1), {"status": "incomplete", "reason": "steps", "output": "so far"})
    await store.runs.create(in_session("run_2"), "me")
    with pytest.raises(Busy):
        await store.runs.claim("run_1", "me", also=("waiting", "incomplete"))
    assert (await store.runs.run("run_1")).reason == "steps"

    await store.runs.append("run_2", 1, 0, [], {"status": "completed"})
    taken = await store.runs.claim("run_1", "me", also=("waiting", "incomplete"))

    assert (taken.status, taken.reason, taken.finished_at, taken.output) == ("running", None, None, "so far")
    assert (await store.runs.session(KEY)).run_id == "run_1"


async def test_whoever_owns_a_run_is_told_that_it_shall_end(store):
    await store.runs.create(run(), "me")
    assert not await store.runs.renew("run_1", 1)

    asked = await store.runs.ask_cancel("run_1")

    assert (asked.status, asked.cancel) == ("running", True)
    assert await store.runs.renew("run_1", 1)
    assert (await store.runs.append("run_1", 1, 0, events(1))).cancel
    await store.runs.append("run_1", 1, 1, [], {"status": "cancelled"})
    assert (await store.runs.ask_cancel("run_1")).status == "cancelled"
    assert await store.runs.ask_cancel("none") is None


async def test_a_fork_begins_with_the_events_up_to_a_point(store):
    """X: time travel. The original stays as it is."""
    await store.runs.create(run(), "me")
    await store.runs.append("run_1", 1, 0, events(1, 5))
    before = await store.runs.events("run_1")

    made, new = await store.runs.fork(
        "run_1", 3, run("run_2", settings={"model": "other"}), "me", last=event("tool.finished", "t", data='{"new":1}', state='{"s":1}')
    )

    assert new
    assert (made.forked_from, made.forked_seq, made.last_seq, made.epoch) == ("run_1", 3, 3, 1)
    there = await store.runs.events("run_2")
    assert [row._replace(epoch=1) for row in there[:2]] == before[:2]
    assert (there[2].type, there[2].key, there[2].data, there[2].state) == ("tool.finished", "t", '{"new":1}', '{"s":1}')
    await store.runs.append("run_2", 1, 3, events(4))
    assert await store.runs.events("run_1") == before
    with pytest.raises(NotFound):
        await store.runs.fork("none", 1, run("run_3"))
    for seq in (-1, 6):
        with pytest.raises(InvalidRequest):
            await store.runs.fork("run_1", seq, run("run_3"))


async def test_runs_are_listed_the_newest_first_page_by_page(store):
    for i in range(5):
        await store.runs.create(run(f"run_{i}", agent="writer" if i == 2 else "analyst", key_name="k" if i == 3 else "team", tenant="t" if i == 4 else ""))
    await store.runs.ask_cancel("run_1")
    taken = await store.runs.claim("run_1", "me")
    await store.runs.append("run_1", taken.epoch, 0, [], {"status": "cancelled"})

    first = await store.runs.page(limit=2)
    second = await store.runs.page(limit=2, before=first.next)
    third = await store.runs.page(limit=2, before=second.next)

    assert [row.id for row in (*first.rows, *second.rows, *third.rows)] == ["run_4", "run_3", "run_2", "run_1", "run_0"]
    assert third.next is None
    assert [row.id for row in (await store.runs.page(agent="writer")).rows] == ["run_2"]
    assert [row.id for row in (await store.runs.page(key_name="k")).rows] == ["run_3"]
    assert [row.id for row in (await store.runs.page(status="cancelled")).rows] == ["run_1"]
    assert [row.id for row in (await store.runs.page(tenant="t")).rows] == ["run_4"]
    assert (await store.runs.page(agent="analyst", status="completed")).rows == ()


async def test_the_run_object_of_the_api(store):
    row = await finished(store, in_session(metadata={"a": "b"}))
    assert row.public() == {
        "id": "run_1",
        "object": "run",
        "agent": "analyst",
        "session_id": "s1",
        "status": "completed",
        "output": "",
        "reasoning": "",
        "reason": None,
        "usage": {},
        "cost": None,
        "steps": 0,
        "created_at": int(row.created_at),
        "finished_at": int(row.finished_at),
        "error": None,
        "metadata": {"a": "b"},
    }


async def test_old_runs_are_forgotten_with_their_events_and_sessions_stay(store):
    """Retention by age, complaint 12 of agents.md: never of runs that are not over."""
    for i, status in enumerate(("completed", "incomplete", "failed", "cancelled", "completed")):
        await finished(store, in_session(f"over_{i}"), status)
        await age(store, f"over_{i}", 1000 if i < 4 else 0)
    for id in ("queued", "running", "waiting"):
        await store.runs.create(run(id), None if id == "queued" else "me")
    await store.runs.append("waiting", 1, 0, events(1), {"status": "waiting"}, waits=[Wait("c")])
    young = (await store.runs.run("over_4")).finished_at

    assert await store.runs.retain() == 0
    assert await store.runs.retain(older_than=young) == 4

    assert {row.id for row in (await store.runs.page()).rows} == {"over_4", "queued", "running", "waiting"}
    assert await store.engine.read(statement("SELECT DISTINCT run_id FROM thinkgate_events ORDER BY run_id")) == [("over_4",), ("waiting",)]
    assert (await store.runs.waiting("k1", ["c"])).id == "waiting"
    assert await store.runs.session(KEY) is not None


async def test_all_but_the_newest_runs_are_forgotten(store):
    """Retention by count."""
    await store.runs.create(run("running"), "me")
    for i in range(5):
        await finished(store, run(f"over_{i}"))

    assert await store.runs.retain(keep=7) == 0
    assert await store.runs.retain(keep=2) == 3
    assert [row.id for row in (await store.runs.page()).rows] == ["over_4", "over_3", "running"]
    assert await store.runs.retain(keep=0) == 2


async def test_a_write_is_heard_by_every_replica_of_postgresql(postgres, tmp_path):
    url = postgres.fresh()
    one, other = await open_store(url, tmp_path), await open_store(url, tmp_path)
    heard = other.runs.listen()
    assert one.runs.can_listen
    assert await anext(heard) == ("", 0)

    await one.runs.create(run(), "me")
    await one.runs.append("run_1", 1, 0, events(1, 3))
    await one.runs.ask_cancel("run_1")

    assert [await anext(heard) for _ in range(3)] == [("run_1", 0), ("run_1", 3), ("run_1", -1)]
    await heard.aclose()
    await one.aclose()
    await other.aclose()


async def test_sqlite_says_that_it_tells_nobody(tmp_path):
    store = await open_store("sqlite://", tmp_path)
    assert not store.runs.can_listen
    with pytest.raises(StoreRefused):
        await anext(store.runs.listen())
    await store.aclose()
