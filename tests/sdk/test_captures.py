"""Chat requests that real clients sent, recorded, and sent again unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai_client import over, strict_deepseek
from running import KEY, Running, serving
from upstream_double import Upstream, answer, completion, events, plain

CAPTURES = Path(__file__).parent.parent / "captures"
FILES = sorted(file for file in CAPTURES.glob("*/*.json") if "chat_completions" in file.name)
_NOT_SENT = ("host", "connection", "content-length", "authorization")
"""Headers of a capture that belong to its own connection and client."""
_MODELS = '  "*": a/*\n'


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


async def send(running: Running, capture: dict[str, Any]) -> httpx.Response:
    headers = [(name, value) for name, value in capture["headers"] if name not in _NOT_SENT]
    return await running.client.request(
        capture["method"], capture["path"], headers=[*headers, ("authorization", f"Bearer {KEY}")], content=json.dumps(capture["body"]).encode()
    )


def said(response: httpx.Response, streamed: bool) -> str:
    """The text of an answer, which must be of the kind that was asked for."""
    assert response.status_code == 200, response.text
    if not streamed:
        assert response.headers["content-type"] == "application/json"
        return str(response.json()["choices"][0]["message"]["content"])
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, last = [line[6:] for line in response.text.split("\n") if line.startswith("data: ")]
    assert last == "[DONE]"
    return "".join(choice["delta"].get("content") or "" for chunk in map(json.loads, chunks) for choice in chunk["choices"])


def test_there_are_captures_of_many_clients() -> None:
    assert len({file.parent for file in FILES}) >= 12


async def test_every_request_reaches_the_provider_as_it_was_but_for_the_models_name(a: Upstream) -> None:
    async with serving(over(a, more='  "*": a/its-*\n')) as running:
        for file in FILES:
            capture = json.loads(file.read_text())
            body, streamed = capture["body"], bool(capture["body"].get("stream"))
            a.clear()
            a.stream() if streamed else a.reply()

            assert said(await send(running, capture), streamed) == "Hello", name_of(file)

            [seen] = a.requests
            assert (seen.method, seen.path) == ("POST", "/chat/completions"), name_of(file)
            expected = {**body, "model": "a-model" if body["model"] == "m" else f"its-{body['model']}"}
            if streamed:
                expected.setdefault("stream_options", {"include_usage": True})  # the gateway wants to know what an answer cost
            assert json.dumps(seen.json) == json.dumps(expected), name_of(file)  # as text: the order of keys and 0 against 0.0 count
            assert not [name for name in seen.headers if name.startswith("x-stainless")], name_of(file)


async def test_deepseek_refuses_none_of_them(a: Upstream) -> None:
    async with serving(over(a, adapter="deepseek", more=_MODELS)) as running:
        for file in FILES:
            capture = json.loads(file.read_text())
            streamed = bool(capture["body"].get("stream"))
            a.clear()
            a.call(strict_deepseek([events(*answer("Hello")) if streamed else plain(completion("Hello"))]))

            assert said(await send(running, capture), streamed) == "Hello", name_of(file)
            assert len(a.requests) == 1, name_of(file)  # right at once, not repaired


@pytest.mark.parametrize("client", ["langchain-deepseek", "vercel-deepseek"])
async def test_reasoning_that_a_client_gives_back_reaches_deepseek_unchanged(a: Upstream, client: str) -> None:
    turns = kept = 0
    async with serving(over(a, adapter="deepseek", more=_MODELS)) as running:
        for file in (file for file in FILES if file.parent.name == client):
            capture = json.loads(file.read_text())
            a.clear()
            a.stream() if capture["body"].get("stream") else a.reply()
            await send(running, capture)
            for sent, got in zip(capture["body"]["messages"], a.requests[0].json["messages"], strict=True):
                turns += sent["role"] == "assistant"
                kept += "reasoning_content" in sent
                assert got == sent or {**sent, "reasoning_content": ""} == got, name_of(file)

    assert turns > 0
    assert kept > 0 or client == "langchain-deepseek"  # it drops the reasoning of its own model (1.1.1)
