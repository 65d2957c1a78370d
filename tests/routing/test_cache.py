"""Equal requests get equal answers: from memory, or from the one call that is under way; no request gets another one's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import CUT, DONE, Seen, Upstream, answer, completion, delta, events, finish, plain, role, thought, tool_call, usage

KEPT = "cache: {exact: 10m}"
ZERO: dict[str, Any] = {**CHAT, "temperature": 0}
ZERO_STREAM: dict[str, Any] = {**STREAM, "temperature": 0}
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


def on(*upstreams: Upstream, more: str = "", **settings: str) -> str:
    names = "abcdef"
    return yaml({names[i]: upstream.url for i, upstream in enumerate(upstreams)}, model=f"{KEPT}\n{more}", **settings)


def numbered(a: Upstream) -> Upstream:
    """Every answer says which request it is for, in both forms."""

    def made(seen: Seen) -> Any:
        words = f"answer {len(a.requests)}"
        return events(*answer("ans", words[3:], usage_chunk=True)) if seen.json.get("stream") else plain(completion(words))

    return a.call(made)


def parsed(events: list[str]) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events if event != "[DONE]"]


def choices(events: list[str]) -> list[dict[str, Any]]:
    return [choice for chunk in parsed(events) for choice in chunk["choices"]]


def text(events: list[str], field: str = "content") -> str:
    return "".join(choice["delta"].get(field) or "" for choice in choices(events))


def finishes(events: list[str]) -> list[str]:
    return [choice["finish_reason"] for choice in choices(events) if choice["finish_reason"]]


async def metric(running: Running, line: str) -> bool:
    return line in (await running.client.get("/metrics")).text


# ---- asked for, or not


async def test_an_equal_request_at_temperature_zero_is_answered_from_memory(a: Upstream) -> None:
    async with serving(on(numbered(a))) as running:
        first = await running.chat(ZERO)
        second = await running.chat({**ZERO, "temperature": 0})
        assert await metric(running, 'thinkgate_cache_total{result="hit"} 1.0')
        assert await metric(running, 'thinkgate_cache_total{result="miss"} 1.0')

    assert first.content == second.content
    assert [r.headers["x-thinkgate-cache"] for r in (first, second)] == ["miss", "hit"]
    assert len(a.requests) == 1
    assert second.headers["x-thinkgate-provider"] == "a"
    assert second.headers["x-thinkgate-model"] == "a-model"
    assert "x-thinkgate-attempts" not in second.headers


@pytest.mark.parametrize(
    ("body", "header", "calls"),
    [
        ({}, None, 2),
        ({}, "on", 1),
        ({}, "ON", 1),
        ({}, "off", 2),
        ({}, "perhaps", 2),
        ({"temperature": 0}, "off", 2),
        ({"temperature": 0.0}, None, 1),
        ({"temperature": 0}, "perhaps", 1),
        ({"temperature": 0.1}, None, 2),
        ({"temperature": 0.1}, "on", 1),
        ({"temperature": False}, None, 2),
        ({"temperature": None}, None, 2),
        ({"temperature": "0"}, None, 2),
    ],
)
async def test_who_opts_in(a: Upstream, body: dict[str, Any], header: str | None, calls: int) -> None:
    headers = {"x_thinkgate_cache": header} if header else {}

    async with serving(on(numbered(a))) as running:
        got = [await running.chat({**CHAT, **body}, **headers) for _ in range(2)]

    assert len(a.requests) == calls
    assert ["x-thinkgate-cache" in r.headers for r in got] == [calls == 1] * 2
    assert all("x-thinkgate-cache" not in seen.headers for seen in a.requests)


async def test_a_model_without_the_setting_keeps_nothing(a: Upstream) -> None:
    async with serving(yaml({"a": numbered(a).url})) as running:
        got = [await running.chat(ZERO, x_thinkgate_cache="on") for _ in range(2)]
        direct = [await running.chat({**ZERO, "model": "a/a-model"}, x_thinkgate_cache="on") for _ in range(2)]

    assert len(a.requests) == 4
    assert all("x-thinkgate-cache" not in r.headers for r in (*got, *direct))


async def test_an_answer_is_kept_as_long_as_the_config_says(a: Upstream) -> None:
    async with serving(yaml({"a": numbered(a).url}, model="cache: {exact: 100ms}")) as running:
        await running.chat(ZERO)
        hit = await running.chat(ZERO)
        await asyncio.sleep(0.15)
        late = await running.chat(ZERO)

    assert (hit.headers["x-thinkgate-cache"], late.headers["x-thinkgate-cache"]) == ("hit", "miss")
    assert late.json()["choices"][0]["message"]["content"] == "answer 2"


async def test_usage_is_counted_once(a: Upstream) -> None:
    async with serving(on(numbered(a))) as running:
        await running.chat(ZERO)
        hit = await running.chat(ZERO)
        assert await metric(running, 'thinkgate_tokens_total{kind="prompt",provider="a"} 5.0')

    assert hit.json()["usage"]["prompt_tokens"] == 5


async def test_the_log_says_which_it_was(a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "thinkgate.request")

    async with serving(on(numbered(a))) as running:
        for _ in range(2):
            await running.chat(ZERO)

    miss, hit = (record.getMessage() for record in caplog.records)
    assert " cache=miss attempts=a=200 " in miss
    assert " provider=a target=a-model cache=hit first_ms=" in hit
    assert "prompt=" not in hit


# ---- streams and plain answers share


async def test_a_streams_answer_is_replayed_as_a_stream_and_as_a_plain_answer(a: Upstream) -> None:
    a.stream(role(), thought("hm"), delta("Hel"), delta("lo"), finish(), usage(), DONE)

    async with serving(on(a)) as running:
        live = await running.events(ZERO_STREAM)
        replayed = await running.events(ZERO_STREAM)
        told = await running.events({**ZERO_STREAM, **USAGE})
        whole = (await running.chat(ZERO)).json()

    assert len(a.requests) == 1
    for got in (live, replayed, told):
        assert (text(got), text(got, "reasoning_content"), finishes(got), got[-1]) == ("Hello", "hm", ["stop"], "[DONE]")
        assert {chunk["id"] for chunk in parsed(got)} == {"chatcmpl-double"}
        assert parsed(got)[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("usage" not in chunk for chunk in parsed(replayed))
    assert [chunk["usage"] for chunk in parsed(told)][:-1] == [None] * (len(told) - 2)
    assert (parsed(told)[-1]["choices"], parsed(told)[-1]["usage"]["total_tokens"]) == ([], 8)
    assert (whole["id"], whole["object"]) == ("chatcmpl-double", "chat.completion")
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hello", "reasoning_content": "hm"}
    assert whole["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


async def test_a_plain_answer_is_replayed_as_a_stream(a: Upstream) -> None:
    a.reply(completion(None, calls=[tool_call("f", '{"q":1}')]))

    async with serving(on(a)) as running:
        await running.chat(ZERO)
        got = await running.events({**ZERO_STREAM, **USAGE})

    assert len(a.requests) == 1
    (call,) = [call for choice in choices(got) for call in choice["delta"].get("tool_calls") or ()]
    assert call == {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"q":1}'}, "index": 0}
    assert finishes(got) == ["tool_calls"]
    assert parsed(got)[-1]["usage"]["total_tokens"] == 8


@pytest.mark.parametrize("asked", [{"include_obfuscation": False}, {"include_usage": "yes"}])
async def test_other_stream_options_make_another_request(a: Upstream, asked: dict[str, Any]) -> None:
    async with serving(on(numbered(a))) as running:
        await running.events(ZERO_STREAM)
        await running.events({**ZERO_STREAM, "stream_options": asked})

    assert len(a.requests) == 2


@pytest.mark.parametrize(("path", "field"), [("messages", "messages"), ("responses", "input"), ("completions", "prompt")])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_other_dialects_get_byte_for_byte_what_was_said(a: Upstream, path: str, field: str, stream: bool) -> None:
    value: Any = CHAT["messages"] if field == "messages" else "hi"
    body = {"model": "m", field: value, "temperature": 0, "stream": stream, "max_tokens": 100}

    async with serving(on(numbered(a))) as running:
        got = [await running.client.post(f"/v1/{path}", json=body) for _ in range(2)]
        other = await running.client.post(f"/v1/{path}", json={**body, "stream": not stream})

    assert got[0].status_code == 200
    assert got[0].content == got[1].content
    assert [r.headers["x-thinkgate-cache"] for r in (*got, other)] == ["miss", "hit", "miss"]
    assert "answer 1" in got[1].text or ('"ans"' in got[1].text and "wer 1" in got[1].text)


async def test_embeddings_are_kept_where_the_client_asks_for_it(a: Upstream) -> None:
    a.reply({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 1, "total_tokens": 1}})
    body = {"model": "m", "input": "x"}

    async with serving(on(a)) as running:
        got = [await running.client.post("/v1/embeddings", json=body, headers=headers) for headers in ({}, *[{"x-thinkgate-cache": "on"}] * 2)]

    assert [r.headers.get("x-thinkgate-cache") for r in got] == [None, "miss", "hit"]
    assert got[1].content == got[2].content


async def test_a_response_from_memory_is_stored_under_its_own_id_and_says_what_it_follows(a: Upstream) -> None:
    async with serving(on(numbered(a))) as running:
        first = (await running.client.post("/v1/responses", json={"model": "m", "input": "hi", "temperature": 0})).json()
        body = {"model": "m", "input": "more", "temperature": 0, "previous_response_id": first["id"]}
        got = [(await running.client.post("/v1/responses", json=body)).json() for _ in range(2)]

    assert len(a.requests) == 2
    assert got[0] == got[1]
    assert got[1]["previous_response_id"] == first["id"]


# ---- what is kept


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_an_answer_that_the_model_did_not_end_is_not_kept(a: Upstream, reason: str, stream: bool) -> None:
    a.call(lambda seen: events(role(), delta("Hel"), finish(reason), DONE) if stream else plain(completion("Hel", finish=reason)))

    async with serving(on(a)) as running:
        got = [await running.chat({**ZERO, "stream": stream}) for _ in range(2)]

    assert [r.status_code for r in got] == [200, 200]
    assert len(a.requests) == 2


@pytest.mark.parametrize("dialect", ["messages", "responses", "completions"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_nor_in_other_dialects(a: Upstream, dialect: str, stream: bool) -> None:
    a.call(lambda seen: events(role(), delta("Hel"), finish("length"), DONE) if stream else plain(completion("Hel", finish="length")))
    said = {"messages": {"messages": CHAT["messages"], "max_tokens": 1}, "responses": {"input": "hi"}, "completions": {"prompt": "hi"}}[dialect]

    async with serving(on(a)) as running:
        for _ in range(2):
            assert (await running.client.post(f"/v1/{dialect}", json={"model": "m", "temperature": 0, "stream": stream, **said})).status_code == 200

    assert len(a.requests) == 2


async def test_one_choice_of_several_that_was_cut_is_enough(a: Upstream) -> None:
    value = completion("one")
    value["choices"].append({**value["choices"][0], "index": 1, "finish_reason": "length"})
    a.reply(value)

    async with serving(on(a)) as running:
        for _ in range(2):
            await running.chat({**ZERO, "n": 2})

    assert len(a.requests) == 2


async def test_a_stream_that_broke_off_is_not_kept(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), CUT).stream(*answer("Hello"))

    async with serving(on(a)) as running:
        broken = await running.events(ZERO_STREAM)
        whole = await running.events(ZERO_STREAM)
        again = await running.events(ZERO_STREAM)

    assert "error" in json.loads(broken[-1])
    assert (text(whole), text(again), len(a.requests)) == ("Hello", "Hello", 2)


async def test_failures_are_not_kept(a: Upstream) -> None:
    a.reply({"error": {"message": "no such parameter", "type": "invalid_request_error"}}, status=400).reply()

    async with serving(on(a)) as running:
        got = [await running.chat(ZERO) for _ in range(3)]

    assert [r.status_code for r in got] == [400, 200, 200]
    assert [r.headers["x-thinkgate-cache"] for r in got] == ["miss", "miss", "hit"]


async def test_an_empty_answer_that_is_accepted_is_not_kept(a: Upstream) -> None:
    a.stream(role(), finish(), DONE)

    async with serving(on(a, more="empty_answer: accept")) as running:
        for _ in range(2):
            assert text(await running.events(ZERO_STREAM)) == ""

    assert len(a.requests) == 2


# ---- which target's answer


async def test_a_stand_ins_answer_ends_with_the_outage(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=503, headers={"retry-after": "0.2"}).reply(completion("from a"))
    b.reply(completion("from b"))
    more = "retries: 0\ncooldown: {base: 1ms, max: 200ms}"

    async with serving(on(a, b, a=more)) as running:
        first = await running.chat(ZERO)  # a fails, b stands in: not what would be asked first
        during = [await running.chat(ZERO) for _ in range(2)]
        await asyncio.sleep(0.25)
        after = [await running.chat(ZERO) for _ in range(2)]

    said = [(r.json()["choices"][0]["message"]["content"], r.headers["x-thinkgate-cache"]) for r in (first, *during, *after)]
    assert said == [("from b", "miss"), ("from b", "miss"), ("from b", "hit"), ("from a", "miss"), ("from a", "hit")]


async def test_an_answer_outlives_its_providers_outage(a: Upstream, b: Upstream) -> None:
    a.reply(completion("from a")).reply({"error": {"message": "down"}}, status=429, headers={"retry-after": "100"})
    b.reply(completion("from b"))

    async with serving(on(a, b)) as running:
        await running.chat(ZERO)
        assert (await running.chat(CHAT)).headers["x-thinkgate-chain"] == "a=429,b=200"
        hit = await running.chat(ZERO)
        other = await running.chat({**ZERO, "seed": 1})

    assert (hit.headers["x-thinkgate-cache"], hit.headers["x-thinkgate-provider"]) == ("hit", "a")
    assert (other.headers["x-thinkgate-cache"], other.headers["x-thinkgate-provider"]) == ("miss", "b")


async def test_with_weights_any_targets_answer_will_do(a: Upstream, b: Upstream) -> None:
    a.reply(completion("one"))
    b.reply(completion("one"))

    async with serving(on(a, b, more="balance: weighted")) as running:
        got = [(await running.chat(ZERO)).headers["x-thinkgate-cache"] for _ in range(12)]

    assert got == ["miss"] + ["hit"] * 11
    assert len(a.requests) + len(b.requests) == 1


async def test_a_client_that_names_a_provider_gets_that_providers_answer(a: Upstream, b: Upstream) -> None:
    a.reply(completion("from a"))
    b.reply(completion("from b"))

    async with serving(on(a, b)) as running:
        await running.chat(ZERO)
        got = [await running.chat(ZERO, x_thinkgate_provider=name) for name in ("b", "b", "a")]
        nobody = await running.chat(ZERO, x_thinkgate_provider="c")

    assert [r.json()["choices"][0]["message"]["content"] for r in got] == ["from b", "from b", "from a"]
    assert [r.headers["x-thinkgate-cache"] for r in got] == ["miss", "hit", "hit"]
    assert nobody.status_code == 400


async def test_a_repaired_answer_is_kept_once_the_refusal_is_prevented(a: Upstream) -> None:
    refusal = {"error": {"message": "Unsupported parameter: 'seed' is not supported with this model.", "type": "invalid_request_error", "param": "seed"}}
    a.call(lambda seen: plain(refusal, status=400) if "seed" in seen.json else plain(completion()))

    async with serving(on(a)) as running:
        got = [await running.chat({**ZERO, "seed": 1}) for _ in range(3)]

    assert [r.headers["x-thinkgate-cache"] for r in got] == ["miss", "miss", "hit"]
    assert ["seed" in seen.json for seen in a.requests] == [True, False, False]


async def test_an_answer_that_took_more_than_one_exchange_is_not_kept(a: Upstream) -> None:
    busy: Any = {"error": {"message": "slow down", "type": "rate_limit_error"}}
    a.reply(busy, status=429, headers={"retry-after-ms": "20"}).reply()

    async with serving(on(a, a="retries: 1")) as running:
        got = [await running.chat(ZERO) for _ in range(3)]

    assert [r.headers["x-thinkgate-chain"] for r in got[:2]] == ["a=429,a=200", "a=200"]
    assert [r.headers["x-thinkgate-cache"] for r in got] == ["miss", "miss", "hit"]


async def test_each_key_has_its_own_answers(a: Upstream, tmp_path: Path) -> None:
    keys = {name: f"sk-key-of-{name}-0123456789abcdef" for name in ("x", "y")}
    more = f"store: sqlite:///{tmp_path}/keys.db\nkeys:\n" + "".join(f"  {name}: {{key: {key}}}\n" for name, key in keys.items())

    async with serving(yaml({"a": numbered(a).url}, model=KEPT, more=more)) as running:
        got = [await running.chat(ZERO, authorization=f"Bearer {keys[name]}") for name in ("x", "y", "x")]

    assert [r.headers["x-thinkgate-cache"] for r in got] == ["miss", "miss", "hit"]
    assert got[0].content == got[2].content != got[1].content


# ---- what an adapter does


async def test_what_is_not_sent_counts_too(a: Upstream) -> None:
    async with serving(on(numbered(a), a="options: {drop_params: [user]}")) as running:
        got = [(await running.chat({**ZERO, "user": name})).json()["choices"][0]["message"]["content"] for name in ("x", "y", "x")]

    assert got == ["answer 1", "answer 2", "answer 1"]
    assert a.requests[0].json == a.requests[1].json


def adapter(folder: Path, source: str) -> None:
    (folder / "house.py").write_text(source, encoding="utf-8")


async def house(running: Running) -> None:
    """Let the running gateway look at the adapter's file now, not in a second."""
    loader = running.gateway.state.router.providers["a"]._loader
    loader._check_every = 0.0


