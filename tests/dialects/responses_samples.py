"""Checks and makers that the tests of the Responses dialect share."""

from __future__ import annotations

import json
from typing import Any, get_args

import httpx2
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from gateway import sse
from gateway.chat import Accumulator, dumps
from gateway.dialects import responses

EVENTS = {get_args(event.model_fields["type"].annotation)[0]: event for event in get_args(get_args(ResponseStreamEvent)[0])}
TOOL = {"type": "function", "name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
OWN_USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 5,
}

Json = dict[str, Any]


def encoded(event: Json) -> bytes:
    return json.dumps(event).encode()


def inbound(*items: Json, **fields: Any) -> Json:
    return responses.request_to_chat({"model": "m", "input": list(items), **fields})


def outbound(*messages: Json, **fields: Any) -> Json:
    return responses.request_from_chat({"model": "m", "messages": list(messages), **fields})


def user(text: str = "q") -> Json:
    return {"role": "user", "content": text}


def chunk(delta: Json, finish: str | None = None, **choice: Any) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "up",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **choice}],
    }


def usage_chunk() -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "up", "choices": [], "usage": USAGE}


def piece(index: int, arguments: str | None = None, ident: str | None = None, name: str | None = None, **more: Any) -> Json:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"index": index, **({"id": ident, "type": "function"} if ident else {}), "function": function, **more}


def checked(events: list[tuple[str | None, Json]]) -> list[Json]:
    """The events' data, if each is what the SDK and the protocol want: type, name, number, and items that are announced before they are used."""
    open_items: dict[int, Json] = {}
    for number, (name, data) in enumerate(events):
        assert name == data["type"]
        assert data["sequence_number"] == number
        EVENTS[data["type"]].model_validate(data, strict=True)
        place = data.get("output_index")
        if name == "response.output_item.added":
            assert place not in open_items
            open_items[place] = data["item"]
        elif place is not None:
            assert data.get("item_id", open_items[place]["id"]) == open_items[place]["id"]
            if name == "response.output_item.done":
                assert data["item"]["id"] == open_items[place]["id"]
    return [data for _, data in events]


def write(*chunks: Json, **request: Any) -> list[Json]:
    """The events of a clean stream."""
    writer = responses.Writer({"model": "asked", "input": "q", **request})
    events = checked([event for one in chunks for event in writer.feed(one)] + writer.finish())
    assert events[-1]["response"] is writer.response
    ids = {event["response"]["id"] for event in events if "response" in event}
    assert len(ids) == 1
    return events


def read(*events: Any) -> list[Json]:
    """The chunks of a finished stream, each one checked against the SDK's type."""
    reader = responses.Reader("asked")
    chunks = [one for event in events for one in reader.feed(None, event if isinstance(event, bytes) else encoded(event))] + reader.finish()
    assert reader.done
    for one in chunks:
        if '"custom"' not in json.dumps(one):  # the API streams custom calls, the SDK's type of a delta does not know them
            ChatCompletionChunk.model_validate(one)
    return chunks


def summed(chunks: list[Json]) -> Json:
    into = Accumulator()
    for one in chunks:
        into.add(one)
    return into.completion()


def valid(response: Json) -> Json:
    Response.model_validate(response, strict=True)
    return response


def valid_chat(completion: Json) -> Json:
    ChatCompletion.model_validate(completion)
    return completion


def bare(item: Any) -> Any:
    """The value without ids that are made anew each time."""
    if isinstance(item, list):
        return [bare(one) for one in item]
    if isinstance(item, dict):
        return {key: bare(value) for key, value in item.items() if key != "id"}
    return item


def stream_of(response: Json, pieces: int = 3) -> list[Json]:
    """The events in which OpenAI would stream a response."""
    empty = {**response, "output": [], "status": "in_progress", "usage": None}
    out: list[Json] = [{"type": "response.created", "response": empty}, {"type": "response.in_progress", "response": empty}]
    for place, item in enumerate(response["output"]):
        out += _item_events(place, item, pieces)
    out.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(out)]


def _item_events(place: int, item: Json, pieces: int) -> list[Json]:
    where = {"item_id": item["id"], "output_index": place}
    kind = item["type"]
    hollow = {**item, **{key: empty for key, empty in (("content", []), ("summary", []), ("arguments", ""), ("input", "")) if key in item}}
    hollow.pop("encrypted_content", None)
    out = [{"type": "response.output_item.added", "output_index": place, "item": hollow}]
    if kind == "message":
        for number, part in enumerate(item["content"]):
            out += _part_events({**where, "content_index": number}, part, pieces)
    elif kind == "reasoning":
        for number, part in enumerate(item["summary"]):
            for text in cut(part["text"], pieces):
                out.append({"type": "response.reasoning_summary_text.delta", **where, "summary_index": number, "delta": text})
        for number, part in enumerate(item.get("content") or ()):
            for text in cut(part["text"], pieces):
                out.append({"type": "response.reasoning_text.delta", **where, "content_index": number, "delta": text})
    elif kind in ("function_call", "custom_tool_call"):
        name, field = ("function_call_arguments", "arguments") if kind == "function_call" else ("custom_tool_call_input", "input")
        out += [{"type": f"response.{name}.delta", **where, "delta": text} for text in cut(item[field], pieces)]
        out.append({"type": f"response.{name}.done", **where, "name": item["name"], field: item[field]})
    return [*out, {"type": "response.output_item.done", "output_index": place, "item": item}]


def _part_events(where: Json, part: Json, pieces: int) -> list[Json]:
    field = "text" if part["type"] == "output_text" else "refusal"
    name = f"response.{part['type']}"
    return [
        {"type": "response.content_part.added", **where, "part": {**part, field: ""}},
        *({"type": f"{name}.delta", **where, "delta": text, "logprobs": []} for text in cut(part[field], pieces)),
        {"type": f"{name}.done", **where, field: part[field], "logprobs": []},
        {"type": "response.content_part.done", **where, "part": part},
    ]


def cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def kinds(events: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def wire(events: list[Json]) -> bytes:
    return b"".join(sse.event(dumps(event), event["type"]) for event in events)


def client(body: bytes) -> OpenAI:
    """The SDK on a server that answers with these bytes."""

    def serve(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    return OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1", http_client=httpx2.Client(transport=httpx2.MockTransport(serve)), max_retries=0)


def final(events: list[Json], **request: Any) -> Any:
    """What the SDK's stream helper makes of the events."""
    with client(wire(events)) as sdk, sdk.responses.stream(model="m", input="q", **request) as stream:
        return stream.get_final_response()
