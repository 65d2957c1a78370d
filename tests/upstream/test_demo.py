from __future__ import annotations

import base64
import json
import struct
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat import Accumulator
from gateway.upstream import demo
from gateway.upstream.demo import Answer, Refused
from gateway.upstream.demo_schema import Filler

Json = dict[str, Any]


def tool(name: str, description: str = "", required: list[str] | None = None, **properties: Any) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties) if required is None else required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TEXT = {"type": "string"}
WEATHER = tool("get_weather", "Get the current weather of a city", ["city"], city=TEXT, unit={"type": "string", "enum": ["celsius", "fahrenheit"]})
CALCULATOR = tool("calculator", "Evaluate an arithmetic expression", expression=TEXT)
SEARCH = tool("web_search", "Search the web", query=TEXT)
ADD = tool("add", "Add two numbers", a={"type": "number"}, b={"type": "number"})
THINKING = tool("sequential_thinking", "Think in steps", thought=TEXT, next_thought_needed={"type": "boolean"})
_ITEM = {
    "type": "object",
    "properties": {"content": TEXT, "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}},
    "required": ["content", "status"],
}
TODO = tool("todo_write", "Write the todo list", todos={"type": "array", "items": _ITEM})


def body(prompt: str, *tools: Json, system: str | None = None, **more: Any) -> Json:
    messages = [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": prompt}]
    return {"model": "demo", "messages": messages, **({"tools": list(tools)} if tools else {}), **more}


def message(request: Json) -> Json:
    said: Json = Answer(request).completion()["choices"][0]["message"]
    return said


def text(prompt: str, *tools: Json, **more: Any) -> str:
    return str(message(body(prompt, *tools, **more))["content"])


def calls(request: Json) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message(request).get("tool_calls", ())]


def loop(request: Json, most: int = 12, **results: str) -> tuple[list[tuple[str, Any]], str]:
    """Run the tools until the model answers: the calls in order, and the answer."""
    made: list[tuple[str, Any]] = []
    messages = list(request["messages"])
    for _ in range(most):
        said = message({**request, "messages": messages})
        messages.append(said)
        if not said.get("tool_calls"):
            return made, said["content"]
        for call in said["tool_calls"]:
            name = call["function"]["name"]
            made.append((name, json.loads(call["function"]["arguments"])))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": results.get(name, "ok")})
    raise AssertionError(f"no answer after {most} turns: {made}")


# ---- text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("Say hello", "hello"),
        ("Please say 'good morning' and nothing else.", "good morning"),
        ("Repeat after me: I am here.", "I am here"),
        ("Reply with exactly: OK", "OK"),
        ("count to 5", "1, 2, 3, 4, 5"),
        ("Can you count from 3 to 5?", "3, 4, 5"),
        ("请说：你好", "你好"),
        ("数到3", "1, 2, 3"),
    ],
)
def test_simple_orders_are_followed(prompt: str, said: str) -> None:
    assert text(prompt) == said


def test_anything_else_gets_the_question_back_and_what_the_model_is() -> None:
    said = text("Why is the sky blue?")

    assert "Why is the sky blue?" in said
    assert "demo model" in said
    assert "Thinkgate" in said


def test_the_text_may_come_in_parts() -> None:
    request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "say hi"}, {"type": "image_url", "image_url": {"url": "data:,"}}]}]}

    assert message(request)["content"] == "hi"


def test_a_system_prompt_that_asks_for_a_plan_gets_one_until_it_stands_there() -> None:
    system = "Think step by step: write a plan, do not answer yet."
    request = body("Where is the Louvre?", system=system)
    planned = {**request, "messages": [*request["messages"], {"role": "assistant", "content": "[Plan]\n1. Look it up."}]}

    assert message(request)["content"].startswith("Plan:\n1. ")
    assert not message(planned)["content"].startswith("Plan:")


def test_a_plan_inside_the_last_user_message_counts_too() -> None:
    said = text("Where is the Louvre?\n[Plan]\n1. Look it up.", system="Plan first.")

    assert said.startswith('You asked: "Where is the Louvre?"')


# ---- thinking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "off",
    [
        {"thinking": {"type": "disabled"}},
        {"thinking": False},
        {"reasoning_effort": "none"},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"enabled": False}},
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"disable_thinking": True},
    ],
)
def test_it_thinks_unless_thinking_is_off(off: Json) -> None:
    on = Answer(body("hi"))
    without = Answer(body("hi", **off))

    assert on.completion()["choices"][0]["message"]["reasoning_content"]
    assert on.usage()["completion_tokens_details"]["reasoning_tokens"] > 0
    assert "reasoning_content" not in without.completion()["choices"][0]["message"]
    assert not any("reasoning_content" in choice["delta"] for chunk in without.chunks() for choice in chunk["choices"])


