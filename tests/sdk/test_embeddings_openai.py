"""Embeddings through both SDKs: they ask for base64 by default, and one of them reads a list as nothing."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from node_scripts import Node
from openai_client import openai_at, over
from running import serving
from upstream_double import Upstream

VECTORS = [[0.5, -0.25, 1.0], [0.0, 2.0, -8.0]]  # exact in float32


def said(packed: bool) -> dict[str, Any]:
    """A provider's answer, its vectors as numbers or as little-endian float32 in base64."""
    values: list[Any] = [base64.b64encode(struct.pack("<3f", *vector)).decode() for vector in VECTORS] if packed else list(VECTORS)
    data = [{"object": "embedding", "index": at, "embedding": value} for at, value in enumerate(values)]
    return {"object": "list", "data": data, "model": "x", "usage": {"prompt_tokens": 2, "total_tokens": 2}}


def provider(a: Upstream, *, ignores_the_format: bool) -> None:
    a.call(lambda seen: said(seen.json.get("encoding_format") == "base64" and not ignores_the_format))


@pytest.mark.parametrize("ignores_the_format", [False, True], ids=["a provider that packs", "a provider that never packs"])
async def test_python_gets_the_vectors(a: Upstream, ignores_the_format: bool) -> None:
    provider(a, ignores_the_format=ignores_the_format)

    async with serving(over(a)) as running, openai_at(running) as client:
        by_default = await client.embeddings.create(model="m", input=["one", "two"])
        as_numbers = await client.embeddings.create(model="m", input=["one", "two"], encoding_format="float")

    for answer in (by_default, as_numbers):
        assert [entry.embedding for entry in answer.data] == VECTORS
        assert answer.usage.total_tokens == 2
    assert [seen.json["model"] for seen in a.requests] == ["a-model", "a-model"]


@pytest.mark.node
@pytest.mark.parametrize("ignores_the_format", [False, True], ids=["a provider that packs", "a provider that never packs"])
async def test_node_gets_the_vectors(a: Upstream, node: Node, ignores_the_format: bool) -> None:
    provider(a, ignores_the_format=ignores_the_format)

    async with serving(over(a)) as running:
        assert await node(running, "embeddings") == [VECTORS, VECTORS]
