"""LLM: a model by name, key and address, from arguments or the environment (H1 to H4, H37)."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from scripted import Scripted
from upstream_double import CUT, DONE, Upstream, answer, chunk, completion, delta, finish, role, usage

from gateway.agent import LLM, Message
from gateway.errors import ChainExhausted, GatewayError, StreamCut, UpstreamError

ENV = {"LLM_MODEL_ID": "env-model", "LLM_API_KEY": "env-key-0123456789", "LLM_BASE_URL": "http://127.0.0.1:9/v1"}
ASKED = [{"role": "user", "content": "hi"}]


def llm(upstream: Upstream, **more: Any) -> LLM:
    return LLM("m", "key-0123456789", f"{upstream.url}/v1", env={}, **{"retries": 0, **more})


def test_everything_may_come_from_the_environment() -> None:
    """H1"""
    made = LLM(env=ENV)
    assert (made.model, made.base_url, made.timeout) == ("env-model", "http://127.0.0.1:9/v1", 60.0)
    assert LLM(env={**ENV, "LLM_TIMEOUT": "7.5"}).timeout == 7.5


def test_arguments_win_over_the_environment(far: Upstream) -> None:
    """H1"""
    far.stream(*answer("yes"))
    with LLM("mine", "mine-0123456789", f"{far.url}/v1", 5, env={**ENV, "LLM_TIMEOUT": "7"}) as made:
        assert made.timeout == 5.0
        assert made.think(ASKED) == "yes"
    assert far.requests[0].json["model"] == "mine"
    assert far.requests[0].headers["authorization"] == "Bearer mine-0123456789"
    assert far.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(("name", "argument"), [("LLM_MODEL_ID", "model"), ("LLM_API_KEY", "api_key"), ("LLM_BASE_URL", "base_url")])
def test_what_is_missing_is_named(name: str, argument: str) -> None:
    """H1"""
    with pytest.raises(ValueError, match=rf"missing: {argument} \({name}\)"):
        LLM(env={key: value for key, value in ENV.items() if key != name})
    with pytest.raises(ValueError, match=rf"{argument} \({name}\)"):
        LLM(env={**ENV, name: ""})


def test_all_that_is_missing_is_named_at_once() -> None:
    """H1"""
    with pytest.raises(ValueError, match=r"LLM_MODEL_ID.*LLM_API_KEY.*LLM_BASE_URL"):
        LLM(env={})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "not a url"}, "base_url"),
        ({"base_url": "mock://x?nonsense=1"}, "base_url"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"api_key": "clé"}, "api_key"),
        ({"adapter": "nobody"}, "adapter"),
        ({"options": {"nonsense": 1}}, "options.nonsense"),
        ({"env": {**ENV, "LLM_TIMEOUT": "soon"}}, "LLM_TIMEOUT"),
    ],
)
def test_what_makes_no_sense_is_a_value_error(given: dict[str, Any], said: str) -> None:
    """H1"""
    with pytest.raises(ValueError, match=said):
        LLM(**{"env": ENV, **given})


def test_a_key_is_in_no_text_of_it() -> None:
    assert "env-key" not in repr(LLM(env=ENV)) + str(vars(LLM(env=ENV)))


def test_a_key_that_a_provider_repeats_is_in_no_error(far: Upstream) -> None:
    far.reply({"error": {"message": "wrong key key-0123456789, sorry"}}, status=401)
    with llm(far) as made, pytest.raises(ChainExhausted, match="wrong key") as caught:
        made.think(ASKED)
    assert "key-0123456789" not in str(caught.value) + str(caught.value.attempts)


def test_think_streams_inside_and_joins_the_text(far: Upstream) -> None:
    """H2: chunks without choices and null content are skipped."""
    far.stream(role(), usage(), chunk({"content": None}), delta("Hel"), chunk({}), delta("lo"), finish(), usage(), DONE)
    with llm(far) as made:
        assert made.think([Message("hi", "user"), {"role": "assistant", "content": "x"}, {"role": "user", "content": "again"}]) == "Hello"
    sent = far.requests[0].json
    assert sent["stream"] is True
    assert sent["temperature"] == 0
    assert sent["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "again"}]


def test_a_provider_that_does_not_stream_is_read_all_the_same(far: Upstream) -> None:
    """H2"""
    far.reply(completion("whole"))
    with llm(far) as made:
        assert made.think(ASKED, 0.3, max_tokens=5) == "whole"
    assert (far.requests[0].json["temperature"], far.requests[0].json["max_tokens"]) == (0.3, 5)


def test_a_temperature_of_none_is_not_sent(far: Upstream) -> None:
    """H2"""
    far.stream()
    with llm(far) as made:
        made.think(ASKED, None)
    assert "temperature" not in far.requests[0].json


def test_an_answer_without_text_is_an_empty_text(far: Upstream) -> None:
    """H2"""
    far.stream(role(), finish(), DONE)
    with llm(far) as made:
        assert made.think(ASKED) == ""


@pytest.mark.parametrize(("status", "kind"), [(401, "auth"), (429, "rate_limit"), (400, "bad_request"), (500, "server")])
def test_a_failure_is_an_error_with_its_type(far: Upstream, status: int, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """H3: never None, and nothing is printed."""
    far.reply({"error": {"message": "no, not today"}}, status=status)
    with llm(far) as made, pytest.raises(ChainExhausted, match="no, not today") as caught:
        made.think(ASKED)
    assert caught.value.attempts[0]["class"] == kind
    assert capsys.readouterr().out == ""


def test_nobody_there_is_an_error_too() -> None:
    """H3"""
    with LLM(env=ENV, retries=0) as made, pytest.raises(GatewayError, match="connect"):
        made.think(ASKED)


def test_a_failure_does_not_keep_the_next_call_from_being_made(far: Upstream) -> None:
    """H3: a single target never rests."""
    far.reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "60"}).stream(*answer("now"))
    with llm(far) as made:
        with pytest.raises(ChainExhausted):
            made.think(ASKED)
        assert made.think(ASKED) == "now"


def test_a_failed_exchange_is_tried_again(far: Upstream) -> None:
    far.reply({"error": {"message": "oops"}}, status=500).stream(*answer("now"))
    with llm(far, retries=1) as made:
        assert made.think(ASKED) == "now"


def test_a_silent_provider_ends_with_the_timeout(far: Upstream) -> None:
    """H1: LLM_TIMEOUT holds."""
    far.stream(30.0)
    with llm(far, timeout=0.2) as made, pytest.raises(GatewayError, match=r"timeout after 0\.\d s"):
        made.think(ASKED)


def test_think_stream_yields_each_piece(far: Upstream) -> None:
    """H4"""
    far.stream(role(), delta("a"), chunk({"content": None}), delta("b"), delta("c"), finish(), DONE)
    with llm(far) as made:
        assert list(made.think_stream(ASKED)) == ["a", "b", "c"]


def test_a_stream_that_breaks_ends_with_an_error_after_its_pieces(far: Upstream) -> None:
    """H4: never None among the pieces."""
    far.stream(role(), delta("a"), 0.02, delta("b"), 0.02, CUT)
    pieces: list[str] = []
    with llm(far) as made, pytest.raises(StreamCut):
        pieces.extend(made.think_stream(ASKED))
    assert pieces == ["a", "b"]


async def test_a_stream_that_is_left_closes_its_connection(a: Upstream) -> None:
    """H4"""
    a.stream(role(), delta("a"), delta("b"), 30.0, finish(), DONE)
    made = llm(a)

    def first() -> str:
        with made:
            pieces = made.think_stream(ASKED)
            piece = next(pieces)
            pieces.close()
            return piece

    assert await asyncio.to_thread(first) == "a"
    await a.until(lambda up: up.open == 0)
    assert a.disconnected


async def test_the_async_twins(a: Upstream) -> None:
    a.stream(*answer("He", "llo"), repeat=2)
    async with llm(a) as made:
        assert await made.athink(ASKED) == "Hello"
        assert [piece async for piece in made.athink_stream(ASKED)] == ["He", "llo"]
    assert a.connections == 1
    await a.until(lambda up: up.open == 0)


def test_the_connection_is_kept_between_plain_calls_until_the_end(far: Upstream) -> None:
    far.stream(repeat=3)
    with llm(far) as made:
        assert [made.think(ASKED) for _ in range(3)] == ["Hello"] * 3
        assert (far.connections, far.open) == (1, 1)
    deadline = threading.Event()
    for _ in range(200):
        if far.open == 0:
            break
        deadline.wait(0.01)
    assert far.open == 0


async def test_plain_calls_work_inside_a_running_loop(far: Upstream) -> None:
    far.stream(*answer("He", "llo"), repeat=2)
    with llm(far) as made:
        assert made.think(ASKED) == "Hello"
        assert list(made.think_stream(ASKED)) == ["He", "llo"]


def test_one_loop_after_the_other(far: Upstream) -> None:
    """Each `asyncio.run` closes what was opened in it, without a word from the program."""
    far.stream(repeat=2)
    made = llm(far)
    for _ in range(2):
        assert asyncio.run(made.athink(ASKED)) == "Hello"
    assert far.connections == 2
    assert len(made._lines) == 1
    made.close()


def test_after_close_a_call_begins_anew(far: Upstream) -> None:
    far.stream(repeat=2)
    made = llm(far)
    made.think(ASKED)
    made.close()
    made.close()
    assert made.think(ASKED) == "Hello"
    made.close()


def test_one_that_is_forgotten_ends_its_thread(far: Upstream) -> None:
    far.stream()
    llm(far).think(ASKED)
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "thinkgate library"][1:]  # the first is the double's


def test_threads_may_share_one(far: Upstream) -> None:
    far.stream(0.05, *answer("Hello"), repeat=8)
    said: list[str] = []
    with llm(far) as made:
        threads = [threading.Thread(target=lambda: said.append(made.think(ASKED))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == ["Hello"] * 8
    assert far.most_at_once > 1


def test_any_model_will_do() -> None:
    model = Scripted("one", UpstreamError("server", "no"))
    with LLM.over(model, "mine") as made:
        assert (made.model, made.think(ASKED)) == ("mine", "one")
        with pytest.raises(UpstreamError, match="no"):
            made.think(ASKED)
    assert model.asked[0]["model"] == "mine"


@pytest.mark.parametrize("name", ["model", "messages", "stream"])
def test_what_a_call_says_itself_is_no_parameter(name: str) -> None:
    with LLM.over(Scripted("x")) as made, pytest.raises(TypeError, match=r"parameter|multiple values"):
        made.think(ASKED, **{name: "x"})


@pytest.mark.parametrize(
    ("base_url", "adapter", "used"),
    [
        ("https://api.deepseek.com", "deepseek", "https://api.deepseek.com"),
        ("https://api.anthropic.com", "anthropic", "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com/v1/", "anthropic", "https://api.anthropic.com/v1"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini_compat", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("https://generativelanguage.googleapis.com/v1beta", "gemini", "https://generativelanguage.googleapis.com/v1beta"),
        ("https://models.example.com/v1", "openai", "https://models.example.com/v1"),
        ("http://127.0.0.1:11434/v1", "openai", "http://127.0.0.1:11434/v1"),
    ],
)
def test_the_address_says_who_speaks_to_it(base_url: str, adapter: str, used: str) -> None:
    """H37: a key of Anthropic's is no reason to blow up."""
    made = LLM("m", "k-0123456789", base_url, env={})
    assert (made.provider, made.base_url.rstrip("/")) == (adapter, used)


