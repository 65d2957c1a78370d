"""What the gateway tells of runs: metrics, one log line each, and `/admin/runs`."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents_yaml import AGENTS, KEYS, asked, says, until
from running import Running, serving, yaml
from upstream_double import Upstream

from gateway.agent import Event
from gateway.store import RunRow, Sql

ADMIN = {"authorization": "Bearer admin-key-0123456789"}
ONE = {"authorization": "Bearer key-number-one-0123456789"}
TWO = {"authorization": "Bearer key-number-two-0123456789"}
SUM = ("calculator", '{"expression": "2+3"}')


@pytest.fixture
async def world(a: Upstream) -> AsyncIterator[Running]:
    prices = "models: {a-model: {input: 100, output: 100}}\nretries: 0"
    async with serving(yaml({"a": a.url}, more=AGENTS + KEYS, a=prices, server="admin_key: admin-key-0123456789")) as running:
        yield running


async def metric(world: Running, name: str) -> dict[str, float]:
    """The values of a metric by its labels as they stand there."""
    text = (await world.client.get("/metrics")).text
    return {labels: float(value) for labels, value in re.findall(rf"^{name}\{{(.*?)\}} (\S+)$", text, re.MULTILINE)}


async def test_runs_steps_and_tool_calls_are_counted(world: Running, a: Upstream) -> None:
    says(a, [SUM, ("calculator", '{"expression": "1/0"}'), ("calcuLater2", "{}")], "It is 5.", SUM, ("calculator", "{}"), SUM, "so far")
    await world.chat(asked("calc"), **ONE)
    await world.chat(asked("calc"), **ONE)
    assert await metric(world, "thinkgate_runs_total") == {'agent="calc",status="completed"': 1, 'agent="calc",status="incomplete"': 1}
    assert await metric(world, "thinkgate_run_steps_total") == {'agent="calc"': 6}
    assert await metric(world, "thinkgate_tool_calls_total") == {
        'ok="yes",tool="calculator"': 3,
        'ok="no",tool="calculator"': 2,
        'ok="no",tool="unknown"': 1,
    }
    assert await metric(world, "thinkgate_run_seconds_count") == {'agent="calc"': 2}
    assert (await metric(world, "thinkgate_requests_total"))['endpoint="chat",model="agent/calc",status="200"'] == 2


async def test_a_run_that_waits_counts_what_it_did_once(world: Running, a: Upstream) -> None:
    says(a, SUM, "Done.")
    message = (await world.chat(asked("ask"), **ONE)).json()["choices"][0]["message"]
    body = asked("ask")
    body["messages"] += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": '{"approved": true}'}]
    await world.chat(body, **ONE)
    assert await metric(world, "thinkgate_runs_total") == {'agent="ask",status="waiting"': 1, 'agent="ask",status="completed"': 1}
    assert await metric(world, "thinkgate_tool_calls_total") == {'ok="yes",tool="calculator"': 1}


async def test_one_line_tells_how_a_run_ended_and_no_text(world: Running, a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thinkgate.run")
    says(a, SUM, "The SECRET is 5.")
    body = {"input": "What is the SECRET?", "background": True, "session_id": "s 1"}
    run = (await world.client.post("/v1/agents/calc/runs", json=body, headers=ONE)).json()["id"]
    await until(lambda: any(record.name == "thinkgate.run" for record in caplog.records))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "thinkgate.run"]
    assert re.sub(r"total_ms=\d+", "total_ms=N", line) == (
        f'run={run} agent=calc status=completed background=yes key=one session="s 1" steps=2 tools=calculator prompt=10 completion=6 cost=0.0016 total_ms=N'
    )
    assert "SECRET" not in caplog.text


async def test_a_run_that_is_cancelled_while_it_waits_is_told_of(world: Running, a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thinkgate.run")
    says(a, SUM)
    run = (await world.client.post("/v1/agents/ask/runs", json={"input": "What is 2+3?"}, headers=ONE)).json()
    assert run["status"] == "waiting"
    assert (await world.client.post(f"/v1/runs/{run['id']}/cancel", headers=ONE)).json()["status"] == "cancelled"
    assert await metric(world, "thinkgate_runs_total") == {'agent="ask",status="waiting"': 1, 'agent="ask",status="cancelled"': 1}
    assert await metric(world, "thinkgate_run_steps_total") == {'agent="ask"': 1}
    lines = [record.getMessage() for record in caplog.records if record.name == "thinkgate.run"]
    assert re.sub(r"total_ms=\d+", "total_ms=N", lines[-1]) == f"run={run['id']} agent=ask status=cancelled background=yes key=one steps=0 total_ms=N"


async def test_a_run_that_is_cancelled_while_it_is_queued_is_told_of(world: Running) -> None:
    runs = world.gateway.runs
    await runs.journal.create(RunRow("run_1", "calc", tenant="t"))
    assert (await runs.cancel("run_1", "t")).status == "cancelled"
    assert await metric(world, "thinkgate_runs_total") == {'agent="calc",status="cancelled"': 1}


async def test_a_run_whose_process_died_is_told_of(world: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thinkgate.run")
    runs = world.gateway.runs
    row, _ = await runs.journal.create(RunRow("run_1", "calc"), "another process")
    await runs.journal.append("run_1", row.epoch, (Event("run_1", 1, "tool.started", 2, {"id": "c"}, "c"),))

    def steps() -> Any:
        yield Sql("UPDATE thinkgate_runs SET lease_until = 1 WHERE id = 'run_1'")

    await runs.journal.runs.engine.write(steps())
    await until(lambda: any(record.name == "thinkgate.run" for record in caplog.records))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "thinkgate.run"]
    assert line.startswith("run=run_1 agent=calc status=incomplete reason=crash background=yes steps=2 ")
    assert await metric(world, "thinkgate_runs_total") == {'agent="calc",status="incomplete"': 1}


async def test_admin_runs_are_found_by_agent_key_and_status_page_by_page(world: Running, a: Upstream) -> None:
    says(a, "one", "two", SUM)
    await world.chat(asked("plain"), **ONE)
    await world.chat(asked("plain"), **TWO)
    await world.chat(asked("ask"), **ONE)

    async def found(query: str) -> list[tuple[str, str, str]]:
        rows = (await world.client.get(f"/admin/runs?{query}", headers=ADMIN)).json()["data"]
        return [(row["agent"], row["key"], row["status"]) for row in rows]

    every = [("ask", "one", "waiting"), ("plain", "two", "completed"), ("plain", "one", "completed")]
    assert await found("") == every
    assert await found("agent=plain") == every[1:]
    assert await found("key_name=one") == [every[0], every[2]]
    assert await found("status=waiting") == every[:1]
    assert await found("agent=plain&key_name=two") == every[1:2]
    first = (await world.client.get("/admin/runs?limit=2", headers=ADMIN)).json()
    assert len(first["data"]) == 2
    rest = (await world.client.get(f"/admin/runs?limit=2&before={first['next']}", headers=ADMIN)).json()
    assert [row["key"] for row in rest["data"]] == ["one"]
    assert rest["next"] is None
    assert (await world.client.get("/admin/runs?limit=0", headers=ADMIN)).status_code == 400
    assert (await world.client.get("/admin/runs", headers=ONE)).status_code in (401, 403)


async def test_runs_under_way_are_in_readyz(world: Running, a: Upstream) -> None:
    a.stream(1.0, "[DONE]")
    task = asyncio.ensure_future(world.chat(asked("plain"), **ONE))
    try:
        await until(lambda: len(a.requests) == 1)
        told = (await world.client.get("/readyz")).json()["agents"]
        assert (told["live"], told["journal"]["held"]) == (1, 1)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_runs_that_ended_longer_ago_than_the_config_keeps_them_are_gone(a: Upstream, tmp_path: Path) -> None:
    says(a, "one", SUM)
    text = yaml({"a": a.url}, more=AGENTS + "store: sqlite:///gate.db\n")
    async with serving(text, base=tmp_path) as world:
        over = (await world.client.post("/v1/agents/plain/runs", json={"input": "hi", "session_id": "s"})).json()["id"]
        waits = (await world.client.post("/v1/agents/ask/runs", json={"input": "hi"})).json()["id"]
        assert (await world.client.get(f"/v1/runs/{over}")).status_code == 200

    async with serving(text + "retention: {runs: 1ms}\n", base=tmp_path) as world:

        async def gone() -> bool:
            return (await world.client.get(f"/v1/runs/{over}")).status_code == 404

        await until(gone)
        assert (await world.client.get(f"/v1/runs/{waits}")).json()["status"] == "waiting"
        assert (await world.client.get("/v1/sessions/s")).json()["messages"][1]["content"] == "one"
