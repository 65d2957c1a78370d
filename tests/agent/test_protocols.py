"""The text protocols (H19, H21, H24, H25, H34, P15, P24, B119, B121, B123, B125)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.arguments import BadArguments, from_text, prepare
from gateway.agent.protocols import PlanUnreadable, Verdict, Written, plan, react, tool_calls, verdict, written_calls
from gateway.agent.protocols.plans import EMPTY, UNREADABLE
from gateway.chat import dumps, loads

# ---- react ----


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("Thought: look\nAction: search[solar power]", "look", ("search", "solar power")),
        ("thought: look\naction: search[x]", "look", ("search", "x")),
        ("THOUGHT: a\nb\n\nc\nACTION: search[x]", "a\nb\n\nc", ("search", "x")),
        ("**Thought:** look\n**Action:** `search[x]`", "look", ("search", "x")),
        ("**Thought**: look\n**Action**: **search**[x]", "look", ("search", "x")),
        ("### Thought: look\n- Action: search[x]", "look", ("search", "x")),
        ("Thought 1: look\nAction 1: search[x]\n", "look", ("search", "x")),
        ("思考：看看\n行动：search[天气]", "看看", ("search", "天气")),
        ("思考：看看\n行动：搜索【天气】", "看看", ("搜索", "天气")),
        ("Action: search[x]", None, ("search", "x")),
        ("Let me see.\nAction: search[x]", None, ("search", "x")),
        ("Thought: look. Action: search[x]", "look.", ("search", "x")),
        ("Thought: a\nAction:\n\nsearch[x]", "a", ("search", "x")),
        ("Action: search[a [b] c]", None, ("search", "a [b] c")),
        ("Action: search [x]", None, ("search", "x")),
        ('Action: search[{"q": "a ] b", "n": [1]}]', None, ("search", '{"q": "a ] b", "n": [1]}')),
        ("Action: search[{'q': ']'}]", None, ("search", "{'q': ']'}")),
        ('Action: search("a ) b")', None, ("search", '"a ) b"')),
        ('Action: search({"q": "a ) b"})', None, ("search", '{"q": "a ) b"}')),
        ("Action: calc[(1 + 2) * 3]", None, ("calc", "(1 + 2) * 3")),
        ("Action: search[line 1\nline 2]", None, ("search", "line 1\nline 2")),
        ("Action: now", None, ("now", "")),
        ("Action: now[]", None, ("now", "")),
        ("Action: web-search.v2[x]", None, ("web-search.v2", "x")),
        ("Action: search\nAction Input: solar power", None, ("search", "solar power")),
        ('Action: search\n\nAction Input:\n{\n "q": 1}\n\nmore', None, ("search", '{\n "q": 1}')),
        ('Action: search\nAction Input:\n```json\n{"q": 1}\n```\n', None, ("search", '{"q": 1}')),
        ("行动：search\n行动输入：天气", None, ("search", "天气")),
        ('Action: {"name": "search", "arguments": {"q": 1}}', None, ("search", '{"q":1}')),
        ('Action:\n```json\n{"action": "search", "action_input": "x"}\n```', None, ("search", "x")),
        ("Action: search\nInput: x", None, ("search", "x")),
        ('Action: search\nArguments: {"q": 1}', None, ("search", '{"q": 1}')),
        ('Action: search\n```json\n{"q": 1}\n```', None, ("search", '{"q": 1}')),
        ('Action: search\n{"q": 1}\nObservation: 3', None, ("search", '{"q": 1}')),
        ('Action:\n```python\nsearch("x")\n```', None, ("search", '"x"')),
        ("Action: search[x]\n\nAction: other[y]", None, ("search", "x")),
        ("Thought: x\nAction: search[x]\nFinal Answer: 3", "x", ("search", "x")),
        ("<think>Action: wrong[x]\nFinish[y]</think>\nThought: t\nAction: search[x]", "t", ("search", "x")),
    ],
)
def test_actions_as_models_write_them_h25(text: str, thought: str | None, action: tuple[str, str]) -> None:
    turn = react(text)
    assert (turn.thought, turn.action, turn.finish) == (thought, action, None)


@pytest.mark.parametrize(
    ("text", "finish"),
    [
        ("Thought: ready\nFinish [line 1\nline 2 [1]\nline 3]", "line 1\nline 2 [1]\nline 3"),
        ("Thought: ready\nAction: Finish[line 1\nline 2 [1]\nline 3]", "line 1\nline 2 [1]\nline 3"),
        ("finish[42]", "42"),
        ("**Finish[42]**", "42"),
        ("Action: Finish(42)", "42"),
        ("行动：完成[四十二]", "四十二"),
        ("Finish[]", ""),
        ("Finish[a ] b]", "a ] b"),
        ("Finish[3]\n\nSources: [1]", "3"),
        ("Finish[not closed [x]", "not closed [x"),
        ("Finish[not closed", "not closed"),
        ("Finish[Report:\nObservation: rain\nThought: none\nEnd]", "Report:\nObservation: rain\nThought: none\nEnd"),
        ("Final Answer: a\n\nb", "a\n\nb"),
        ("**Final Answer:** 42", "42"),
        ("最终答案：四十二", "四十二"),
        ("Final Answer: Finish[42]", "42"),
        ("Finish: 42", "42"),
        ("Action: Finish\nAction Input: 42", "42"),
        ('Action: {"action": "Final Answer", "action_input": "42"}', "42"),
        ("Thought: x\nAction: search[x]\nFinish[3]", "3"),
        ("Thought: x\nAction: search[x]\nAction: Finish[3]", "3"),
        ("I know it now. Finish[42].", "42"),
        ("Thought: done\nAction: None\nFinal Answer: 42", "42"),
        ("Action: Finish\nIt is 42.\nObservation: no", "It is 42."),
    ],
)
def test_answers_as_models_write_them_b119_h25(text: str, finish: str) -> None:
    turn = react(text)
    assert (turn.finish, turn.action) == (finish, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Just words.",
        "Thought: only a thought",
        "Action: I will search the web",
        "Action: Finish",
        "Action: none",
        "Action: search[not closed",
        "Action: calc\nAction Input: {",
        'Action: calc\nAction Input: {"a": "',
        'Action: {"name": "search", "arguments": {"q"',
        "Action Input: 3",
        "Finish (the task) by looking it up",
        "When done I call Finish[answer] and stop.",
        "Observation: 3\nFinish[3]",
        "<think>Finish[3]</think>",
    ],
)
def test_what_is_neither_action_nor_answer_is_none_h25_b121(text: str) -> None:
    turn = react(text)
    assert (turn.action, turn.finish) == (None, None)


def test_json_on_several_lines_is_read_whole_b121() -> None:
    text = 'Thought: sum\nAction: calc\n\nAction Input: {\n  "code": "print({1: [2]})",\n  "note": "a } b"\n}\n'
    tool, given_ = react(text).action or ("", "")
    assert tool == "calc"
    assert loads(given_) == {"code": "print({1: [2]})", "note": "a } b"}


@pytest.mark.parametrize("label", ["Observation:", "observation :", "**Observation:**", "观察：", "观察结果：", "Observation 1:", "> Observation:"])
def test_an_invented_observation_is_cut_off_b123(label: str) -> None:
    turn = react(f"Thought: use tool\nAction: mul[2123,210512]\n{label} 1\nThought: done\nFinish[1]")
    assert turn.thought == "use tool"
    assert turn.action == ("mul", "2123,210512")
    assert turn.finish is None
    assert turn.text == "Thought: use tool\nAction: mul[2123,210512]"


def test_an_observation_cannot_close_an_action_that_is_open_b123() -> None:
    assert react("Action: search[x\nObservation: y]\nFinish[z]").action is None


def test_the_text_for_the_history_ends_with_the_action_or_the_answer_b123() -> None:
    assert react("Thought: a\nAction: s[x]\nI expect that it works.\nAction: t[y]").text == "Thought: a\nAction: s[x]"
    assert react("Thought: a\n**Action:** `s[x]` and so on").text == "Thought: a\n**Action:** `s[x]`"
    assert react("Finish[3]\nHope this helps!").text == "Finish[3]"
    assert react("no idea\nObservation: x").text == "no idea"


def test_a_call_without_a_label_is_one_only_for_known_tools() -> None:
    text = "Thought: look\nsearch[x]"
    assert react(text).action is None
    assert react(text, ("search",)).action == ("search", "x")
    assert react(text, ("search",)).thought == "look"
    assert react("Thought: look\nAction: I will use search[x] for that.", ("search",)).action == ("search", "x")
    assert react("Thought: look\nObservation: y\nAction: I use search[x]", ("search",)).action is None


_LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="[](){}（）【】［］*_`:：<"), max_size=30).map(str.strip)


def _plain(text: str) -> bool:
    words = ("finish", "完成", "结束", "action", "行动")
    return not any(word in text.casefold() for word in words)


@given(_LINE.filter(_plain), st.from_regex(r"[a-z][a-z_]{0,8}[a-z]", fullmatch=True).filter(lambda name: name not in ("finish",)), _LINE.filter(_plain))
def test_a_well_formed_action_comes_back(thought: str, tool: str, given_: str) -> None:
    turn = react(f"Thought: {thought}\nAction: {tool}[{given_}]")
    assert turn.action == (tool, given_)
    assert turn.thought == thought.strip()


@given(st.lists(_LINE.filter(_plain), max_size=4))
def test_a_well_formed_answer_comes_back(lines: list[str]) -> None:
    answer = "\n".join(lines).strip()
    for text in (f"Thought: t\nFinish[{answer}]", f"Thought: t\nAction: Finish[{answer}]"):
        assert react(text).finish == answer


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc]}\"' ", max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), _JSON, min_size=1, max_size=3))
def test_json_comes_through_every_protocol_as_it_was(value: dict[str, Any]) -> None:
    text = dumps(value).decode()
    for turn in (react(f"Action: t[{text}]"), react(f"Action: t({text})"), react(f"Action: t\nAction Input: {text}\nObservation: no")):
        assert turn.action is not None
        assert loads(turn.action[1]) == value
    (call,), rest = tool_calls(f"a [TOOL_CALL:t:{text}] b")
    assert loads(call.params) == value
    assert rest == "a  b"
    (call,), rest = written_calls(f'<tool_call>{{"name": "t", "arguments": {text}}}</tool_call>', ())
    assert loads(call.params) == value
    assert prepare(from_text(call.params, "t", {}), {}) == value


# ---- [TOOL_CALL:name:params] ----


def test_several_markers_are_read_and_removed_h19() -> None:
    calls, rest = tool_calls("First [TOOL_CALL:search:solar power]\nthen [TOOL_CALL:calc:a=1,b=2] done.")
    assert calls == [Written("search", "solar power"), Written("calc", "a=1,b=2")]
    assert rest == "First \nthen  done."


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ('[TOOL_CALL:t:{"q": "a ] b, c"}]', '{"q": "a ] b, c"}'),
        ('[TOOL_CALL:t: {"q": [1]} ]', '{"q": [1]}'),
        ("[TOOL_CALL:t:[1, 2]]", "[1, 2]"),
        ("[TOOL_CALL:t:q=a[1], r=2]", "q=a[1], r=2"),
        ('[TOOL_CALL:t:q="x ] y",r=2]', 'q="x ] y",r=2'),
        ("[TOOL_CALL:t:it's fine]", "it's fine"),
        ("[tool_call: t : x]", "x"),
        ("[TOOL_CALL:t]", ""),
        ("[TOOL_CALL:t(x y)]", "x y"),
        ("[TOOL_CALL:t:]", ""),
        ("[TOOL_CALL:t:a:b]", "a:b"),
        ("[TOOL_CALL:t:line 1\nline 2]", "line 1\nline 2"),
    ],
)
def test_values_with_brackets_and_commas_h21(text: str, params: str) -> None:
    assert tool_calls(text) == ([Written("t", params)], "")


@pytest.mark.parametrize("text", ["no marker", "[TOOL_CALL:t:not closed", "[TOOL_CALL:]", "<think>[TOOL_CALL:t:x]</think>"])
def test_no_marker_no_call_h19(text: str) -> None:
    assert tool_calls(text) == ([], text)


def test_a_result_that_the_model_invents_is_cut_off() -> None:
    calls, rest = tool_calls("Look. [TOOL_CALL:s:x]\nTool result: 3\nSo it is 3. [TOOL_CALL:t:3]")
    assert calls == [Written("s", "x")]
    assert rest == "Look."


# ---- calls written as tags or JSON ----


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "s", "arguments": {"q": 1}}\n</tool_call>',
        '<tool_call>{"name": "s", "arguments": "{\\"q\\":1}"}',
        '<tool_call>[{"name": "s", "parameters": {"q": 1}}]</tool_call>',
        '<function_call>{"function": {"name": "s", "arguments": {"q": 1}}}</function_call>',
        "<tool_call>{'name': 's', 'arguments': {'q': 1},}</tool_call>",
        '```json\n{"name": "s", "arguments": {"q": 1}}\n```',
        '{"tool": "s", "input": {"q": 1}}',
        '<tool_call><function=s>{"q": 1}</function></tool_call>',
    ],
)
def test_calls_that_nobody_parsed_are_read(text: str) -> None:
    assert written_calls(text, {"s"}) == ([Written("s", '{"q":1}')], "")


def test_the_words_around_a_written_call_stay() -> None:
    assert written_calls('I look.\n<tool_call>{"name": "s"}</tool_call>\n', ()) == ([Written("s", "{}")], "I look.")
    assert written_calls('I look.\n```json\n{"name": "s"}\n```\nWait.', {"s"}) == ([Written("s", "{}")], "I look.\n\nWait.")
    assert written_calls("<function=s>\n<parameter=q>\nx\ny\n</parameter>\n</function>", ()) == ([Written("s", '{"q":"x\\ny"}')], "")


@pytest.mark.parametrize("text", ['{"name": "Bob", "input": 3}', '```json\n{"name": "Bob"}\n```', "<tool_call>later</tool_call>", "plain", "[1, 2]"])
def test_json_that_is_an_answer_is_no_call(text: str) -> None:
    assert written_calls(text, {"s"}) == ([], text)


# ---- plans ----


@pytest.mark.parametrize(
    "text",
    [
        "```python\n['a', 'b, c', \"it's\"]\n```",
        "Here:\n```python\n[\n 'a',\n 'b, c',\n \"it's\",\n]\n```\nGood luck!",
        '["a", "b, c", "it\'s"]',
        'The plan is ["a", "b, c", "it\'s"], in this order.',
        '```json\n{"steps": ["a", "b, c", "it\'s"]}\n```',
        '{"plan": [{"step": "a"}, {"id": 2, "description": "b, c"}, {"task": "it\'s"}]}',
        '{"plan": {"steps": ["a", "b, c", "it\'s"]}}',
        '{"step 1": "a", "step 2": "b, c", "step 3": "it\'s"}',
        '```\n["a", "b, c", oops, "it\'s",,]\n```\n',
        '```\n"a"\n"b, c",\n"it\'s"\n```',
        "1. a\n2. b, c\n3. it's",
        "**Step 1:** a\n\n**Step 2:** b, c\n\n**Step 3:** it's",
        "第1步：a\n第2步：b, c\n第3步：it's",
        "```\n1) a\n2) b, c\n3) it's\n```",
    ],
)
def test_plans_as_models_write_them_h34(text: str) -> None:
    assert plan(text) == ["a", "b, c", "it's"]


def test_a_plan_in_the_second_block_is_found_b125() -> None:
    text = 'Draft:\n```\n[broken, "x\n```\nBetter:\n```json\n["Ask \'why\' first", "Use the \\"cost\\" column", "a, b"]\n```\nGood luck!'
    assert plan(text) == ["Ask 'why' first", 'Use the "cost" column', "a, b"]


@pytest.mark.parametrize("text", ["", "  \n", "[]", "```json\n[]\n```", '{"steps": []}', '["", " "]'])
def test_a_plan_without_steps_is_empty_h34(text: str) -> None:
    with pytest.raises(PlanUnreadable, match=EMPTY):
        plan(text)


@pytest.mark.parametrize(
    "text",
    ["I would look it up first.", "1. only one", '["cut off", "in the mid', "[1, 2]", '{"error": "no plan"}', "```\nnothing\n```", 'He said "no".', '["a", 1]'],
)
def test_a_text_is_never_a_plan_of_one_step_h34(text: str) -> None:
    with pytest.raises(PlanUnreadable, match=UNREADABLE):
        plan(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).map(str.strip).filter(bool), min_size=1, max_size=5))
def test_a_well_formed_plan_comes_back(steps: list[str]) -> None:
    written = dumps(steps).decode()
    assert plan(written) == steps
    assert plan(f"{steps!r}") == steps
    assert plan('{"steps": ' + written + "}") == steps


# ---- verdicts ----


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"valid": true, "issue": "", "plan": ""}', Verdict(True)),
        ('{"valid": false, "issue": "no step 2", "plan": "do it"}', Verdict(False, "no step 2", "do it")),
        ('It is fine.\n```json\n{"valid": true}\n```', Verdict(True)),
        ('I think {"valid": "false", "issue": ["a", "b"]} is right.', Verdict(False, "a; b")),
        ("{'valid': False, 'issue': 'x',}", Verdict(False, "x")),
        ('The form is {"valid": true}. My verdict: {"valid": false, "issue": "x"}', Verdict(False, "x")),
        ('{"verdict": {"valid": true}}', Verdict(True)),
        ('{"valid": false, "issue": null, "plan": ["a", "b"]}', Verdict(False, "", "1. a\n2. b")),
    ],
)
def test_verdicts_as_models_write_them_p15(text: str, wanted: Verdict) -> None:
    assert verdict(text) == wanted


@pytest.mark.parametrize("text", ["", "APPROVED", "valid", '{"valid": 1}', '{"valid": "maybe"}', '{"issue": "x"}', '{"valid": tr', "[true]"])
def test_what_is_no_verdict_is_none_whatever_it_says_p24(text: str) -> None:
    assert verdict(text) is None


# ---- any text ----

_PIECES = [
    *("Thought:", "Action:", "Action Input:", "Observation:", "Finish[", "Final Answer:", "[TOOL_CALL:", "t", ":", "[", "]", "{", "}", "(", ")", '"', "'"),
    *(",", "\n", "```", "```json\n", "<tool_call>", "</tool_call>", "<function=t>", "<parameter=a>", "1. ", "2. ", "\\", " ", "=", "思考：", "行动："),
    *("</think>", '{"name": "t"}', "name", "valid", "true"),
]


@given(st.one_of(st.text(max_size=150), st.lists(st.sampled_from(_PIECES), max_size=25).map("".join)))
def test_no_text_makes_a_parser_raise_h25(text: str) -> None:
    turn = react(text, ("t",))
    assert turn.action is None or turn.finish is None
    assert text.startswith(turn.text)
    calls, _ = tool_calls(text)
    more, _ = written_calls(text, {"t"})
    for call in (*calls, *more):
        try:
            assert isinstance(from_text(call.params, call.name, {}), dict)
        except BadArguments:
            pass
    verdict(text)
    try:
        assert all(plan(text))
    except PlanUnreadable:
        pass


_HARD = [
    "{",
    "[",
    '{"a',
    "Finish(\n",
    "Action: x[\n",
    "Action: " + "_" * 50,
    'a="',
    "<tool_call>{",
    " ",
    "Observation: \n",
    "```\n",
    "[TOOL_CALL:x:",
    "<function=a>",
    ",",
    '{"a":1}',
    "{a:'b'}",
    "'",
]


@pytest.mark.parametrize("piece", _HARD)
def test_no_long_text_takes_long(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    started = time.process_time()
    react(text, ("x",))
    tool_calls("[TOOL_CALL:x:" + text)
    written_calls(text, {"a"})
    verdict(text)
    for read in (plan, lambda text: prepare(text, {}), lambda text: prepare('{"a": ' + text, {}), lambda text: from_text(text, "x", {})):
        try:
            read(text)
        except (PlanUnreadable, BadArguments):
            pass
    assert time.process_time() - started < 5
