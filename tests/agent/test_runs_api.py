"""The runs API: background runs, their events, answers, forks (CONTRACT 4 and 8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents_yaml import AGENTS, KEYS, says, until
from running import Running, serving, yaml
from upstream_double import HANG, Upstream, chunk, delta, role

SUM = ("calculator", '{"expression": "2+3"}')
ENDED = ("completed", "incomplete", "failed", "cancelled", "waiting")


@pytest.fixture
async def world(a: Upstream) -> AsyncIterator[Running]:
    async with serving(yaml({"a": a.url}, more=AGENTS)) as running:
        yield running


async def start(world: Running, agent: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return await world.client.post(f"/v1/agents/{agent}/runs", json={"input": "What is 2+3?", **body}, headers=headers or {})


async def ended(world: Running, run: str, wanted: tuple[str, ...] = ENDED, headers: dict[str, str] | None = None) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            found: dict[str, Any] = (await world.client.get(f"/v1/runs/{run}", headers=headers or {})).json()
            if found["status"] in wanted:
                return found
            await asyncio.sleep(0.02)


def events(text: str) -> list[tuple[int | None, str, dict[str, Any]]]:
    out = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            out.append((int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"])))
    return out


async def test_a_run_in_the_foreground_answers_with_the_finished_run(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.")
    answer = await start(world, "calc", metadata={"ticket": 7})
    run = answer.json()
    assert answer.status_code == 200
    assert run["id"] == answer.headers["x-thinkgate-run-id"]
    fields = {"object": "run", "agent": "calc", "session_id": None, "status": "completed", "output": "It is 5.", "reason": None, "steps": 2, "error": None}
    assert run.items() >= fields.items()
    assert run["usage"]["total_tokens"] == 16
    assert run["finished_at"] >= run["created_at"] > 0
    assert {"reasoning", "cost"} <= set(run)


async def test_a_text_is_new_to_its_session_also_where_it_is_what_the_session_began_with(world: Running, a: Upstream) -> None:
    says(a, "Hello.", "Fine.", "Hello again.")
    for text in ("hi", "how are you?", "hi"):
        assert (await start(world, "plain", input=text, session_id="s")).json()["status"] == "completed"
    said = (await world.client.get("/v1/sessions/s")).json()["messages"]
    assert [message["content"] for message in said] == ["hi", "Hello.", "how are you?", "Fine.", "hi", "Hello again."]


async def test_messages_that_are_the_whole_history_are_taken_as_such(world: Running, a: Upstream) -> None:
    says(a, "Hello.", "Fine.")
    hello = {"role": "user", "content": "hi"}
    await start(world, "plain", input=[hello], session_id="s")
    await start(world, "plain", input=[hello, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "how are you?"}], session_id="s")
    said = (await world.client.get("/v1/sessions/s")).json()["messages"]
    assert [message["content"] for message in said] == ["hi", "Hello.", "how are you?", "Fine."]


async def test_a_run_in_the_background_is_accepted_and_finishes(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.")
    answer = await start(world, "calc", background=True)
    assert answer.status_code == 202
    assert answer.json()["status"] == "queued"
    assert answer.json()["run_id"] == answer.json()["id"] == answer.headers["x-thinkgate-run-id"]
    assert (await ended(world, answer.json()["id"]))["output"] == "It is 5."


@pytest.mark.parametrize(
    ("body", "headers", "session"),
    [({"metadata": {"session_id": "m"}}, {"x-session-id": "h"}, "m"), ({}, {"x-session-id": "h"}, "h"), ({"session_id": "b"}, {"x-session-id": "h"}, "b")],
)
async def test_a_run_belongs_to_the_session_that_its_request_names(world: Running, a: Upstream, body: Any, headers: dict[str, str], session: str) -> None:
    says(a, SUM, "It is 5.")
    answer = await start(world, "calc", headers, **body)
    assert answer.json()["session_id"] == answer.headers["x-thinkgate-session"] == session


async def test_readyz_tells_what_this_process_has_of_the_work(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.")
    await ended(world, (await start(world, "calc", background=True)).json()["id"])
    told = (await world.client.get("/readyz")).json()["agents"]
    assert (told["live"], told["work"]["error"], told["journal"]["held"]) == (0, None, 0)


async def test_events_are_replayed_from_where_the_client_was(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.")
    run = (await start(world, "calc")).json()["id"]
    every = events((await world.client.get(f"/v1/runs/{run}/events")).text)
    assert [number for number, _, _ in every] == list(range(1, len(every) + 1))
    assert (every[0][1], every[-1][1]) == ("run.started", "run.finished")
    assert every[-1][2]["data"] == {"status": "completed", "reason": None, "output": "It is 5."}
    assert all(data["seq"] == number and data["type"] == name and data["run_id"] == run for number, name, data in every)
    later = events((await world.client.get(f"/v1/runs/{run}/events", headers={"last-event-id": "3"})).text)
    assert later == every[3:]
    wrong = await world.client.get(f"/v1/runs/{run}/events", headers={"last-event-id": "x"})
    assert wrong.status_code == 400


async def test_events_are_followed_while_they_happen(world: Running, a: Upstream) -> None:
    a.stream(role(), delta("It "), 0.2, delta("is 5."), chunk({}, "stop"), "[DONE]")
    run = (await start(world, "plain", background=True)).json()["id"]
    seen = events((await world.client.get(f"/v1/runs/{run}/events")).text)
    assert seen[-1][1] == "run.finished"
    assert [number for number, _, _ in seen if number] == list(range(1, len([n for n, _, _ in seen if n]) + 1))


async def test_a_streamed_run_has_named_events_and_its_text_as_it_comes(world: Running, a: Upstream) -> None:
    a.stream(role(), delta("It "), delta("is 5."), chunk({}, "stop"), "[DONE]")
    answer = await start(world, "plain", stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = events(answer.text)
    assert "".join(data["text"] for number, name, data in seen if name == "delta" and number is None) == "It is 5."
    assert seen[-1][1] == "run.finished"


async def test_a_run_is_cancelled_and_keeps_what_it_had(world: Running, a: Upstream) -> None:
    says(a, SUM)
    a.stream(HANG)
    run = (await start(world, "calc", background=True)).json()["id"]
    await until(lambda: len(a.requests) == 2)
    answer = (await world.client.post(f"/v1/runs/{run}/cancel")).json()
    assert answer["status"] == "cancelled"
    assert "5" in answer["output"]
    again = (await world.client.post(f"/v1/runs/{run}/cancel")).json()
    assert again["status"] == "cancelled"
    told = events((await world.client.get(f"/v1/runs/{run}/events")).text)
    assert told[-1][2]["data"]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("said", "result"),
    [({"approved": True}, "5"), ({"approved": True, "arguments": {"expression": "40+2"}}, "42"), ({"approved": False, "reason": "too risky"}, "too risky")],
)
async def test_a_waiting_run_is_approved_over_http(world: Running, a: Upstream, said: dict[str, Any], result: str) -> None:
    says(a, SUM, "Done.")
    run = (await start(world, "ask", background=True)).json()["id"]
    assert (await ended(world, run))["status"] == "waiting"
    answer = await world.client.post(f"/v1/runs/{run}/approve", json=said)
    assert answer.status_code == 200, answer.text
    found = await ended(world, run, ENDED[:4])
    assert found["output"] == "Done."
    assert result in a.requests[1].json["messages"][-1]["content"]
    again = await world.client.post(f"/v1/runs/{run}/approve", json=said)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "run_not_waiting")


async def test_an_approval_that_nobody_gives_in_time_is_refused(world: Running, a: Upstream) -> None:
    says(a, SUM, "Then not.")
    run = (await start(world, "hurry")).json()
    assert run["status"] == "waiting"
    found = await ended(world, run["id"], ENDED[:4])
    assert (found["status"], found["output"]) == ("completed", "Then not.")
    assert "nobody answered in time" in a.requests[1].json["messages"][-1]["content"]
    late = await world.client.post(f"/v1/runs/{run['id']}/approve", json={"approved": True})
    assert late.status_code == 409


async def test_more_input_goes_on_with_an_incomplete_run(world: Running, a: Upstream) -> None:
    says(a, SUM, ("calculator", '{"expression": "1"}'), ("calculator", '{"expression": "2"}'), "so far", "the rest")
    run = (await start(world, "calc")).json()
    assert (run["status"], run["reason"], run["output"]) == ("incomplete", "steps", "so far")
    answer = await world.client.post(f"/v1/runs/{run['id']}/input", json={"input": "go on"})
    assert answer.status_code == 200, answer.text
    found = await ended(world, run["id"], ("completed",))
    assert found["output"] == "the rest"
    assert found["usage"]["total_tokens"] == 5 * 8
    told = a.requests[4].json["messages"]
    assert told[-1] == {"role": "user", "content": "go on"}
    assert [message["content"] for message in told if message["role"] == "tool"] == ["5", "1", "2"]
    numbers = [number for number, _, _ in events((await world.client.get(f"/v1/runs/{run['id']}/events")).text)]
    assert numbers == list(range(1, len(numbers) + 1))
    over = await world.client.post(f"/v1/runs/{run['id']}/input", json={"input": "more"})
    assert over.status_code == 409


async def test_more_input_gives_a_run_its_limits_anew(a: Upstream) -> None:
    agents = "agents:\n  few: {pattern: simple, model: m, tools: [calculator], limits: {tokens: 10}}\n"
    async with serving(yaml({"a": a.url}, more=agents)) as world:
        says(a, SUM, ("calculator", '{"expression": "1"}'), "the rest", "more")
        run = (await start(world, "few")).json()
        assert (run["status"], run["reason"], run["usage"]["total_tokens"]) == ("incomplete", "tokens", 16)
        await world.client.post(f"/v1/runs/{run['id']}/input", json={"input": "go on"})
        found = await ended(world, run["id"], ("completed",))
        assert (found["output"], found["usage"]["total_tokens"]) == ("the rest", 24)


async def test_a_fork_goes_its_own_way_from_an_event_on(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.", "It is 99.")
    run = (await start(world, "calc")).json()["id"]
    every = events((await world.client.get(f"/v1/runs/{run}/events")).text)
    at = next(number for number, name, _ in every if name == "tool.finished")
    answer = await world.client.post(f"/v1/runs/{run}/fork", json={"seq": at, "tool_result": "99", "prompt": "Be short."})
    assert answer.status_code == 200, answer.text
    forked = await ended(world, answer.json()["id"])
    assert (forked["status"], forked["output"]) == ("completed", "It is 99.")
    assert len(a.requests) == 3  # the first turn was not asked for again
    sent = a.requests[2].json["messages"]
    assert sent[-1]["content"] == "99"
    assert sent[0]["content"].startswith("Be short.")
    mine = events((await world.client.get(f"/v1/runs/{forked['id']}/events")).text)
    assert [name for _, name, _ in mine[:at]] == [name for _, name, _ in every[:at]]
    assert (await world.client.get(f"/v1/runs/{run}")).json()["output"] == "It is 5."


@pytest.mark.parametrize("body", [{"seq": 0}, {"seq": 999}, {}, {"seq": 1, "tool_result": "x"}, {"seq": 1, "model": "nobody"}])
async def test_a_fork_that_cannot_be_says_why(world: Running, a: Upstream, body: dict[str, Any]) -> None:
    says(a, "x")
    run = (await start(world, "plain")).json()["id"]
    answer = await world.client.post(f"/v1/runs/{run}/fork", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"]


async def test_a_repeated_request_with_its_key_is_the_same_run(world: Running, a: Upstream) -> None:
    says(a, "one", "two")
    headers = {"idempotency-key": "k1"}
    first = (await start(world, "plain", headers)).json()
    second = (await start(world, "plain", headers)).json()
    assert (second["id"], second["output"]) == (first["id"], "one")
    assert len(a.requests) == 1
    other = await start(world, "plain", headers, input="something else")
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": "x", "background": "yes"}, "background"),
        ({"input": "x", "colour": 1}, "colour"),
        ({"input": "x", "options": {"max_reflections": -1}}, "options.max_reflections"),
        ({"input": "x", "options": {"colour": 1}}, "options.colour"),
    ],
)
async def test_a_wrong_request_names_its_place(world: Running, body: dict[str, Any], param: str) -> None:
    answer = await world.client.post("/v1/agents/plain/runs", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_what_does_not_exist_is_404(world: Running) -> None:
    assert (await start(world, "nobody")).status_code == 404
    for method, path in (("GET", "/v1/runs/x"), ("GET", "/v1/runs/x/events"), ("POST", "/v1/runs/x/cancel"), ("GET", "/v1/sessions/x")):
        assert (await world.client.request(method, path)).status_code == 404, path


async def test_a_run_in_the_background_is_paid_by_its_key(a: Upstream) -> None:
    prices = "models: {a-model: {input: 100, output: 100}}\nretries: 0"
    async with serving(yaml({"a": a.url}, more=AGENTS + KEYS, a=prices, server="admin_key: admin-key-0123456789")) as world:
        one = {"authorization": "Bearer key-number-one-0123456789"}
        says(a, SUM, "It is 5.")
        run = (await start(world, "calc", one, background=True)).json()["id"]
        assert (await ended(world, run, headers=one))["cost"] == pytest.approx(0.0016)
        async with asyncio.timeout(5):
            while True:
                usage = (await world.client.get("/admin/usage?by=key", headers={"authorization": "Bearer admin-key-0123456789"})).json()["data"]
                if any(row["name"] == "one" and row["cost"] == pytest.approx(0.0016) for row in usage):
                    break
                await asyncio.sleep(0.05)
        listed = (await world.client.get("/admin/runs", headers={"authorization": "Bearer admin-key-0123456789"})).json()["data"]
        assert [(row["id"], row["key"]) for row in listed] == [(run, "one")]


ADMIN = {"authorization": "Bearer admin-key-0123456789"}
ONE = {"authorization": "Bearer key-number-one-0123456789"}
PRICED = "models: {a-model: {input: 100, output: 100}}\nretries: 0"


async def test_a_run_in_the_background_is_one_request_of_its_key_for_as_long_as_it_takes(a: Upstream) -> None:
    keys = "keys:\n  one: {key: key-number-one-0123456789, concurrency: 1}\n"
    async with serving(yaml({"a": a.url}, more=AGENTS + keys)) as world:
        a.stream(role(), delta("It "), 0.5, delta("is 5."), chunk({}, "stop"), "[DONE]")
        run = (await start(world, "plain", ONE, background=True)).json()["id"]
        await until(lambda: len(a.requests) == 1)
        busy = await start(world, "plain", ONE)
        assert (busy.status_code, busy.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        await ended(world, run, headers=ONE)
        says(a, "free")

        async def free() -> bool:
            return (await start(world, "plain", ONE)).status_code == 200

        await until(free)


async def test_a_run_that_waits_for_a_person_holds_no_place(a: Upstream) -> None:
    keys = "keys:\n  one: {key: key-number-one-0123456789, concurrency: 1}\n"
    async with serving(yaml({"a": a.url}, more=AGENTS + keys)) as world:
        says(a, SUM, "x")
        run = (await start(world, "ask", ONE, background=True)).json()["id"]
        await ended(world, run, ("waiting",), headers=ONE)

        async def free() -> bool:
            return (await start(world, "plain", ONE)).status_code == 200

        await until(free)


async def test_a_streamed_run_is_paid_by_its_key(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, more=AGENTS + KEYS, a=PRICED, server="admin_key: admin-key-0123456789")) as world:
        says(a, SUM, "It is 5.")
        await start(world, "calc", ONE, stream=True)

        async def paid() -> bool:
            usage = (await world.client.get("/admin/usage?by=key", headers=ADMIN)).json()["data"]
            return any(row["name"] == "one" and row["cost"] == pytest.approx(0.0016) for row in usage)

        await until(paid)


async def test_each_key_of_the_server_has_its_own_runs_and_sessions(a: Upstream) -> None:
    """CONTRACT 8: a session is bound to the key, also where the keys are the server's."""
    one, two = ({"authorization": f"Bearer key-number-{name}-0123456789"} for name in ("one", "two"))
    server = "keys: [key-number-one-0123456789, key-number-two-0123456789]"
    says(a, "mine", "and mine")
    async with serving(yaml({"a": a.url}, server=server, more=AGENTS)) as world:
        run = (await start(world, "calc", one, session_id="s", background=True)).json()["id"]
        assert (await ended(world, run, headers=one))["output"] == "mine"
        mine = [(await world.client.get(path, headers=one)).status_code for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/events", "/v1/sessions/s")]
        others = [(await world.client.get(path, headers=two)).status_code for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/events", "/v1/sessions/s")]
        again = (await start(world, "calc", two, session_id="s")).json()["output"]
        asked = len(a.requests[1].json["messages"])

    assert (mine, others) == ([200, 200, 200], [404, 404, 404])
    assert (again, asked) == ("and mine", len(a.requests[0].json["messages"])), "nothing of the other's session"


async def test_the_stream_of_a_new_run_shows_what_the_agent_lets_clients_see_and_no_more(world: Running, a: Upstream) -> None:
    """CONTRACT 8: `hidden` keeps thoughts out of every event that a client gets."""
    seen = {}
    for agent in ("quiet", "open"):
        says(a, "a secret plan", "It is 5.")
        told = events((await start(world, agent, stream=True)).text)
        seen[agent] = {name for _, name, _ in told} | {data["kind"] for _, name, data in told if name == "delta"}
        assert ("a secret plan" in json.dumps(told)) == (agent == "open")
    assert not {"thought", "reasoning"} & seen["quiet"]
    assert {"thought", "reasoning"} <= seen["open"]


async def test_a_client_that_leaves_an_event_stream_gives_back_its_place(a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    """Before the first event, and after some of them; the run of a stream that nobody reads ends."""
    one, body = {"authorization": "Bearer key-number-one-0123456789"}, {"input": "x", "stream": True}
    limited = KEYS.replace('0123456789"}', '0123456789", concurrency: 1}', 1)
    async with serving(yaml({"a": a.url}, more=AGENTS + limited)) as world:
        a.stream(role(), delta("late"), HANG, repeat=None)
        came = iter([{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}])

        async def receive() -> Any:
            return next(came, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            """Nobody reads it."""

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *((name.encode(), value.encode()) for name, value in one.items())]
        path = "/v1/agents/plain/runs"
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
        await world.gateway.asgi({**scope, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http", "root_path": ""}, receive, send)

        async with world.client.stream("POST", path, json=body, headers=one) as answer:
            assert answer.status_code == 200, "the place of the first one is free"
            async for line in answer.aiter_lines():
                if "late" in line:
                    break
        account = world.gateway.ledger.authority.account("file:one")
        assert account is not None
        await until(lambda: account.meter.running == 0)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