def test_the_reasoning_names_the_tool_that_it_is_about_to_call() -> None:
    said = message(body("What is the weather in Paris?", WEATHER))

    assert "get_weather" in said["reasoning_content"]


# ---- the form of the answer ----------------------------------------------------------------------------


def test_the_chunks_add_up_to_the_plain_answer() -> None:
    request = body("What is the weather in Paris and in Rome?", WEATHER, n=2, stream_options={"include_usage": True})
    answer = Answer(request)
    accumulator = Accumulator()
    for chunk in answer.chunks():
        accumulator.add(chunk)

    added, plain = accumulator.completion(), answer.completion()

    def bare(completion: Json) -> Json:
        for choice in completion["choices"]:
            for call in choice["message"]["tool_calls"]:
                assert call.pop("id").startswith("call_")
            choice["message"]["content"] = choice["message"]["content"] or None
        return completion

    assert bare(added) == bare(plain)


def test_a_stream_begins_with_the_role_and_has_one_finish_reason() -> None:
    chunks = list(Answer(body("say one two")).chunks())

    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]] == ["stop"]
    assert len({(c["id"], c["created"], c["model"]) for c in chunks}) == 1
    assert all("usage" not in c for c in chunks)


def test_usage_is_the_last_chunk_where_it_was_asked_for_and_null_before() -> None:
    *before, last = Answer(body("say one", stream_options={"include_usage": True})).chunks()

    assert all(chunk["usage"] is None for chunk in before)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]


def test_content_is_the_same_and_ids_are_new_each_time() -> None:
    request = body("What is the weather in Paris?", WEATHER)
    one, two = (Answer(request).completion() for _ in range(2))

    assert one["id"] != two["id"]
    assert one["choices"][0]["message"]["tool_calls"][0]["id"] != two["choices"][0]["message"]["tool_calls"][0]["id"]
    assert one["choices"][0]["message"]["tool_calls"][0]["function"] == two["choices"][0]["message"]["tool_calls"][0]["function"]


def test_the_token_limit_ends_the_text_with_length() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        choice = Answer(body("Why?", **{name: 5})).completion()

        assert choice["choices"][0]["finish_reason"] == "length"
        assert len(choice["choices"][0]["message"]["content"]) == 20
        assert choice["usage"]["completion_tokens"] == 5


def test_stop_ends_the_text_before_it() -> None:
    for stop in (" three", ["x", " three"]):
        choice = Answer(body("say one two three four", stop=stop)).completion()["choices"][0]

        assert (choice["message"]["content"], choice["finish_reason"]) == ("one two", "stop")


def test_n_gives_so_many_choices_plain_and_streamed() -> None:
    answer = Answer(body("say hi", n=3))

    assert [choice["index"] for choice in answer.completion()["choices"]] == [0, 1, 2]
    assert {choice["index"] for chunk in answer.chunks() for choice in chunk["choices"]} == {0, 1, 2}


# ---- tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "made"),
    [
        ("What's the weather in Paris?", [("get_weather", {"city": "Paris"})]),
        ("weather in paris please", [("get_weather", {"city": "Paris"})]),
        ("北京天气怎么样？", [("get_weather", {"city": "北京"})]),
        ("Is it warm in San Francisco, in fahrenheit", [("get_weather", {"city": "San Francisco"})]),
        ("What is the temperature of Oslo in celsius?", [("get_weather", {"city": "Oslo", "unit": "celsius"})]),
        ("What is 15 * 8 + 32?", [("calculator", {"expression": "15 * 8 + 32"})]),
        ("Search for news about DeepSeek", [("web_search", {"query": "news about DeepSeek"})]),
        ("Please add 3 and 4.5", [("add", {"a": 3, "b": 4.5})]),
        ("Tell me a joke", []),
        ("say weather", []),
    ],
)
def test_the_tool_that_fits_the_prompt_is_called_with_what_the_prompt_says(prompt: str, made: list[Any]) -> None:
    assert calls(body(prompt, WEATHER, CALCULATOR, SEARCH, ADD)) == made


def test_two_things_asked_are_two_calls_at_once() -> None:
    cities = calls(body("Weather in Paris and London?", WEATHER))
    kinds = calls(body("What's the weather in Paris, and what is 12*7?", WEATHER, CALCULATOR))

    assert cities == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "London"})]
    assert kinds == [("get_weather", {"city": "Paris"}), ("calculator", {"expression": "12*7"})]


def test_without_parallel_calls_they_come_one_after_the_other() -> None:
    request = body("Weather in Paris and London?", WEATHER, parallel_tool_calls=False)

    made, _ = loop(request, get_weather="sunny")

    assert len(calls(request)) == 1
    assert made == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "London"})]