def test_anthropic_is_spoken_to_in_its_own_way(far: Upstream) -> None:
    """H37"""
    far.reply({"type": "message", "role": "assistant", "model": "c", "content": [{"type": "text", "text": "bonjour"}], "stop_reason": "end_turn", "usage": {}})
    with LLM("c", "sk-ant-0123456789", f"{far.url}/v1", adapter="anthropic", env={}) as made:
        assert made.think([{"role": "system", "content": "French"}, *ASKED]) == "bonjour"
    assert far.requests[0].path == "/v1/messages"
    assert far.requests[0].headers["x-api-key"] == "sk-ant-0123456789"
    assert far.requests[0].json["system"]


def test_an_adapter_brings_its_own_address_key_and_model() -> None:
    made = LLM(adapter="deepseek", env={"DEEPSEEK_API_KEY": "k-0123456789"})
    assert (made.provider, made.base_url) == ("deepseek", "https://api.deepseek.com")
    assert made.model


def test_the_demo_model_needs_nothing() -> None:
    with LLM.demo() as made:
        assert made.think([{"role": "user", "content": "Say hello"}]) == "hello"


def test_the_library_is_loaded_when_it_is_asked_for() -> None:
    """A server does not pay for it: neither for the classes nor for pydantic and jsonschema."""
    import subprocess
    import sys

    code = "import sys, gateway.app; print([m for m in ('gateway.agent.library', 'pydantic', 'jsonschema') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[3], check=True)
    assert done.stdout.strip() == "[]"
