"""The data rules around an adapter's hooks: options, sections, history, names, stream."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.apply import prepare, recover
from gateway.adapters.hooks import Adapter, Context, Hooks
from gateway.adapters.reasoning import reasoning_text
from gateway.adapters.settings import COMMON_OPTIONS, faults, section_of, settings
from gateway.adapters.thinking import read_wish

CALL = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SWITCH = {"off": {"enable_thinking": False}, "on": {"enable_thinking": True}}


def sent(
    body: dict[str, Any], options: dict[str, Any] | None = None, *, stream: bool = False, wish: str = "auto", endpoint: str = "chat", **declared: Any
) -> tuple[dict[str, Any], Context]:
    adapter = Adapter(name="x", **declared)
    resolved = settings(adapter, "m", options or {})
    ctx = Context(model="m", dialect=adapter.dialect, endpoint=endpoint, stream=stream, thinking=read_wish(body) or wish, options=resolved)
    return prepare(copy.deepcopy(body), Hooks(adapter), resolved, ctx), ctx


def turn(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "a", **fields}


def test_without_declared_data_nothing_is_changed_but_usage_asked_for() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "developer", "content": "d"}, turn(reasoning="r"), "no message", {}],
        "max_tokens": 3,
        "thinking": {"type": "enabled"},
    }
    assert sent(body)[0] == body
    streamed, ctx = sent(body, stream=True)
    assert streamed == {**body, "stream_options": {"include_usage": True}}
    assert ctx.notes == ["x.include_usage"]
    assert sent(body, {"include_usage": False}, stream=True)[0] == body


ECHOES = [
    ("none", True, {}, {}),
    ("none", False, {}, {}),
    ("tool_turns", True, {}, {"reasoning_content": "two"}),
    ("tool_turns", False, {}, {"reasoning_content": "two"}),
    ("with_tools", True, {"reasoning_content": "one"}, {"reasoning_content": "two"}),
    ("with_tools", False, {}, {}),
    ("all", True, {"reasoning_content": "one"}, {"reasoning_content": "two"}),
    ("all", False, {"reasoning_content": "one"}, {"reasoning_content": "two"}),
]


@pytest.mark.parametrize(("which", "tools", "text_turn", "tool_turn"), ECHOES)
def test_the_echo_decides_which_turns_carry_reasoning(which: str, tools: bool, text_turn: dict[str, Any], tool_turn: dict[str, Any]) -> None:
    history = [turn(reasoning_content="one", reasoning="one"), turn(tool_calls=CALL, reasoning="two"), {"role": "user", "content": "u", "reasoning": "mine"}]
    body = {"messages": history, **({"tools": TOOLS} if tools else {})}
    assert sent(body, {"reasoning_echo": which})[0]["messages"] == [turn(**text_turn), turn(tool_calls=CALL, **tool_turn), history[2]]


@pytest.mark.parametrize(
    ("which", "tools", "filled"),
    [
        ("none", True, []),
        ("tool_turns", True, [1]),
        ("tool_turns", False, [1]),
        ("with_tools", True, [0, 1]),
        ("with_tools", False, []),
        ("all", True, [0, 1]),
        ("all", False, []),
    ],
)
def test_the_placeholder_fills_only_turns_that_must_carry_reasoning(which: str, tools: bool, filled: list[int]) -> None:
    body = {"messages": [turn(), turn(tool_calls=CALL, content=None)], **({"tools": TOOLS} if tools else {})}
    out, _ = sent(body, {"reasoning_echo": which, "reasoning_placeholder": "."})
    assert [at for at, message in enumerate(out["messages"]) if message.get("reasoning_content") == "."] == filled
    assert sent(body, {"reasoning_echo": which})[0] == body


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning_content": "", "reasoning": "b"}, "b"),
        ({"reasoning_content": None, "reasoning_text": "c"}, "c"),
        ({"reasoning": {"effort": "x"}, "thinking": "t"}, "t"),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "s"}, {"type": "reasoning.text", "text": "t"}]}, "st"),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, None),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]}, "t"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "p"}]}, {"type": "text", "text": "x"}]}, "p"),
        ({"reasoning_content": ""}, ""),
        ({"reasoning_content": None}, None),
        ({}, None),
    ],
)
def test_reasoning_is_read_from_the_first_field_that_has_text(message: dict[str, Any], text: str | None) -> None:
    assert reasoning_text(message) == text


@pytest.mark.parametrize(
    ("field", "placeholder", "message", "wanted"),
    [
        ("reasoning", None, {"reasoning_content": "r"}, {"reasoning": "r"}),
        ("reasoning", "", {}, {"reasoning": ""}),
        ("reasoning_details", None, {"reasoning_content": "r"}, {"reasoning_details": [{"type": "reasoning.text", "text": "r"}]}),
        ("reasoning_details", None, {"reasoning_content": "r", "reasoning_details": [{"type": "x", "id": 1}]}, {"reasoning_details": [{"type": "x", "id": 1}]}),
        ("reasoning_details", "", {}, {"reasoning_details": []}),
        ("reasoning_details", "", {"reasoning_details": []}, {"reasoning_details": []}),
        ("thinking_blocks", None, {"reasoning": "r"}, {"thinking_blocks": [{"type": "thinking", "thinking": "r"}]}),
        ("reasoning_content", None, {"reasoning_content": "", "reasoning": ""}, {"reasoning_content": ""}),
        ("reasoning_content", None, {"reasoning_content": None}, {"reasoning_content": None}),
        ("reasoning_content", "", {"reasoning_content": 5}, {"reasoning_content": ""}),
    ],
)
def test_reasoning_goes_upstream_in_the_one_field_that_the_provider_knows(
    field: str, placeholder: str | None, message: dict[str, Any], wanted: dict[str, Any]
) -> None:
    out, _ = sent({"messages": [turn(**message)], "tools": TOOLS}, {"reasoning_echo": "all", "reasoning_field": field, "reasoning_placeholder": placeholder})
    assert out["messages"] == [turn(**wanted)]


def test_thinking_parts_leave_the_content_and_an_emptied_content_stays_legal() -> None:
    part = {"type": "thinking", "thinking": "t"}
    body = {"messages": [turn(content=[part]), turn(content=[part], tool_calls=CALL), turn(content=[{"type": "text", "text": "x"}])]}
    out, ctx = sent(body, {"reasoning_echo": "none"})
    assert [message["content"] for message in out["messages"]] == ["", None, [{"type": "text", "text": "x"}]]
    assert ctx.notes == ["x.reasoning_stripped=2"]
    moved, _ = sent(body, {"reasoning_echo": "all"})
    assert [message.get("reasoning_content") for message in moved["messages"]] == ["t", "t", None]


@pytest.mark.parametrize(
    ("role", "messages", "wanted"),
    [
        ("system", [("developer", "a"), ("user", "u")], [("system", "a"), ("user", "u")]),
        ("developer", [("system", "a"), ("user", "u"), ("system", "b")], [("developer", "a"), ("user", "u"), ("developer", "b")]),
        ("first_only", [("user", "u"), ("developer", "a"), ("system", "b")], [("system", "a\n\nb"), ("user", "u")]),
        ("first_only", [("system", "a"), ("user", "u")], [("system", "a"), ("user", "u")]),
        ("first_only", [("developer", "a")], [("system", "a")]),
        ("first_only", [("user", "u")], [("user", "u")]),
    ],
)
def test_instructions_take_the_role_and_place_that_the_provider_knows(role: str, messages: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> None:
    body = {"messages": [{"role": one, "content": text} for one, text in messages]}
    out, ctx = sent(body, {"system_role": role})
    assert [(message["role"], message["content"]) for message in out["messages"]] == wanted
    assert ctx.notes == ([] if messages == wanted else [f"x.system_role={role}"])


def test_instructions_in_parts_are_joined_as_parts() -> None:
    body = {"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"}]}]}
    out, _ = sent(body, {"system_role": "first_only"})
    assert out["messages"] == [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]


def test_parameters_are_dropped_and_renamed_also_inside_objects() -> None:
    body = {"messages": [], "seed": 0, "user": None, "a": {"b": 1, "c": 2}, "d": {"e": 1}}
    out, ctx = sent(body, {"drop_params": ["user", "d.e", "gone"], "rename_params": {"seed": "random_seed", "a.b": "top", "none": "nothing"}})
    assert out == {"messages": [], "random_seed": 0, "a": {"c": 2}, "top": 1}
    assert ctx.notes == ["x.drop=user", "x.drop=d.e", "x.rename=seed>random_seed", "x.rename=a.b>top"]


@pytest.mark.parametrize(
    ("wanted", "body", "out"),
    [
        ("max_tokens", {"max_completion_tokens": 5}, {"max_tokens": 5}),
        ("max_completion_tokens", {"max_tokens": 5}, {"max_completion_tokens": 5}),
        ("max_tokens", {"max_tokens": 5, "max_completion_tokens": 7}, {"max_tokens": 5}),
        (None, {"max_tokens": 5, "max_completion_tokens": 7}, {"max_tokens": 5, "max_completion_tokens": 7}),
    ],
)
def test_the_token_limit_goes_by_the_name_that_the_provider_knows(wanted: str | None, body: dict[str, Any], out: dict[str, Any]) -> None:
    assert sent(body, {"max_tokens_field": wanted})[0] == out


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        "any",
        {"type": "function", "function": {"name": "f"}},
        {"type": "tool", "name": "f"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required"}},
    ],
)
def test_a_forced_tool_choice_gives_way_while_the_model_thinks(choice: Any) -> None:
    body = {"messages": [], "tools": TOOLS, "tool_choice": choice}
    auto, thinking_off = {"forced_tool_choice_while_thinking": "auto"}, {"forced_tool_choice_while_thinking": "thinking_off"}
    assert sent(body, thinking=SWITCH)[0] == body
    assert sent(body, auto, thinking=SWITCH)[0] == {**body, "tool_choice": "auto"}
    assert sent(body, auto, dialect="messages", endpoint="messages", thinking=SWITCH)[0] == {**body, "tool_choice": {"type": "auto"}}
    assert sent(body, thinking_off, thinking=SWITCH)[0] == {**body, "enable_thinking": False}
    assert sent(body, thinking_off, thinking={"off": "omit"})[0] == {**body, "tool_choice": "auto"}
    assert sent(body, auto, thinking={**SWITCH, "default": "off"})[0] == body
    assert sent({**body, "enable_thinking": False}, auto, thinking=SWITCH)[0] == {**body, "enable_thinking": False}


@pytest.mark.parametrize("choice", ["auto", "none", {"type": "auto"}, {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, None])
def test_a_choice_that_forces_nothing_stays(choice: Any) -> None:
    body = {"messages": [], "tools": TOOLS, "tool_choice": choice}
    assert sent(body, {"forced_tool_choice_while_thinking": "auto"}, thinking=SWITCH)[0] == body


def test_a_plain_request_to_a_model_that_thinks_only_in_streams_goes_without_thinking_or_as_a_stream() -> None:
    rule = {**SWITCH, "unstreamed": "off"}
    body = {"messages": [], "stream": False}
    out, ctx = sent(body, {"stream_only": "thinking"}, thinking=rule)
    assert (out, ctx.force_stream) == ({**body, "enable_thinking": False}, False)
    out, ctx = sent({**body, "enable_thinking": True}, {"stream_only": "thinking"}, thinking=rule)
    assert out == {"messages": [], "stream": True, "enable_thinking": True, "stream_options": {"include_usage": True}}
    assert ctx.force_stream
    assert sent({"messages": [], "stream": True}, {"stream_only": "thinking"}, stream=True, thinking=rule)[0]["stream"] is True
    out, ctx = sent(body, {"stream_only": True})
    assert (out["stream"], ctx.force_stream, ctx.notes) == (True, True, ["x.include_usage", "x.stream_only"])


def test_a_stream_forced_by_a_hook_is_asked_for_too() -> None:
    def force(body: dict[str, Any], ctx: Context) -> dict[str, Any]:
        ctx.force_stream = True
        return body

    out, _ = sent({"messages": []}, hooks={"transform_request": force})
    assert out == {"messages": [], "stream": True, "stream_options": {"include_usage": True}}


def test_stream_options_of_the_client_are_kept() -> None:
    body = {"messages": [], "stream": True, "stream_options": {"include_obfuscation": False}}
    assert sent(body, stream=True)[0]["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_hooks_see_the_hoisted_body_with_its_wish_and_the_rules_come_after_them() -> None:
    seen: dict[str, Any] = {}

    def hook(body: dict[str, Any], ctx: Context) -> dict[str, Any]:
        seen.update(copy.deepcopy(body))
        body["max_tokens"] = 9
        return body

    body = {"messages": [], "extra_body": {"enable_thinking": False}}
    out, _ = sent(
        body, {"hoist_extra_body": True, "max_tokens_field": "max_completion_tokens"}, thinking={"off": {"think": False}}, hooks={"transform_request": hook}
    )
    assert seen == {"messages": [], "enable_thinking": False}
    assert out == {"messages": [], "think": False, "max_completion_tokens": 9}


def test_endpoints_whose_models_do_not_think_get_no_thinking_and_no_stream() -> None:
    body = {"input": ["a"], "user": "u"}
    out, ctx = sent(body, {"drop_params": ["user"], "stream_only": True}, wish="off", endpoint="embeddings", thinking=SWITCH)
    assert (out, ctx.notes) == ({"input": ["a"]}, ["x.drop=user"])


def test_a_body_in_another_dialect_than_the_adapters_only_loses_and_renames_fields() -> None:
    body = {"input": [], "reasoning": {"effort": "high"}, "max_output_tokens": 5, "user": "u"}
    adapter = Adapter(name="x", thinking={"off": "omit"})
    options = settings(adapter, "m", {"drop_params": ["user"], "max_tokens_field": "max_tokens"})
    ctx = Context(dialect="responses", endpoint="responses", thinking="high", stream=True, options=options)
    assert prepare(dict(body), Hooks(adapter), options, ctx) == {"input": [], "reasoning": {"effort": "high"}, "max_output_tokens": 5}


def test_other_dialects_keep_their_own_history() -> None:
    body = {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]}], "max_tokens": 1, "tools": []}
    assert sent(body, {"reasoning_echo": "none", "system_role": "system"}, dialect="messages", endpoint="messages", stream=True)[0] == body


SECTIONS = (
    {"match": ["a-*", "b"], "thinking": {"off": "omit"}, "options": {"reasoning_echo": "all"}},
    {"match": "a*", "thinking": False, "options": {"think_tags": True}},
    {"match": "*", "host": "api.x.com"},
)


@pytest.mark.parametrize(
    ("model", "base_url", "number"),
    [
        ("a-1", None, 0),
        ("b", None, 0),
        ("ab", None, 1),
        ("c", None, None),
        ("c", "https://api.x.com/v1", 2),
        ("c", "https://api.x.com.evil.org/v1", None),
        ("c", "https://eu.api.x.com/v1", 2),
        ("c", "http://localhost:8000", 2),
        ("c", "http://[::1]:8000", 2),
        ("c", "http://127.0.0.5", 2),
        ("c", "mock://?reply=x", 2),
        ("c", "http://10.0.0.1", None),
    ],
)
def test_the_first_section_that_matches_model_and_host_holds(model: str, base_url: str | None, number: int | None) -> None:
    assert section_of(SECTIONS, model, base_url) == ({} if number is None else SECTIONS[number])


def test_the_config_wins_over_the_section_the_section_over_the_adapter() -> None:
    adapter = Adapter(name="x", models=SECTIONS, options={"reasoning_echo": "none", "own": 1}, thinking=SWITCH)
    assert settings(adapter, "c", {})["reasoning_echo"] == "none"
    assert settings(adapter, "b", {})["reasoning_echo"] == "all"
    assert settings(adapter, "b", {"reasoning_echo": "tool_turns"})["reasoning_echo"] == "tool_turns"
    assert settings(adapter, "b", {"own": 2})["own"] == 2
    assert settings(adapter, "ab", {})["think_tags"] == "on"
    assert settings(adapter, "ab", {}).thinking is None
    section = settings(adapter, "b", {}).thinking
    assert section is not None
    assert (section.wordings["off"].label, section.wordings["on"].fields) == ("on", ((("enable_thinking",), True),))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("reasoning_echo", [None, "none", "all"], ["some", 1]),
        ("reasoning_field", ["reasoning"], [None, "rc"]),
        ("reasoning_placeholder", [None, "", " "], [0, True]),
        ("reasoning_memory", [True, False], ["true", 1]),
        ("think_tags", ["off", "on", True, False, "start_inside"], [None, 1]),
        ("drop_params", [[], {}, ["a"]], [{"a": 1}, "a", [1], None]),
        ("rename_params", [{}, {"a": "b"}], [{"a": 1}, []]),
        ("embedding_batch", [None, 1, 100], [0, -1, True, 1.5, "10"]),
        ("stream_only", [True, False, "thinking", "on", "no"], [1, 0, "maybe"]),
    ],
)
def test_values_of_the_common_options_are_checked(name: str, good: list[Any], bad: list[Any]) -> None:
    assert [COMMON_OPTIONS[name].fault(value) for value in good] == [None] * len(good)
    assert all(COMMON_OPTIONS[name].fault(value) for value in bad)


def test_every_default_of_the_common_options_is_one_of_its_values() -> None:
    assert [name for name, option in COMMON_OPTIONS.items() if option.fault(option.default)] == []


def test_faults_of_an_adapters_data_name_their_place() -> None:
    models = [{"match": "a", "options": {"reasoning_eho": 1, "stream_only": 3}, "thinking": {"of": 1}}, {"mach": "b"}, "c", {"match": ["a"], "thinking": 3}]
    assert list(faults({"own": 1, "think_tags": "maybe"}, SWITCH, models)) == [
        "options.think_tags must be one of off, on, start_inside",
        "models[1].options: unknown option 'reasoning_eho'",
        "models[1].options.stream_only must be one of false, true, thinking",
        "models[1].thinking: unknown key 'of', known: off, on, effort, levels, default, with_tools, unstreamed, refuses, "
        "always, keeps_effort, on_level, keeps, beside, room, drop",
        "models[2]: unknown key 'mach', known: match, host, thinking, options",
        "models[2].match must be a glob or a list of globs",
        "models[3] must be a table",
        "models[4].thinking must be a table or false",
    ]
    assert list(faults({}, 3, ())) == ["thinking must be a table"]


def test_the_adapters_own_repair_is_asked_before_the_default_one() -> None:
    def hook(body: dict[str, Any], kind: str, ctx: Context) -> dict[str, Any] | None:
        return {"mended": True} if kind == "signature" else None

    adapter = Adapter(name="x", hooks={"repair": hook})
    options = settings(adapter, "m", {})
    ctx = Context(options=options)
    assert recover({"messages": []}, "signature", Hooks(adapter), options, ctx) == {"mended": True}
    assert recover({"reasoning_effort": "high"}, "tools_effort", Hooks(adapter), options, ctx) == {"reasoning_effort": "none"}
    assert ctx.notes == ["x.repair=signature", "x.repair=tools_effort:reasoning_effort=none"]


NAMES = ["role", "content", "tool_calls", "type", "mode", "allowed_tools", "reasoning", "reasoning_details", "thinking", "text", "include_usage"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["assistant", "system", "required", "high", "thinking", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
fields = [
    "messages",
    "tools",
    "tool_choice",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "extra_body",
    "stream_options",
    "max_tokens",
    "chat_template_kwargs",
    "a",
]
EVERYTHING = {
    "reasoning_echo": "all",
    "reasoning_placeholder": "",
    "hoist_extra_body": True,
    "drop_params": ["a.content"],
    "rename_params": {"a.text": "b.c"},
    "max_tokens_field": "max_completion_tokens",
    "system_role": "first_only",
    "forced_tool_choice_while_thinking": "auto",
    "stream_only": "thinking",
}


@given(st.dictionaries(st.sampled_from(fields), json_values, max_size=6), st.booleans(), st.sampled_from(["none", "tool_turns", "with_tools", "all"]))
def test_no_body_however_malformed_breaks_a_rule(body: dict[str, Any], stream: bool, which: str) -> None:
    rule = {"off": {"thinking.type": "disabled"}, "on": {"thinking": {"type": "enabled"}}, "effort": "reasoning.effort"}
    first, _ = sent(body, {**EVERYTHING, "reasoning_echo": which}, stream=stream, thinking=rule)
    again, ctx = sent(first, {**EVERYTHING, "reasoning_echo": which}, stream=stream, thinking=rule)
    assert again == first
    assert ctx.notes == []
