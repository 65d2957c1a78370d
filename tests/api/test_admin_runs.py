"""/admin/runs: an administrator follows anybody's run with all its thoughts, and acts in it for whoever began it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from running import KEY, Running, serving, yaml
from upstream_double import Upstream, completion, tool_call

ADMIN = "admin-key-for-tests-0123456789"
OTHER = "key-number-one-0123456789"
CLIENT, ONE, ADMINISTRATOR = ({"x-api-key": key} for key in (KEY, OTHER, ADMIN))
MORE = f"""
keys:
  one: {{key: "{OTHER}"}}
agents:
  quiet: {{pattern: two_stage, model: m, tools: [calculator, sequential_thinking], thinking: {{visibility: hidden}}}}
  ask: {{pattern: simple, model: m, tools: [calculator], approval: {{tools: [calculator]}}}}
  short: {{pattern: simple, model: m, tools: [calculator], limits: {{steps: 1}}}}
"""


def conf(url: str) -> str:
    return yaml({"a": url}, server=f"keys: [{KEY}]\nadmin_key: {ADMIN}", more=MORE)


def call(text: str, number: int = 1) -> dict[str, Any]:
    return completion(None, calls=[tool_call("calculator", json.dumps({"expression": text}), id=f"c{number}")])


async def begin(running: Running, agent: str, **more: Any) -> dict[str, Any]:
    answer = await running.client.post(f"/v1/agents/{agent}/runs", json={"input": "What is 2+3?", **more}, headers=ONE)
    assert answer.status_code in (200, 202), answer.text
    run: dict[str, Any] = answer.json()
    return run


async def told(running: Running, path: str, headers: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The names and data of every event of a run that is over."""
    got = await running.client.get(path, headers=headers)
    assert got.status_code == 200, got.text
    assert got.headers["content-type"].startswith("text/event-stream")
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in got.text.strip().split("\n\n")]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


async def test_its_events_have_their_times_and_the_thoughts_that_the_client_may_not_see(a: Upstream) -> None:
    a.reply(completion("I will add them up.")).reply(completion("5"))
    async with serving(conf(a.url)) as running:
        run = await begin(running, "quiet")
        whole = await told(running, f"/admin/runs/{run['id']}/events", ADMINISTRATOR)
        theirs = await told(running, f"/v1/runs/{run['id']}/events", ONE)
        row = (await running.client.get(f"/admin/runs/{run['id']}?events=none", headers=ADMINISTRATOR)).json()
        everything = (await running.client.get(f"/admin/runs/{run['id']}", headers=ADMINISTRATOR)).json()
        assert (await running.client.get(f"/admin/runs/{run['id']}?events=some", headers=ADMINISTRATOR)).status_code == 400
        rest = await told(running, f"/admin/runs/{run['id']}/events", {**ADMINISTRATOR, "last-event-id": str(whole[-3][1]["seq"])})

    assert "add them up" in json.dumps(whole)
    assert "add them up" not in json.dumps(theirs)
    assert [name for name, _ in whole].count("thought") == 1
    assert [data["seq"] for _, data in whole] == list(range(1, len(whole) + 1))
    assert all(data["time"] > 1e9 for _, data in whole)
    assert not any("time" in data for _, data in theirs)
    assert rest == whole[-2:]
    assert len(everything["events"]) == len(whole)
    assert row == {**everything, "events": []}


async def test_an_approval_is_given_for_the_key_that_began_the_run(a: Upstream) -> None:
    a.reply(call("2+3")).reply(completion("It is 5"))
    async with serving(conf(a.url)) as running:
        run = await begin(running, "ask")
        assert run["status"] == "waiting"
        foreign = await running.client.post(f"/v1/runs/{run['id']}/approve", json={"approved": True}, headers=CLIENT)
        wrong = await running.client.post(f"/admin/runs/{run['id']}/approve", json={"approved": "yes"}, headers=ADMINISTRATOR)
        given = await running.client.post(f"/admin/runs/{run['id']}/approve", json={"approved": True}, headers=ADMINISTRATOR)
        events = await told(running, f"/admin/runs/{run['id']}/events", ADMINISTRATOR)
        over = (await running.client.get(f"/v1/runs/{run['id']}", headers=ONE)).json()
        again = await running.client.post(f"/admin/runs/{run['id']}/approve", json={"approved": True}, headers=ADMINISTRATOR)

    assert foreign.status_code == 404
    assert wrong.status_code == 400
    assert given.status_code == 200
    assert (over["status"], over["output"]) == ("completed", "It is 5")
    assert [data["data"]["approved"] for name, data in events if name == "approval.resolved"] == [True]
    assert (again.status_code, again.json()["error"]["code"]) == (409, "run_not_waiting")


async def test_a_run_is_ended_and_one_that_stopped_early_goes_on(a: Upstream) -> None:
    a.reply(call("2+3")).reply(call("2+3")).reply(completion("so far 5")).reply(completion("It is 5"))
    async with serving(conf(a.url)) as running:
        waits = await begin(running, "ask")
        ended = await running.client.post(f"/admin/runs/{waits['id']}/cancel", headers=ADMINISTRATOR)
        early = await begin(running, "short")
        assert (early["status"], early["reason"]) == ("incomplete", "steps")
        more = await running.client.post(f"/admin/runs/{early['id']}/input", json={"input": "go on"}, headers=ADMINISTRATOR)
        await told(running, f"/admin/runs/{early['id']}/events", ADMINISTRATOR)
        over = (await running.client.get(f"/v1/runs/{early['id']}", headers=ONE)).json()

    assert (ended.status_code, ended.json()["status"]) == (200, "cancelled")
    assert more.status_code == 200
    assert (over["status"], over["output"]) == ("completed", "It is 5")


@pytest.mark.parametrize("what", ["events", "cancel", "approve", "input"])
async def test_a_run_that_there_is_not_is_404(a: Upstream, what: str) -> None:
    async with serving(conf(a.url)) as running:
        path = f"/admin/runs/run_nothing/{what}"
        body = {"approved": True, "input": "x"}
        got: httpx.Response = await (
            running.client.get(path, headers=ADMINISTRATOR) if what == "events" else running.client.post(path, json=body, headers=ADMINISTRATOR)
        )

    assert (got.status_code, got.json()["error"]["code"]) == (404, "run_not_found")


@pytest.mark.parametrize("after", ["-1", "x", "٣", "9" * 30])
async def test_a_place_in_the_journal_is_a_number(a: Upstream, after: str) -> None:
    a.reply(completion("5"))
    async with serving(conf(a.url)) as running:
        run = await begin(running, "short")
        got = await running.client.get(f"/admin/runs/{run['id']}/events", params={"after": after}, headers=ADMINISTRATOR)

    assert got.status_code == 400
