"""Embeddings of more texts than a provider takes at once: asked for in parts, answered as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.chat import Body, Json, Request, dumps
from gateway.errors import UpstreamError


def in_parts(request: Request, most: int) -> list[Request]:
    """The request in parts of at most `most` inputs each; none where it is small enough. One list of token ids is one input."""
    body = request.body.fresh()
    inputs = body.get("input")
    if not isinstance(inputs, list) or len(inputs) <= most or isinstance(inputs[0], int):
        return []
    bodies = ({**body, "input": inputs[start : start + most]} for start in range(0, len(inputs), most))
    return [msgspec.structs.replace(request, body=Body(dumps(part), part)) for part in bodies]


def joined(parts: Sequence[Request], answers: Sequence[Json]) -> Json:
    """One answer of the parts' answers: the vectors numbered through, the usage summed. UpstreamError where vectors are missing."""
    vectors: list[Json] = []
    for part, answer in zip(parts, answers, strict=True):
        wanted, data = len(part.body.fresh()["input"]), answer["data"]
        if len(data) != wanted:
            raise UpstreamError("protocol", f"the answer has {len(data)} embeddings for {wanted} inputs")
        start = len(vectors)
        vectors += [{**item, "index": start + _position(item, at)} for at, item in enumerate(data)]
    usages = [answer["usage"] for answer in answers if isinstance(answer.get("usage"), dict)]
    whole = {**answers[0], "data": vectors}
    if usages:
        whole["usage"] = {**usages[0], **{name: sum(_count(usage.get(name)) for usage in usages) for name, value in usages[0].items() if _is_count(value)}}
    return whole


def _position(item: Json, at: int) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else at


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any) -> int:
    return value if _is_count(value) else 0
