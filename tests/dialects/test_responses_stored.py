"""What of Responses requests is kept, found again, cleaned for providers and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from responses_samples import PATCH, TOOL, Json, bare, user

from gateway.dialects import responses
from gateway.dialects.responses.carriers import seal
from gateway.errors import InvalidRequest, NotFound

CAPTURES = Path(__file__).parent.parent / "captures"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def said(text: str, ident: str = "msg_1") -> Json:
    return {"type": "message", "id": ident, "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text}]}


def response(ident: str, *output: Json) -> Json:
    return {"id": ident, "object": "response", "output": list(output)}


def asked(text: str = "q", **fields: Any) -> Json:
    return {"model": "m", "input": text, **fields}


def texts(items: list[Json]) -> list[Any]:
    return [item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in items]


def test_an_answer_is_found_again_and_forgotten_on_demand():
    stored = responses.Stored()
    stored.put("t", asked(), response("resp_1", said("a")))

    assert stored.get("t", "resp_1") == response("resp_1", said("a"))
    assert stored.delete("t", "resp_1") == {"id": "resp_1", "object": "response", "deleted": True}
    for ask in (stored.get, stored.delete, stored.cancel, stored.items):
        with pytest.raises(NotFound):
            ask("t", "resp_1")


def test_what_was_given_out_is_a_copy():
    stored = responses.Stored()
    stored.put("t", asked(), response("resp_1", said("a")))
    stored.get("t", "resp_1")["output"].clear()

    assert stored.get("t", "resp_1")["output"]


def test_an_answered_request_cannot_be_cancelled():
    stored = responses.Stored()
    stored.put("t", asked(), response("resp_1"))

    with pytest.raises(InvalidRequest, match="background"):
        stored.cancel("t", "resp_1")


def test_store_false_keeps_nothing():
    stored = responses.Stored()
    stored.put("t", asked(store=False), response("resp_1"))

    with pytest.raises(NotFound):
        stored.get("t", "resp_1")


def test_no_tenant_sees_anothers():
    stored = responses.Stored()
    stored.put("a", asked(), response("resp_1", said("secret")))

    with pytest.raises(NotFound):
        stored.get("b", "resp_1")
    with pytest.raises(InvalidRequest):
        stored.history("b", "resp_1")
    with pytest.raises(InvalidRequest):
        stored.item("b", "msg_1")


def test_the_history_is_the_whole_conversation_in_order():
    stored = responses.Stored()
    stored.put("t", asked("one"), response("resp_1", said("ONE", "msg_1")))
    stored.put("t", {"input": [user("two")], "previous_response_id": "resp_1"}, response("resp_2", said("TWO", "msg_2")))

    body = stored.expand("t", asked("three", previous_response_id="resp_2", instructions="new"))

    assert texts(body["input"]) == ["one", "ONE", "two", "TWO", "three"]
    assert "previous_response_id" not in body
    assert [message["content"] for message in responses.request_to_chat(body)["messages"]] == ["new", "one", "ONE", "two", "TWO", "three"]


def test_a_tool_loop_over_previous_response_id_is_a_whole_conversation():
    stored = responses.Stored()
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "w", "arguments": "{}"}
    stored.put("t", asked("q"), response("resp_1", call))

    body = stored.expand("t", {"model": "m", "input": [{"type": "function_call_output", "call_id": "call_1", "output": "r"}], "previous_response_id": "resp_1"})

    assert [message["role"] for message in responses.request_to_chat(body)["messages"]] == ["user", "assistant", "tool"]


def test_a_request_that_refers_to_nothing_is_left_alone():
    body = asked()

    assert responses.Stored().expand("t", body) is body


def test_vercels_reference_to_a_reasoning_item_is_resolved():
    body = json.loads((CAPTURES / "vercel-openai" / "07-POST-v1_responses-tool-reason.json").read_text())["body"]
    stored = responses.Stored()
    stored.put("t", asked("hi"), response("resp_1", {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}))

    messages = responses.request_to_chat(stored.expand("t", body))["messages"]

    assert messages[1]["reasoning_content"] == "hm"
    assert messages[1]["tool_calls"][0]["id"] == "call_1"


@pytest.mark.parametrize(
    ("fields", "param"), [({"previous_response_id": "resp_9"}, "previous_response_id"), ({"input": [{"type": "item_reference", "id": "rs_9"}]}, "input")]
)
def test_a_reference_to_nothing_names_its_field(fields: Json, param: str):
    with pytest.raises(InvalidRequest, match="9' not found") as failed:
        responses.Stored().expand("t", asked(**fields))

    assert (failed.value.status, failed.value.param) == (400, param)


def test_a_history_with_a_hole_is_none():
    stored = responses.Stored()
    stored.put("t", asked("one"), response("resp_1"))
    stored.put("t", asked("two", previous_response_id="resp_1"), response("resp_2"))
    stored.delete("t", "resp_1")

    with pytest.raises(InvalidRequest):
        stored.history("t", "resp_2")


def test_a_provider_that_repeats_its_ids_makes_no_endless_history():
    stored = responses.Stored()
    stored.put("t", asked("one", previous_response_id="resp_1"), response("resp_1"))

    with pytest.raises(InvalidRequest):
        stored.history("t", "resp_1")


def test_an_answer_is_kept_for_its_time():
    clock = Clock()
    stored = responses.Stored(keep=10, clock=clock)
    stored.put("t", asked(), response("resp_1", said("a")))
    clock.now = 9.9
    stored.get("t", "resp_1")
    clock.now = 10

    with pytest.raises(NotFound):
        stored.get("t", "resp_1")
    with pytest.raises(InvalidRequest):
        stored.item("t", "msg_1")


def test_the_least_recently_used_goes_first():
    stored = responses.Stored(responses=2)
    for name in ("1", "2"):
        stored.put("t", asked(), response(name))
    stored.get("t", "1")
    stored.put("t", asked(), response("3"))

    assert stored.get("t", "1")
    with pytest.raises(NotFound):
        stored.get("t", "2")


def test_who_holds_most_makes_room():
    stored = responses.Stored(size=3000)
    stored.put("small", asked(), response("resp_1", said("a")))
    for number in range(20):
        stored.put("big", asked(), response(f"resp_{number}", said("x" * 500)))

    assert stored.get("small", "resp_1")
    assert stored.get("big", "resp_19")
    with pytest.raises(NotFound):
        stored.get("big", "resp_0")


def test_what_is_larger_than_the_whole_memory_is_not_kept():
    stored = responses.Stored(size=500)
    stored.put("t", asked(), response("resp_1"))
    stored.put("t", asked("x" * 1000), response("resp_2"))

    assert stored.get("t", "resp_1")
    with pytest.raises(NotFound):
        stored.get("t", "resp_2")


def test_input_items_are_listed_with_ids():
    stored = responses.Stored()
    stored.put("t", {"input": [user("one"), {"type": "message", "id": "msg_x", "role": "user", "content": "two"}]}, response("resp_1"))

    listed = stored.items("t", "resp_1")

    assert listed["object"] == "list"
    assert [item["content"] for item in listed["data"]] == ["one", "two"]
    assert (listed["first_id"], listed["last_id"]) == (listed["data"][0]["id"], "msg_x")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("123456"), st.integers(0, 300)), max_size=40))
def test_the_bounds_hold_whatever_comes(puts: list[tuple[str, str, int]]):
    stored, sizes = responses.Stored(responses=5, size=1500), []
    for tenant, ident, size in puts:
        stored.put(tenant, asked("y" * size), response(ident, said("x", f"msg_{ident}")))
        kept = [(t, i) for t in "abc" for i in "123456" if _has(stored, t, i)]
        sizes.append(len(kept))
        assert sum(len(json.dumps(stored.get(t, i))) for t, i in kept) <= 1500 * 1.2  # json.dumps writes blanks that are not kept
        for t, i in kept:
            assert stored.item(t, f"msg_{i}")["id"] == f"msg_{i}"

    assert all(size <= 5 for size in sizes)


def _has(stored: responses.Stored, tenant: str, ident: str) -> bool:
    try:
        return bool(stored.get(tenant, ident))
    except NotFound:
        return False


# --- for a provider that speaks the dialect itself


def test_a_native_provider_gets_the_request_as_it_is():
    body = asked(tools=[TOOL])
    with_items = {
        **body,
        "input": [user(), {"type": "reasoning", "id": "rs_68af", "summary": [], "encrypted_content": "gAAA"}, {"type": "item_reference", "id": "rs_2"}],
    }

    assert responses.native_request(body) is body
    assert responses.native_request(with_items) is with_items


def test_items_of_the_gateway_lose_what_a_native_provider_cannot_look_up():
    completion = {
        "choices": [
            {"message": {"content": "Hi", "reasoning_content": "hm", "tool_calls": [{"id": "c", "function": {"name": "w"}}]}, "finish_reason": "tool_calls"}
        ]
    }
    output = responses.answer_from_chat(completion, asked())["output"]

    items = responses.native_request({"input": [user(), *output]})["input"]

    assert [item.get("type", "message") for item in items] == ["message", "message", "function_call"]
    assert items[1:] == bare(output[1:])


def test_openais_reasoning_that_a_chat_provider_relayed_is_native_again():
    details = [{"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_68af", "format": "openai-responses-v1", "index": 0}]
    completion = {"choices": [{"message": {"content": "Hi", "reasoning_details": details}, "finish_reason": "stop"}]}
    output = responses.answer_from_chat(completion, asked())["output"]

    items = responses.native_request({"input": [user(), *output]})["input"]

    assert items[1] == {"type": "reasoning", "id": "rs_68af", "summary": [], "encrypted_content": "gAAA"}


def test_anothers_sealed_reasoning_does_not_reach_a_native_provider():
    item = {"type": "reasoning", "summary": [], "encrypted_content": seal({"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]})}

    assert responses.native_request({"input": [user(), item]})["input"] == [user()]


# --- counting


@pytest.mark.parametrize(
    ("fields", "least", "most"),
    [
        ({"input": ""}, 1, 1),
        ({"input": "four score and seven years ago"}, 5, 10),
        ({"input": "hi", "instructions": "x" * 400}, 95, 110),
        ({"input": [user("x" * 400), {"type": "function_call_output", "call_id": "c", "output": "y" * 400}]}, 200, 220),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 90000}]}]}, 700, 800),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x", "detail": "low"}]}]}, 80, 95),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "A" * 8000}]}]}, 950, 1050),
        ({"input": "hi", "tools": [TOOL, PATCH]}, 40, 90),
        ({"input": "hi", "text": {"format": {"type": "json_schema", "schema": {"x": "y" * 400}}}}, 100, 120),
    ],
)
def test_input_tokens_are_estimated(fields: Json, least: int, most: int):
    assert least <= responses.count_input_tokens({"model": "m", **fields}) <= most
