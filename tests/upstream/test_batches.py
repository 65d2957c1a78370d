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