async def test_the_body_that_is_sent_decides(a: Upstream, tmp_path: Path) -> None:
    adapter(tmp_path, "auth = 'none'\ncount = 0\ndef transform_request(req, ctx):\n    req['seed'] = __import__('os').environ['CACHE_SEED']\n    return req\n")
    text = f"adapters_dir: {tmp_path}\n" + on(numbered(a), a="adapter: house")

    with pytest.MonkeyPatch.context() as patch:
        async with serving(text) as running:
            got = []
            for seed in ("1", "1", "2", "1"):
                patch.setenv("CACHE_SEED", seed)
                got.append((await running.chat(ZERO)).json()["choices"][0]["message"]["content"])

    assert got == ["answer 1", "answer 1", "answer 2", "answer 1"]


async def test_a_changed_adapter_starts_afresh(a: Upstream, tmp_path: Path) -> None:
    source = "auth = 'none'\ndef transform_response(res, ctx):\n    res['id'] = '{}'\n    return res\n"
    adapter(tmp_path, source.format("first"))

    async with serving(f"adapters_dir: {tmp_path}\n" + on(numbered(a), a="adapter: house")) as running:
        await house(running)
        one = [(await running.chat(ZERO)).json()["id"] for _ in range(2)]
        adapter(tmp_path, source.format("second"))
        two = [(await running.chat(ZERO)).json()["id"] for _ in range(2)]
        adapter(tmp_path, source.format("third"))
        three = (await running.chat(ZERO)).json()["id"]

    assert (one, two, three) == (["first"] * 2, ["second"] * 2, "third")
    assert len(a.requests) == 3