def test_the_answer_after_the_tools_holds_what_they_said() -> None:
    made, said = loop(body("Weather in Paris and what is 2+2?", WEATHER, CALCULATOR), get_weather='{"temp": 22}', calculator="4")

    assert len(made) == 2
    assert '{"temp": 22}' in said
    assert "calculator (2+2): 4" in said


def test_a_new_question_after_an_answer_starts_anew() -> None:
    request = body("Weather in Paris?", WEATHER)
    first = message(request)
    done = [
        *request["messages"],
        first,
        {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "ok"},
        {"role": "assistant", "content": "ok"},
    ]

    assert calls({**request, "messages": [*done, {"role": "user", "content": "And the weather in Paris tomorrow?"}]}) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("none", []),
        ("auto", ["get_weather"]),
        ("required", ["get_weather"]),
        ({"type": "function", "function": {"name": "calculator"}}, ["calculator"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "web_search"}}]}}, ["web_search"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "calculator"}}]}}, []),
    ],
)
def test_tool_choice_is_obeyed(choice: Any, names: list[str]) -> None:
    assert [name for name, _ in calls(body("How is the weather in Paris?", WEATHER, CALCULATOR, SEARCH, tool_choice=choice))] == names


def test_required_calls_a_tool_even_where_none_fits() -> None:
    assert calls(body("hi", CALCULATOR, tool_choice="required")) == [("calculator", {"expression": "hi"})]


def test_a_custom_tool_gets_a_text() -> None:
    request = body("use run_code: print(1)", {"type": "custom", "custom": {"name": "run_code", "description": "Runs code"}})
    said = message(request)["tool_calls"][0]
    deltas = [c["delta"]["tool_calls"][0] for chunk in Answer(request).chunks() for c in chunk["choices"] if "tool_calls" in c["delta"]]

    assert (said["type"], said["custom"]["name"]) == ("custom", "run_code")
    assert "".join(delta["custom"]["input"] for delta in deltas) == said["custom"]["input"] == "use run_code: print(1)"


def test_it_thinks_with_the_thinking_tool_plans_with_the_list_and_stops() -> None:
    made, said = loop(body("Think step by step: what is the weather in Paris?", THINKING, TODO, WEATHER), get_weather="rain")
    thoughts = [arguments for name, arguments in made if name == "sequential_thinking"]
    lists = [[item["status"] for item in arguments["todos"]] for name, arguments in made if name == "todo_write"]

    assert [(t["thought_number"], t["total_thoughts"], t["next_thought_needed"]) for t in thoughts] == [(1, 3, True), (2, 3, True), (3, 3, False)]
    assert lists == [["in_progress", "pending", "pending"], ["completed"] * 3]
    assert [name for name, _ in made].index("get_weather") == 4
    assert said == "Here is what I found with get_weather (Paris): rain"


def test_the_thinking_tool_is_left_alone_where_nobody_asked_for_thought() -> None:
    assert calls(body("Weather in Paris?", THINKING, TODO, WEATHER)) == [("get_weather", {"city": "Paris"})]


# ---- agents that work in text ----------------------------------------------------------------------------

REACT = (
    "You can use tools:\n- calculator: evaluate an arithmetic expression\n\n"
    "Answer with Thought: and Action: tool[input] or Action: Finish[answer].\nQuestion: What is 3 * 4?"
)


def test_a_text_protocol_of_actions_is_followed_to_its_finish() -> None:
    act = text(REACT)
    request = body(REACT)
    seen = [*request["messages"], {"role": "assistant", "content": act}, {"role": "user", "content": "Observation: 12"}]

    assert act.endswith("Action: calculator[3 * 4]")
    assert str(message({**request, "messages": seen})["content"]).endswith("Action: Finish[12]")


def test_a_plan_in_a_fenced_list_and_a_verdict_are_given_where_the_prompt_explains_them() -> None:
    plan = text("Make a plan as a list:\n```python\n['step 1', 'step 2']\n```\nQuestion: How do I bake bread?")

    assert plan.startswith("```python\n[")
    assert "bake bread" in json.loads(plan.removeprefix("```python\n").removesuffix("\n```"))[0]
    assert "[NO_IMPROVEMENT_NEEDED]" in text("Review this. If it is good, answer [NO_IMPROVEMENT_NEEDED].")


# ---- JSON ------------------------------------------------------------------------------------------------


def test_json_object_gives_an_object() -> None:
    assert json.loads(text("say hi", response_format={"type": "json_object"})) == {"answer": "hi"}


