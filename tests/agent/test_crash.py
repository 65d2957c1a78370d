"""Runs of real gateways that are killed: they go on elsewhere, and nothing that had finished is done twice (DESIGN D10, D11)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents_yaml import says, until
from replicas import Replica
from upstream_double import HANG, Upstream

SUM = ("calculator", '{"expression": "2+3"}')
NOTE = ("note", '{"text": "x"}')
TOOLS = '''
from pathlib import Path

from gateway.agent.tools.function import tool


@tool(repeat="never")
def note(text: str) -> str:
    """Write a note."""
    file = Path(__file__).with_name("notes.txt")
    file.write_text((file.read_text() if file.exists() else "") + text + "\\n")
    import time

    while not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
    return "noted"
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("postgres").fresh() if request.param == "postgresql" else f"sqlite:///{tmp_path}/runs.db"


def config(upstream: Upstream, store: str, folder: Path) -> str:
    (folder / "tools.py").write_text(TOOLS)
    return (
        f"store: {store}\n"
        f"providers: {{a: {{adapter: openai, base_url: '{upstream.url}', api_key: key-of-a-0123456789, retries: 0, timeouts: {{first_token: 1m}}}}}}\n"
        "models: {m: a/x}\n"
        "agents:\n"
        "  calc: {pattern: simple, model: m, tools: [calculator]}\n"
        f"  noter: {{pattern: simple, model: m, tools: ['python:{folder}/tools.py:note']}}\n"
        "  asker: {pattern: simple, model: m, tools: [calculator], approval: {tools: [calculator]}}\n"
    )


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Replica]]:
    made: list[Replica] = []
    yield made
    for replica in made:
        replica.kill()


def started(replicas: list[Replica], tmp_path: Path, text: str) -> Replica:
    replica = Replica(tmp_path / f"home{len(replicas)}", text, workers=1)
    replicas.append(replica)
    replica.start()
    replica.ready()
    return replica


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=60, verify=False) as made:
        yield made


async def begin(client: httpx.AsyncClient, replica: Replica, agent: str) -> str:
    answer = await client.post(f"{replica.url}/v1/agents/{agent}/runs", json={"input": "go", "background": True})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def ended(client: httpx.AsyncClient, replica: Replica, run: str, *wanted: str, seconds: float = 40) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def over() -> bool:
        nonlocal found
        found = (await client.get(f"{replica.url}/v1/runs/{run}")).json()
        return found.get("status") in (wanted or ("completed", "incomplete", "failed", "cancelled"))

    await until(over, seconds)
    return found


async def events(client: httpx.AsyncClient, replica: Replica, run: str) -> list[dict[str, Any]]:
    text = (await client.get(f"{replica.url}/v1/runs/{run}/events")).text
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]


async def test_a_run_goes_on_after_a_kill_and_a_restart(client: httpx.AsyncClient, a: Upstream, store: str, tmp_path: Path, replicas: list[Replica]) -> None:
    says(a, SUM)
    a.stream(HANG)  # the second turn is under way when the process dies
    says(a, "It is 5.")
    one = started(replicas, tmp_path, config(a, store, tmp_path))
    run = await begin(client, one, "calc")
    await until(lambda: len(a.requests) == 2)
    one.kill()

    again = started(replicas, tmp_path, config(a, store, tmp_path))
    found = await ended(client, again, run)

    assert (found["status"], found["output"]) == ("completed", "It is 5.")
    assert len(a.requests) == 3, "the finished turn was not asked for again"
    told = await events(client, again, run)
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
    assert [event["type"] for event in told].count("tool.finished") == 1
    assert told[-1]["type"] == "run.finished"


async def test_another_replica_takes_over_and_a_reader_there_sees_everything(
    client: httpx.AsyncClient, a: Upstream, postgres: Any, tmp_path: Path, replicas: list[Replica]
) -> None:
    text = config(a, postgres.fresh(), tmp_path)
    says(a, SUM)
    a.stream(HANG)
    says(a, "It is 5.")
    both = [started(replicas, tmp_path, text.replace("retries: 0", f"retries: 0, headers: {{x-replica: '{n}'}}")) for n in range(2)]
    run = await begin(client, both[0], "calc")
    await until(lambda: len(a.requests) == 2)
    owner = int(a.requests[1].headers["x-replica"])
    reader = client.build_request("GET", f"{both[1 - owner].url}/v1/runs/{run}/events")
    answer = await client.send(reader, stream=True)
    assert answer.status_code == 200, await answer.aread()
    both[owner].kill()
    killed = time.monotonic()

    seen = ""
    async for piece in answer.aiter_text():
        seen += piece
    taken = time.monotonic() - killed

    names = [line[7:] for line in seen.split("\n") if line.startswith("event: ")]
    assert names[:1] == ["run.started"], seen
    assert names[-1] == "run.finished"
    assert names.count("tool.finished") == 1
    found = await ended(client, both[1 - owner], run)
    assert (found["status"], found["output"]) == ("completed", "It is 5.")
    assert taken < 25, "it should be 10 s on a machine that has time"


async def test_a_call_that_must_not_be_repeated_has_an_unknown_outcome(client: httpx.AsyncClient, a: Upstream, tmp_path: Path, replicas: list[Replica]) -> None:
    text = config(a, f"sqlite:///{tmp_path}/runs.db", tmp_path)
    says(a, NOTE, "I do not know.")
    one = started(replicas, tmp_path, text)
    run = await begin(client, one, "noter")
    await until(lambda: (tmp_path / "notes.txt").exists())
    one.kill()

    again = started(replicas, tmp_path, text)
    found = await ended(client, again, run)

    assert found["output"] == "I do not know."
    assert (tmp_path / "notes.txt").read_text() == "x\n", "written once"
    assert "unknown" in a.requests[1].json["messages"][-1]["content"]


async def test_a_waiting_run_outlives_its_process(client: httpx.AsyncClient, a: Upstream, tmp_path: Path, replicas: list[Replica]) -> None:
    text = config(a, f"sqlite:///{tmp_path}/runs.db", tmp_path)
    says(a, SUM, "It is 5.")
    one = started(replicas, tmp_path, text)
    run = await begin(client, one, "asker")
    await ended(client, one, run, "waiting")
    one.kill()

    again = started(replicas, tmp_path, text)
    answer = await client.post(f"{again.url}/v1/runs/{run}/approve", json={"approved": True})
    assert answer.status_code == 200, answer.text
    found = await ended(client, again, run)

    assert (found["status"], found["output"]) == ("completed", "It is 5.")
    assert len(a.requests) == 2


async def test_a_run_in_the_background_is_given_back_at_a_clean_end(
    client: httpx.AsyncClient, a: Upstream, store: str, tmp_path: Path, replicas: list[Replica]
) -> None:
    says(a, SUM)
    a.stream(HANG)
    says(a, "It is 5.")
    one = started(replicas, tmp_path, config(a, store, tmp_path))
    run = await begin(client, one, "calc")
    await until(lambda: len(a.requests) == 2)
    ended_at = time.monotonic()
    assert one.stop() == 0
    assert time.monotonic() - ended_at < 15

    again = started(replicas, tmp_path, config(a, store, tmp_path))
    found = await ended(client, again, run)

    assert (found["status"], found["output"]) == ("completed", "It is 5.")
    told = await events(client, again, run)
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
