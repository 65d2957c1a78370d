"""No request ever gets the answer to another body, of another tenant or model; and what is kept stays within its bounds."""

from __future__ import annotations

import asyncio
import copy
import json
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import yaml

from gateway import config
from gateway.app import Gateway
from gateway.chat import Accumulator, Body, Record, Request, dumps
from gateway.errors import GatewayError
from gateway.routing import wants_kept
from gateway.routing.answers import Answers, Kept
from gateway.upstream import Url


class Echo:
    """A transport whose every answer has a number of its own; `asked` are the bodies that came."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def open(self, method: bytes, url: Url, headers: Any, body: bytes, *, connect: float, deadline: float) -> Said:
        self.asked.append(json.loads(body))
        said = Said(str(len(self.asked)), bool(self.asked[-1].get("stream")))
        await asyncio.sleep(0)
        return said

    async def aclose(self) -> None:
        """It has nothing open."""


class Said:
    status = 200

    def __init__(self, text: str, stream: bool) -> None:
        self.headers = [(b"content-type", b"text/event-stream" if stream else b"application/json")]
        head = {"id": f"chatcmpl-{text}", "created": 1, "model": "m"}
        if stream:
            deltas: list[Any] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
            events = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in deltas]
            self._body = [b"".join(b"data: %b\n\n" % dumps(event) for event in events) + b"data: [DONE]\n\n"]
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self._body = [dumps({**head, "object": "chat.completion", "choices": [choice]})]

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)

    async def read(self, deadline: float) -> bytes | None:
        await asyncio.sleep(0)
        return self._body.pop() if self._body else None

    async def aclose(self) -> None:
        self._body.clear()


CONFIG = config.parse(
    yaml(
        {"a": "http://127.0.0.1:9/v1", "b": "http://127.0.0.1:9/v1"},
        more="  n:\n    chain: [a/a-model]\n    cache: {exact: 10m}\n",
        model="cache: {exact: 10m}",
    ),
    env={},
)


def gateway(echo: Echo) -> Gateway:
    return Gateway(lambda: CONFIG, connect=lambda provider, url: echo)


async def ask(running: Gateway, body: dict[str, Any], *, tenant: str = "", **fields: Any) -> str:
    """The text of the answer to a request that takes kept ones."""
    state = running.state
    chain, _ = state.router.find(body["model"])
    stream = bool(body.get("stream"))
    request = Request(Body(dumps(body)), body["model"], Record("r", tenant=tenant, stream=stream), stream=stream, **fields)
    whole = Accumulator()
    async with aclosing(state.cache.over(chain).generate(request)) as chunks:
        async for chunk in chunks:
            value = chunk.json()
            if chunk.whole:
                return str(value["choices"][0]["message"]["content"])
            whole.add(value)
    return str(whole.completion()["choices"][0]["message"]["content"])


BODY: dict[str, Any] = {
    "model": "m",
    "temperature": 0,
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {}, "b": {}}}}}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    out = copy.deepcopy(BODY)
    at: Any = out
    *parents, last = path.split(".")
    for name in parents:
        at = at[int(name) if name.isdigit() else name]
    at[int(last) if last.isdigit() else last] = value
    return out


@pytest.mark.parametrize(
    "other",
    [
        changed("messages.1.content", "hi "),
        changed("messages.1.content", "Hi"),
        changed("messages.0.role", "developer"),
        changed("messages.1", {"content": "hi", "role": "user"}),  # nobody knows whether a template minds
        changed("temperature", 0.0),
        changed("seed", 1),
        changed("seed", 2**70),
        changed("n", 2),
        changed("user", "u"),
        changed("metadata", {"k": "v"}),
        changed("unknown_field", None),
        changed("tools", []),
        changed("tools.0.function.parameters.properties", {"b": {}, "a": {}}),  # models write arguments in this order
        changed("model", "n"),
        changed("stream_options", {"include_obfuscation": True}),
    ],
)
async def test_whatever_differs_makes_another_request(other: dict[str, Any]) -> None:
    running = gateway(Echo())

    first = await ask(running, BODY)
    assert await ask(running, other) != first
    assert await ask(running, BODY) == first


@pytest.mark.parametrize(
    "same",
    [dict(reversed(BODY.items())), {**BODY, "stream": False}, {**BODY, "stream": True}, {**BODY, "stream": True, "stream_options": {"include_usage": True}}],
)
async def test_what_only_says_how_the_answer_comes_makes_no_other(same: dict[str, Any]) -> None:
    running = gateway(Echo())

    assert await ask(running, BODY) == await ask(running, same) == "1"


@pytest.mark.parametrize(
    "other",
    [{"tenant": "t"}, {"dialect": "messages", "endpoint": "messages"}, {"headers": {"openai-beta": "x"}}, {"headers": {"anthropic-beta": "x"}}, {"only": "b"}],
    ids=str,
)
async def test_nor_does_the_same_body_of_somebody_else_get_it(other: dict[str, Any]) -> None:
    running = gateway(Echo())

    await ask(running, BODY)
    request = Request(Body(dumps(BODY)), "m", Record("r", tenant=other.get("tenant", "")), **{k: v for k, v in other.items() if k != "tenant"})
    chunks = [chunk async for chunk in running.state.cache.over(running.state.router.find("m")[0]).generate(request)]

    assert b'"2"' in chunks[-1].data
    assert request.record.cache == "miss"


async def test_a_body_that_no_target_can_be_sent_gets_the_chains_own_error() -> None:
    running = gateway(Echo())

    with pytest.raises(GatewayError) as error:
        await ask(running, {**BODY, "messages": "none"}, dialect="messages", endpoint="messages")
    assert error.value.status == 400


values = st.sampled_from(["", "a", "b", 0, 1, None, [], {}, ["a"], {"a": "b"}])
bodies = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["m", "n"]),
        "messages": st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.sampled_from("abc")}), max_size=2),
    },
    optional={"user": values, "seed": values, "stop": values, "stream": st.booleans(), "stream_options": st.just({"include_usage": True})},
)
asked = st.lists(st.tuples(st.sampled_from(["", "t", "tm"]), bodies, st.sampled_from([None, "a"]), st.booleans()), min_size=2, max_size=12)


@given(asked)
@settings(max_examples=150, deadline=None)
def test_one_answer_is_only_ever_given_to_equal_requests(requests: list[tuple[str, dict[str, Any], str | None, bool]]) -> None:
    """Each answer has a number; whoever gets the same number asked the same. `together`: at the same time as the one before."""
    echo = Echo()

    async def run() -> list[str]:
        running = gateway(echo)
        tasks: list[asyncio.Task[str]] = []
        for tenant, body, only, together in requests:
            if tasks and not together:
                await asyncio.wait(tasks)
            tasks.append(asyncio.create_task(ask(running, body, tenant=tenant, only=only)))
        return await asyncio.gather(*tasks)

    owners: dict[str, str] = {}
    for (tenant, body, _, _), number in zip(requests, asyncio.run(run()), strict=True):
        plain = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
        assert owners.setdefault(number, repr((tenant, sorted(plain.items())))) == repr((tenant, sorted(plain.items())))
        sent = echo.asked[int(number) - 1]
        assert {name: sent.get(name) for name in plain if name != "model"} == {name: value for name, value in plain.items() if name != "model"}


@pytest.mark.parametrize(
    ("header", "body", "wanted"),
    [
        (None, {}, False),
        (None, {"temperature": 0}, True),
        (None, {"temperature": -0.0}, True),
        (None, {"temperature": 1e-9}, False),
        (None, {"temperature": False}, False),
        (b" on ", {}, True),
        (b"off", {"temperature": 0}, False),
        (b"", {"temperature": 0}, True),
    ],
)
def test_who_wants_a_kept_answer(header: bytes | None, body: dict[str, Any], wanted: bool) -> None:
    assert wants_kept(header, body) is wanted


# ---- the memory


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(size: int = 0, text: str = "x") -> Kept:
    return Kept("a", "m", (), (), text.encode() * size)


def test_an_answer_expires() -> None:
    clock = Time()
    answers = Answers(now=clock)
    answers.put("t", b"k", kept(), 10)

    clock.now = 9.9
    assert answers.get("t", b"k") == kept()
    clock.now = 10
    assert answers.get("t", b"k") is None
    assert (len(answers), answers.size) == (0, 0)


def test_using_an_answer_does_not_make_it_younger() -> None:
    clock = Time()
    answers = Answers(now=clock)
    answers.put("t", b"k", kept(), 10)
    for clock.now in (3.0, 6.0, 9.0):
        assert answers.get("t", b"k") is not None
    clock.now = 11
    assert answers.get("t", b"k") is None


def test_no_tenant_sees_anothers() -> None:
    answers = Answers()
    answers.put("t", b"k", kept(), 10)

    assert answers.get("u", b"k") is None
    assert answers.get("", b"k") is None


def test_the_least_recently_used_one_gives_way() -> None:
    answers = Answers(entries=2)
    for key in (b"1", b"2"):
        answers.put("t", key, kept(), 10)
    answers.get("t", b"1")
    answers.put("t", b"3", kept(), 10)

    assert [answers.get("t", key) is not None for key in (b"1", b"2", b"3")] == [True, False, True]


def test_it_is_taken_from_the_tenant_that_holds_most() -> None:
    answers = Answers(size=10 * kept(1000).size)
    answers.put("small", b"k", kept(1000), 10)
    for number in range(50):
        answers.put("large", b"%d" % number, kept(1000), 10)

    assert answers.get("small", b"k") is not None
    assert len(answers) == 10


def test_what_is_too_large_is_not_kept() -> None:
    answers = Answers(size=5000)
    answers.put("t", b"small", kept(100), 10)
    answers.put("t", b"large", kept(6000), 10)

    assert answers.get("t", b"large") is None
    assert answers.get("t", b"small") is not None


puts = st.lists(st.tuples(st.sampled_from("tuv"), st.binary(min_size=1, max_size=1), st.integers(0, 3000), st.floats(0, 5)), max_size=60)


@given(puts)
def test_the_bounds_hold_and_the_count_is_right(entries: list[tuple[str, bytes, int, float]]) -> None:
    clock = Time()
    answers, last = Answers(entries=8, size=15_000, now=clock), {}
    for tenant, key, size, pause in entries:
        clock.now += pause
        answers.put(tenant, key, kept(size, tenant), 10)
        last[tenant, key] = kept(size, tenant)
        shelves = answers._shelves.values()
        assert len(answers) <= 8
        assert answers.size == sum(found.size for shelf in shelves for found, _ in shelf.entries.values()) <= 15_000
    for (tenant, key), value in last.items():
        assert answers.get(tenant, key) in (None, value)