STEPS = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["child", "adult"]},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "minItems": 2},
        "note": {"anyOf": [{"type": "null"}, TEXT]},
        "when": {"type": "string", "format": "date"},
        "score": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "kind", "steps", "note", "when", "score", "ok"],
    "additionalProperties": False,
    "$defs": {
        "Step": {
            "type": "object",
            "properties": {"output": TEXT, "next": {"anyOf": [{"$ref": "#/$defs/Step"}, {"type": "null"}]}},
            "required": ["output", "next"],
            "additionalProperties": False,
        }
    },
}


def test_a_schema_is_satisfied_with_what_the_prompt_says() -> None:
    said = json.loads(
        text("Jane is 54 years old, an adult.", response_format={"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": STEPS}})
    )

    jsonschema.validate(said, STEPS)
    assert (said["name"], said["age"], said["kind"]) == ("Jane", 54, "adult")


_LEAF = st.one_of(
    st.just({"type": "string"}),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, st.integers(0, 9), st.integers(0, 9)),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, st.integers(-50, 50), st.integers(0, 9)),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.integers(-50, 50)),
    st.builds(lambda step: {"type": "integer", "multipleOf": step}, st.integers(1, 7)),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": ["string", "null"]}),
    st.builds(lambda value: {"const": value}, st.integers()),
    st.builds(lambda values: {"enum": values}, st.lists(st.text(max_size=5), min_size=1, max_size=3)),
)


def _larger(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    named = st.dictionaries(st.sampled_from(["city", "query", "count", "name", "answer", "url", "x"]), inner, max_size=4)
    return st.one_of(
        st.builds(lambda p: {"type": "object", "properties": p, "required": list(p), "additionalProperties": False}, named),
        st.builds(lambda i, least: {"type": "array", "items": i, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
    )


SCHEMAS = st.recursive(_LEAF, _larger, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.sampled_from(["", "Weather in Paris and 3.5 or -7 'quoted'", "数到3 北京天气", "x" * 40]))
def test_any_schema_of_the_usual_words_is_satisfied(schema: Json, prompt: str) -> None:
    jsonschema.validate(Filler(schema, prompt).value(), schema)


# ---- requests that are wrong -----------------------------------------------------------------------------

_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["object", "array", "#", "#/a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "properties", "required", "items", "enum", "$ref", "anyOf", "allOf", "minItems", "minimum", "function", "name", "role"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["messages", "tools", "tool_choice", "response_format", "stop", "n", "max_tokens", "thinking", "stream_options"]), _ANY, _ANY)
def test_any_body_is_answered_or_refused(field: str, value: Any, schema: Any) -> None:
    request = body("Weather in Paris?", {"type": "function", "function": {"name": "weather", "parameters": schema}}) | {field: value}
    for one in (request, body("x") | {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}):
        try:
            answer = Answer(one)
        except Refused:
            continue
        assert list(answer.chunks())
        assert answer.completion()["choices"]


_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"])}, optional={n: _ANY for n in ("content", "tool_calls", "tool_call_id")}
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_MESSAGE, min_size=1, max_size=4), _ANY)
def test_any_messages_and_choice_are_answered(messages: list[Json], choice: Any) -> None:
    answer = Answer({"messages": [{"role": "user", "content": "Weather?"}, *messages], "tools": [WEATHER, TODO], "tool_choice": choice})

    assert list(answer.chunks())


# ---- embeddings --------------------------------------------------------------------------------------------


def _vectors(**more: Any) -> list[Any]:
    return [item["embedding"] for item in demo.embeddings({"model": "demo", **more})["data"]]


def test_embeddings_are_the_same_each_time_and_near_for_the_same_words() -> None:
    one, near, far = _vectors(input=["the cat sat on the mat", "the cat sat on a mat", "quarterly revenue grew"])

    def dot(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert one == _vectors(input="the cat sat on the mat")[0]
    assert dot(one, one) == pytest.approx(1)
    assert dot(one, near) > 0.7 > 0.4 > dot(one, far)


def test_base64_holds_the_same_numbers_as_little_endian_floats() -> None:
    [floats] = _vectors(input="hello", dimensions=16)
    [packed] = _vectors(input="hello", dimensions=16, encoding_format="base64")

    assert struct.unpack("<16f", base64.b64decode(packed)) == pytest.approx(floats)


@pytest.mark.parametrize(("given", "count"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2)])
def test_every_form_of_input_is_taken(given: Any, count: int) -> None:
    assert len(_vectors(input=given)) == count


@pytest.mark.parametrize("wrong", [{}, {"input": ""}, {"input": []}, {"input": 3}, {"input": "a", "dimensions": 0}, {"input": "a", "dimensions": "9"}])
def test_a_wrong_embeddings_request_is_refused(wrong: Json) -> None:
    with pytest.raises(Refused):
        demo.embeddings(wrong)