async def test_what_an_adapter_said_is_said_again(a: Upstream, tmp_path: Path) -> None:
    adapter(tmp_path, "auth = 'none'\ndef transform_request(req, ctx):\n    ctx.warn('seeded')\n    return req\n")

    async with serving(f"adapters_dir: {tmp_path}\n" + on(numbered(a), a="adapter: house")) as running:
        got = [await running.chat(ZERO) for _ in range(2)]

    assert [r.headers["x-thinkgate-transforms"] for r in got] == ['house.warn="seeded"'] * 2


async def test_a_target_that_its_adapter_leaves_out_has_no_answers(a: Upstream, b: Upstream, tmp_path: Path) -> None:
    adapter(tmp_path, "auth = 'none'\ndef transform_request(req, ctx):\n    ctx.skip('not today')\n")

    async with serving(f"adapters_dir: {tmp_path}\n" + on(a, numbered(b), a="adapter: house")) as running:
        got = [await running.chat(ZERO) for _ in range(2)]

    assert [(r.headers["x-thinkgate-provider"], r.headers["x-thinkgate-cache"]) for r in got] == [("b", "miss"), ("b", "hit")]


async def test_a_reload_starts_afresh(a: Upstream) -> None:
    async with serving(on(numbered(a))) as running:
        await running.chat(ZERO)
        assert running.gateway.reload()
        assert (await running.chat(ZERO)).headers["x-thinkgate-cache"] == "miss"
