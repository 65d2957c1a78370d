"""Agents as models, as clients meet them (CONTRACT 8)."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents_yaml import AGENTS, KEYS, asked, says, until
from running import Running, serving, yaml
from upstream_double import CUT, HANG, Upstream, chunk, completion, delta, role, tool_call

from gateway.dialects.messages import Writer

ONE = {"authorization": "Bearer key-number-one-0123456789"}
TWO = {"authorization": "Bearer key-number-two-0123456789"}
SUM = ("calculator", '{"expression": "2+3"}')


@pytest.fixture
async def world(a: Upstream) -> AsyncIterator[Running]:
    async with serving(yaml({"a": a.url}, more=AGENTS)) as running:
        yield running


def chunks(lines: list[str]) -> list[dict[str, Any]]:
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text(lines: list[dict[str, Any]], field: str = "content") -> str:
    return "".join(choice["delta"].get(field) or "" for line in lines for choice in line["choices"])


async def status_is(world: Running, run: str, status: str) -> bool:
    return bool((await world.client.get(f"/v1/runs/{run}")).json()["status"] == status)


async def test_agents_are_listed_as_models(world: Running) -> None:
    listed = (await world.client.get("/v1/models")).json()["data"]
    assert {"m", "agent/plain", "agent/calc"} <= {entry["id"] for entry in listed}
    assert (await world.client.get("/v1/models/agent/calc")).json()["id"] == "agent/calc"
    unknown = await world.chat(asked("nobody"))
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"


async def test_a_plain_answer_holds_the_answer_the_thoughts_and_the_sums(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.")
    answer = await world.chat(asked("calc"))
    body = answer.json()
    message = body["choices"][0]["message"]
    assert message["content"] == "It is 5."
    assert message.get("tool_calls") is None
    assert "calculator" in message["reasoning_content"]
    assert body["usage"]["total_tokens"] == 16  # two turns of 8
    assert body["x_agent"] == {"run_id": answer.headers["x-thinkgate-run-id"], "steps": 2, "cost": None}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["model"] == "agent/calc"
    assert answer.headers["x-thinkgate-chain"] == "a=200,a=200"
    sent = a.requests[1].json["messages"]
    assert sent[-1] == {"role": "tool", "tool_call_id": "c0_0", "content": "5"}


async def test_a_usage_chunk_comes_only_where_it_was_asked_for(world: Running, a: Upstream) -> None:
    says(a, "x")
    lines = chunks(await world.events(asked("plain", stream=True, max_tokens=50)))
    assert all(line["choices"] for line in lines), "a loop over choices[0] must not break"


async def test_the_default_stream_has_ordinary_chunks_only(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.")
    lines = chunks(await world.events(asked("calc", stream=True, stream_options={"include_usage": True})))
    assert all("x_agent" not in line for line in lines)
    assert all("tool_calls" not in choice["delta"] for line in lines for choice in line["choices"])
    assert all(line["choices"] for line in lines[:-1])
    assert text(lines) == "It is 5."
    assert "calculator" in text(lines, "reasoning_content")
    assert lines[-2]["choices"][0]["finish_reason"] == "stop"
    assert lines[-1]["choices"] == []
    assert lines[-1]["usage"]["total_tokens"] == 16


@pytest.mark.parametrize("how", ["metadata", "header"])
async def test_who_asks_gets_the_events_in_whole_chunks(world: Running, a: Upstream, how: str) -> None:
    says(a, SUM, "It is 5.")
    body = asked("calc", stream=True, **({"metadata": {"agent_events": "v1"}} if how == "metadata" else {}))
    lines = chunks(await world.events(body, **({"x_agent_events": "v1"} if how == "header" else {})))
    events = [line["x_agent"] for line in lines if "x_agent" in line]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["type"] for event in events} >= {"run.started", "attempt", "usage", "tool.started", "tool.finished", "run.finished"}
    started = next(event for event in events if event["type"] == "tool.started")
    assert started["data"] == {"id": "c0_0", "name": "calculator", "arguments": {"expression": "2+3"}}
    finished = next(event for event in events if event["type"] == "tool.finished")
    assert finished["data"].items() >= {"id": "c0_0", "name": "calculator", "ok": True, "output": "5"}.items()
    for line in lines:
        assert len(line["choices"]) == 1
        assert "x_agent" not in line or line["choices"][0]["delta"] == {}
    run = events[0]["run_id"]
    journal = (await world.client.get(f"/v1/runs/{run}/events")).text
    assert journal.count("\nid: ") + journal.startswith("id: ") == len(events)


async def test_hidden_thoughts_reach_no_client(world: Running, a: Upstream) -> None:
    """P19."""
    thought = ("sequential_thinking", '{"thought": "SECRET", "thought_number": 1, "total_thoughts": 1, "next_thought_needed": false}')
    says(a, "a SECRET plan", thought, "another SECRET", "It is 5.")
    answer = await world.chat(asked("quiet", stream=True, metadata={"agent_events": "v1"}))
    assert "SECRET" not in answer.text
    assert "It is 5." in answer.text
    run = answer.headers["x-thinkgate-run-id"]
    assert "SECRET" not in (await world.client.get(f"/v1/runs/{run}/events")).text
    assert "SECRET" not in (await world.client.get(f"/v1/runs/{run}")).text
    assert "a SECRET plan" in (await world.client.get(f"/admin/runs/{run}")).text


async def test_full_thoughts_come_as_reasoning_while_they_come(world: Running, a: Upstream) -> None:
    says(a, "first the plan", "It is 5.")
    lines = chunks(await world.events(asked("open", stream=True)))
    assert "first the plan" in text(lines, "reasoning_content")
    assert text(lines) == "It is 5."


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_of_the_clients_own_tools_go_to_the_client_and_come_back(world: Running, a: Upstream, stream: bool) -> None:
    weather = {"type": "function", "function": {"name": "weather_here", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
    says(a, [SUM, ("weather_here", '{"city": "Paris"}')], "Sunny, and 5.")
    body = asked("calc", tools=[weather], stream=stream)
    if stream:
        lines = chunks(await world.events(body))
        calls = [call for line in lines for choice in line["choices"] for call in choice["delta"].get("tool_calls") or ()]
        assert lines[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        choice = (await world.chat(body)).json()["choices"][0]
        calls = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
    assert len(calls) == 1
    assert calls[0]["function"] == {"name": "weather_here", "arguments": '{"city": "Paris"}'}
    again = {**body, "stream": False}
    again["messages"] = [
        *body["messages"],
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "sunny"},
    ]
    answer = await world.chat(again)
    assert answer.json()["choices"][0]["message"]["content"] == "Sunny, and 5."
    results = [message for message in a.requests[1].json["messages"] if message["role"] == "tool"]
    assert [result["content"] for result in results] == ["5", "sunny"]
    used = await world.chat(again)
    assert (used.status_code, used.json()["error"]["code"]) == (409, "run_not_waiting")


async def test_a_tool_message_for_no_run_is_refused(world: Running) -> None:
    body = asked("calc")
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [tool_call("x", "{}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
    ]
    answer = await world.chat(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "run_not_waiting")


@pytest.mark.parametrize(("said", "result"), [('{"approved": true}', "5"), ('{"approved": true, "arguments": {"expression": "40+2"}}', "42")])
async def test_an_approval_is_an_ordinary_tool_call(world: Running, a: Upstream, said: str, result: str) -> None:
    says(a, SUM, "Done.")
    first = (await world.chat(asked("ask"))).json()["choices"][0]
    call = first["message"]["tool_calls"][0]
    request = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "approval_request"
    assert request.items() >= {"tool": "calculator", "arguments": {"expression": "2+3"}}.items()
    assert request["run_id"].startswith("run_")
    assert request["reason"]
    body = asked("ask")
    body["messages"] += [first["message"], {"role": "tool", "tool_call_id": call["id"], "content": said}]
    answer = (await world.chat(body)).json()
    assert answer["choices"][0]["message"]["content"] == "Done."
    assert a.requests[1].json["messages"][-1]["content"] == result


async def test_the_events_of_the_request_that_goes_on_begin_with_what_it_brought(world: Running, a: Upstream) -> None:
    says(a, SUM, "Done.")
    rich = {"stream": True, "metadata": {"agent_events": "v1"}}
    lines = chunks(await world.events(asked("ask", **rich)))
    calls = [call for line in lines for choice in line["choices"] for call in choice["delta"].get("tool_calls") or ()]
    seen = [line["x_agent"] for line in lines if "x_agent" in line]
    body = asked("ask", **rich)
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": '{"approved": true}'},
    ]
    more = [line["x_agent"] for line in chunks(await world.events(body)) if "x_agent" in line]
    assert (seen[-1]["type"], more[0]["type"], more[0]["data"]["approved"]) == ("approval.required", "approval.resolved", True)
    assert [event["seq"] for event in [*seen, *more]] == list(range(1, len(seen) + len(more) + 1))


async def test_a_refused_call_is_an_observation(world: Running, a: Upstream) -> None:
    says(a, SUM, "Then not.")
    first = (await world.chat(asked("ask"))).json()["choices"][0]
    body = asked("ask")
    said = {"approved": False, "reason": "too risky"}
    body["messages"] += [first["message"], {"role": "tool", "tool_call_id": first["message"]["tool_calls"][0]["id"], "content": json.dumps(said)}]
    assert (await world.chat(body)).json()["choices"][0]["message"]["content"] == "Then not."
    assert "too risky" in a.requests[1].json["messages"][-1]["content"]


async def test_a_session_remembers_and_takes_only_what_is_new(world: Running, a: Upstream) -> None:
    says(a, "one", "two", "three", "four")
    await world.chat(asked("plain", "first", metadata={"session_id": "s"}))
    answer = await world.chat(asked("plain", "second"), x_session_id="s")
    assert answer.headers["x-thinkgate-session"] == "s"
    told = [message["content"] for message in a.requests[1].json["messages"] if message["role"] != "system"]
    assert told == ["first", "one", "second"]
    whole = {"model": "agent/plain", "metadata": {"session_id": "s"}}
    whole["messages"] = [
        {"role": r, "content": c} for r, c in (("user", "first"), ("assistant", "one"), ("user", "second"), ("assistant", "two"), ("user", "third"))
    ]
    await world.chat(whole)
    told = [message["content"] for message in a.requests[2].json["messages"] if message["role"] != "system"]
    assert told == ["first", "one", "second", "two", "third"]
    whole["messages"] = [*whole["messages"][:2], {"role": "user", "content": "EDITED"}]
    await world.chat(whole)
    told = [message["content"] for message in a.requests[3].json["messages"] if message["role"] != "system"]
    assert told == ["first", "one", "EDITED"]
    session = (await world.client.get("/v1/sessions/s")).json()
    assert [message["content"] for message in session["messages"]] == ["first", "one", "EDITED", "four"]
    assert (await world.client.delete("/v1/sessions/s")).json()["deleted"] is True
    assert (await world.client.get("/v1/sessions/s")).status_code == 404


async def test_thoughts_and_todos_live_in_the_session(world: Running, a: Upstream) -> None:
    """T19, P26, B141."""

    def thought(number: int) -> tuple[str, str]:
        return "sequential_thinking", json.dumps({"thought": f"t{number}", "thought_number": number, "total_thoughts": 3, "next_thought_needed": number < 3})

    says(a, thought(1), ("todo_write", '{"todos": [{"content": "x", "status": "pending"}]}'), "ok", thought(2), "ok", thought(1), "ok")
    await world.chat(asked("thinker"), x_session_id="s1")
    await world.chat(asked("thinker"), x_session_id="s1")
    result = json.loads(a.requests[4].json["messages"][-1]["content"])
    assert result["data"]["thought_history_length"] == 2
    await world.chat(asked("thinker"), x_session_id="s2")
    assert json.loads(a.requests[-1].json["messages"][-1]["content"])["data"]["thought_history_length"] == 1
    session = (await world.client.get("/v1/sessions/s1")).json()
    assert [todo["content"] for todo in session["todos"]] == ["x"]
    assert session["thoughts"]


async def test_a_session_has_one_run_at_a_time(world: Running, a: Upstream) -> None:
    a.stream(HANG)
    first = asyncio.create_task(world.chat(asked("plain"), x_session_id="s"))
    await until(lambda: bool(a.requests))
    second = await world.chat(asked("plain"), x_session_id="s")
    assert (second.status_code, second.json()["error"]["code"]) == (409, "run_busy")
    first.cancel()


async def test_runs_and_sessions_belong_to_the_key(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, more=AGENTS + KEYS)) as world:
        says(a, "one", "two")
        answer = await world.chat(asked("plain", metadata={"session_id": "s"}), **ONE)
        run = answer.headers["x-thinkgate-run-id"]
        assert (await world.client.get(f"/v1/runs/{run}", headers=ONE)).status_code == 200
        for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/events", "/v1/sessions/s"):
            assert (await world.client.get(path, headers=TWO)).status_code == 404, path
        await world.chat(asked("plain", "mine", metadata={"session_id": "s"}), **TWO)
        assert [m["content"] for m in a.requests[1].json["messages"] if m["role"] == "user"] == ["mine"]
        forbidden = await world.chat(asked("calc"), **TWO)
        assert (forbidden.status_code, forbidden.json()["error"]["code"]) == (403, "model_not_allowed")


async def test_a_chain_that_fails_at_once_is_an_error(world: Running, a: Upstream) -> None:
    a.reply({"error": {"message": "broken"}}, status=500, repeat=4)
    answer = await world.chat(asked("calc"))
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "providers_exhausted"


async def test_a_stream_that_fails_after_its_begin_ends_with_an_error_event(world: Running, a: Upstream) -> None:
    a.reply({"error": {"message": "broken"}}, status=500, repeat=9)
    lines = await world.events(asked("calc", stream=True))
    assert "[DONE]" not in lines
    assert json.loads(lines[-1])["error"]["message"]


async def test_a_turn_that_was_cut_is_asked_for_again_and_no_half_call_is_made(world: Running, a: Upstream) -> None:
    """B149."""
    a.stream(role(), chunk({"tool_calls": [tool_call("calculator", '{"expression": "1+1"')]}), CUT)
    says(a, SUM, "It is 5.")
    lines = chunks(await world.events(asked("calc", stream=True)))
    assert text(lines) == "It is 5."
    results = [message["content"] for message in a.requests[-1].json["messages"] if message["role"] == "tool"]
    assert results == ["5"]


async def test_a_client_that_leaves_ends_a_run_without_a_session(world: Running, a: Upstream) -> None:
    a.stream(role(), delta("x"), HANG)
    async with world.client.stream("POST", "/v1/chat/completions", json=asked("plain", stream=True)) as answer:
        run = answer.headers["x-thinkgate-run-id"]
        async for _ in answer.aiter_bytes():
            break
    await until(lambda: status_is(world, run, "cancelled"))


async def test_a_run_that_detaches_goes_on_when_its_client_leaves(world: Running, a: Upstream) -> None:
    a.stream(role(), delta("half"), 0.3, delta(" whole"), chunk({}, "stop"), "[DONE]")
    async with world.client.stream("POST", "/v1/chat/completions", json=asked("stays", stream=True)) as answer:
        run = answer.headers["x-thinkgate-run-id"]
        async for _ in answer.aiter_bytes():
            break
    await until(lambda: status_is(world, run, "completed"))
    found = (await world.client.get(f"/v1/runs/{run}")).json()
    assert (found["status"], found["output"]) == ("completed", "half whole")


async def test_steps_used_up_give_an_answer_with_finish_reason_length(world: Running, a: Upstream) -> None:
    """B135."""
    says(a, SUM, ("calculator", '{"expression": "1"}'), ("calculator", '{"expression": "2"}'), "as far as I got")
    body = (await world.chat(asked("calc"))).json()
    assert (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]) == ("as far as I got", "length")
    assert "tools" not in a.requests[3].json
    run = (await world.client.get(f"/v1/runs/{body['x_agent']['run_id']}")).json()
    assert (run["status"], run["reason"]) == ("incomplete", "steps")


async def test_a_sub_agents_events_are_marked_and_its_text_stays_inside(world: Running, a: Upstream) -> None:
    """B147."""
    says(a, ("agent_calc", '{"task": "add"}'), SUM, "inner answer", "outer answer")
    lines = chunks(await world.events(asked("boss", stream=True, metadata={"agent_events": "v1"})))
    assert text(lines) == "outer answer"
    events = [line["x_agent"] for line in lines if "x_agent" in line]
    inner = [event for event in events if "parent_run_id" in event]
    assert inner
    assert {event["agent"] for event in inner} == {"calc"}
    assert {event["parent_run_id"] for event in inner} == {events[0]["run_id"]}
    assert [event["type"] for event in inner][:1] + [event["type"] for event in inner][-1:] == ["run.started", "run.finished"]


async def test_agents_speak_responses_and_messages(world: Running, a: Upstream) -> None:
    says(a, SUM, "It is 5.", SUM, "It is 5.")
    answer = (await world.client.post("/v1/responses", json={"model": "agent/calc", "input": "2+3?"})).json()
    texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    assert (texts, answer["status"], answer["usage"]["total_tokens"]) == (["It is 5."], "completed", 16)
    assert all(item["type"] != "function_call" for item in answer["output"])
    body = {"model": "agent/calc", "max_tokens": 50, "messages": [{"role": "user", "content": "2+3?"}]}
    answer = (await world.client.post("/v1/messages", json=body)).json()
    assert [block["text"] for block in answer["content"] if block["type"] == "text"] == ["It is 5."]
    assert answer["stop_reason"] == "end_turn"


async def test_what_an_agent_cannot_serve_is_refused_with_its_place(world: Running) -> None:
    for path, body, param in (
        ("/v1/completions", {"model": "agent/calc", "prompt": "x"}, "model"),
        ("/v1/chat/completions", asked("calc", n=2), "n"),
        ("/v1/chat/completions", {"model": "agent/calc", "messages": []}, "messages"),
        ("/v1/chat/completions", asked("calc", metadata={"session_id": "x" * 300}), "metadata.session_id"),
        ("/v1/chat/completions", asked("calc", tools=[{"type": "function", "function": {"name": "calculator"}}]), "tools"),
    ):
        answer = await world.client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_every_turns_thoughts_begin_on_a_line_of_their_own(world: Running, a: Upstream) -> None:
    a.reply(completion("first the plan", reasoning_content="what is asked"))
    a.reply(completion(None, calls=[tool_call("calculator", '{"expression": "2+3"}')], reasoning_content="I need a tool"))
    a.reply(completion("then the end", reasoning_content="it is known"))
    a.reply(completion("It is 5.", reasoning_content="all is there"))
    lines = text(chunks(await world.events(asked("open", stream=True))), "reasoning_content").splitlines()
    thoughts = ["what is asked", "first the plan", "I need a tool", "it is known", "then the end", "all is there"]
    assert [line for line in lines if line in thoughts] == thoughts
    assert "" not in lines


async def test_what_waits_for_the_store_holds_nothing_of_an_answer_that_is_over(world: Running, a: Upstream) -> None:
    """A store may be away for long, and ten thousand rows may wait for it."""

    def writers() -> int:
        gc.collect()
        return sum(isinstance(thing, Writer) for thing in gc.get_objects())

    says(a, "It is 5.")
    before, usage = writers(), world.gateway.ledger.usage  # what other tests still hold, those that failed for one
    usage._pause = 60.0
    body = {"model": "agent/plain", "max_tokens": 50, "stream": True, "messages": [{"role": "user", "content": "2+3?"}]}
    assert "message_stop" in (await world.client.post("/v1/messages", json=body)).text
    await until(lambda: len(usage) == 1)
    assert writers() == before
