"""Embeddings of more inputs than a provider takes at once."""

from __future__ import annotations

from typing import Any

import pytest
from running import serving, yaml
from upstream_double import Upstream

TWO = "options: {embedding_batch: 2}"
WORDS = ["one", "two", "three", "four", "five"]


def vectors(*values: float, backwards: bool = False, usage: bool = True) -> dict[str, Any]:
    data = [{"object": "embedding", "index": at, "embedding": [value]} for at, value in enumerate(values)]
    counted = {"usage": {"prompt_tokens": len(values), "total_tokens": len(values), "cost": None}} if usage else {}
    return {"object": "list", "model": "e", "data": data[::-1] if backwards else data, **counted}


async def test_they_go_in_parts_and_come_back_as_one(a: Upstream) -> None:
    a.reply(vectors(1, 2))
    a.reply(vectors(3, 4, backwards=True))
    a.reply(vectors(5))
    async with serving(yaml({"a": a.url}, a=TWO)) as running:
        got = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS, "dimensions": 1, "user": "u"})

    answer = got.json()
    assert [sent.json["input"] for sent in a.requests] == [["one", "two"], ["three", "four"], ["five"]]
    assert all(sent.json["dimensions"] == 1 and sent.json["user"] == "u" and sent.json["model"] == "a-model" for sent in a.requests)
    assert {item["index"]: item["embedding"] for item in answer["data"]} == {at: [at + 1] for at in range(5)}
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5, "cost": None}
    assert "a.embedding_parts=3" in got.headers["x-thinkgate-transforms"]


@pytest.mark.parametrize("given", [["one", "two"], "one", [1, 2, 3, 4], [[1, 2, 3], [4]]], ids=["two texts", "one text", "token ids", "two lists"])
async def test_what_fits_goes_in_one(a: Upstream, given: Any) -> None:
    a.reply(vectors(1, 2))
    async with serving(yaml({"a": a.url}, a=TWO)) as running:
        await running.client.post("/v1/embeddings", json={"model": "m", "input": given})

    assert [sent.json["input"] for sent in a.requests] == [given]


@pytest.mark.parametrize("second", [({"error": {"message": "boom"}}, 500), (vectors(3), 200)], ids=["it fails", "a vector is missing"])
async def test_the_next_provider_gets_all_of_it_where_one_part_fails(a: Upstream, b: Upstream, second: tuple[Any, int]) -> None:
    a.reply(vectors(1, 2))
    a.reply(second[0], status=second[1])
    a.reply(vectors(5))
    b.reply(vectors(1, 2, 3, 4, 5))
    async with serving(yaml({"a": a.url, "b": b.url}, a=TWO)) as running:
        got = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS})

    assert b.requests[0].json["input"] == WORDS
    assert [item["embedding"] for item in got.json()["data"]] == [[1], [2], [3], [4], [5]]
    assert got.headers["x-thinkgate-provider"] == "b"


async def test_without_counted_tokens_the_answer_counts_none(a: Upstream) -> None:
    a.reply(vectors(1, 2, usage=False))
    a.reply(vectors(3, usage=False))
    async with serving(yaml({"a": a.url}, a=TWO)) as running:
        got = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS[:3]})

    assert got.status_code == 200
    assert "usage" not in got.json()


async def test_each_part_counts_as_a_request_of_the_providers_rate(a: Upstream, b: Upstream) -> None:
    for value in (1, 3, 5):
        a.reply(vectors(value, value + 1) if value < 5 else vectors(value))
    b.reply(vectors(1, 2, 3))
    async with serving(yaml({"a": a.url, "b": b.url}, a=TWO + "\nlimits: {rpm: 4}")) as running:
        first = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS})
        second = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS[:3]})

    assert [got.headers["x-thinkgate-provider"] for got in (first, second)] == ["a", "b"], "three of four were used, two more do not fit"


async def test_what_has_more_parts_than_a_minute_has_requests_is_sent_where_nothing_else_was(a: Upstream) -> None:
    for value in (1, 3, 5):
        a.reply(vectors(value, value + 1) if value < 5 else vectors(value))
    async with serving(yaml({"a": a.url}, a=TWO + "\nlimits: {rpm: 2}")) as running:
        got = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS})

    assert len(got.json()["data"]) == 5


async def test_a_dry_run_shows_the_parts(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, a=TWO)) as running:
        body = {"model": "m", "input": WORDS}
        shown = await running.client.post("/v1/embeddings", json=body, headers={"x-thinkgate-dry-run": "1"})
        small = await running.client.post("/v1/embeddings", json={**body, "input": WORDS[:2]}, headers={"x-thinkgate-dry-run": "1"})

    target = shown.json()["targets"][0]
    assert [part["input"] for part in target["parts"]] == [["one", "two"], ["three", "four"], ["five"]]
    assert target["body"] == target["parts"][0]
    assert target["transforms"] == ["a.embedding_parts=3"]
    assert "parts" not in small.json()["targets"][0]
