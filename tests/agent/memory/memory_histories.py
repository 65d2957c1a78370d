"""Histories for property tests, and what makes one valid: written apart from the code that it judges."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gateway.chat import Json, dumps, loads

bounded = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
"""no deadline for one example: the machine may have other things to do"""

text = st.text(st.characters(exclude_characters="\x00"), max_size=12) | st.sampled_from(["", " ", "hello", "北京", "</think>", 'a "quoted"\nline', "\ud83d"])
ids = st.sampled_from(["c1", "c2", "c3", "c1_2", ""])
arguments = st.sampled_from(["{}", '{"a": 1}', '{"a": 1', "", "[]", "nonsense", '{"q":"\\ud83d"}', None, 7]) | st.dictionaries(text, st.integers(), max_size=2)
calls = st.fixed_dictionaries(
    {"id": ids | st.none(), "type": st.just("function"), "function": st.fixed_dictionaries({"name": st.sampled_from(["f", "g", ""]), "arguments": arguments})}
)
reasoning = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_content": text | st.none(),
        "thinking_blocks": st.lists(st.fixed_dictionaries({"type": st.just("thinking"), "thinking": text}), max_size=2),
    },
)
parts = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": text}) | st.just({"type": "image_url", "image_url": {"url": "data:x"}}) | text, max_size=3
)
content = text | st.none() | parts
users = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "developer"]), "content": content}, optional={"name": st.sampled_from(["ann", "bob"])}
)
assistants = st.builds(
    lambda base, thought: {**base, **thought},
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": content}, optional={"tool_calls": st.lists(calls, max_size=3) | st.none(), "refusal": text}
    ),
    reasoning,
)
results = st.fixed_dictionaries({"role": st.just("tool"), "content": content}, optional={"tool_call_id": ids | st.none()})
junk = st.sampled_from(
    [None, 7, "text", {}, {"role": "robot", "content": "x"}, {"role": "function", "name": "f", "content": "1"}, {"role": "user", "content": 5}]
)
anything = st.lists(users | assistants | results | junk, max_size=12)


@st.composite
def proper(draw: st.DrawFn, turns: int = 6, words: int = 40) -> list[Json]:
    """A valid history: a system message perhaps, then turns of a user message, tool rounds and an answer."""
    said = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), min_size=1, max_size=words).filter(str.strip)
    out: list[Json] = [{"role": "system", "content": "You are."}] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, turns))):
        out.append({"role": "user", "content": draw(said)})
        for _ in range(draw(st.integers(0, 3))):
            made = [{"id": f"c{number + n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(draw(st.integers(1, 3)))]
            number += len(made)
            thought = {"reasoning_content": draw(said)} if draw(st.booleans()) else {}
            out.append({"role": "assistant", "content": None, "tool_calls": made, **thought})
            out.extend({"role": "tool", "tool_call_id": call["id"], "content": draw(said) * draw(st.sampled_from([1, 40]))} for call in made)
        out.append({"role": "assistant", "content": draw(said), **({"reasoning_content": draw(said)} if draw(st.booleans()) else {})})
    return out


def faults(messages: list[Any], *, alternate: bool = False) -> list[str]:
    """What a provider would refuse in a history; nothing of it, if it is valid."""
    out: list[str] = []
    seen: set[str] = set()
    owed: list[str] = []
    before = ""
    for place, message in enumerate(messages):
        role = message["role"]
        dumps(message)
        if owed and role != "tool":
            out.append(f"{place}: {owed} have no result")
            owed = []
        if role == "tool":
            if not owed or owed.pop(0) != message.get("tool_call_id"):
                out.append(f"{place}: a result out of place")
            if message.get("content") is None:
                out.append(f"{place}: a result without content")
        else:
            if not _something(message):
                out.append(f"{place}: empty")
            if role == before and messages[place - 1].get("name") == message.get("name"):
                out.append(f"{place}: two neighbours of {role}")
            if alternate and (role, before) in (("user", "tool"), ("user", "user")):
                out.append(f"{place}: {role} behind {before}")
            if alternate and role in ("system", "developer") and place:
                out.append(f"{place}: system is not first")
        for call in message.get("tool_calls") or ():
            if call["id"] in seen or not call["id"]:
                out.append(f"{place}: id {call['id']!r}")
            seen.add(call["id"])
            owed.append(call["id"])
            if not isinstance(loads(call["function"]["arguments"]), dict):
                out.append(f"{place}: arguments")
        before = role
    if owed:
        out.append(f"end: {owed} have no result")
    first = next((message["role"] for message in messages if message["role"] not in ("system", "developer")), "user")
    if first != "user":
        out.append(f"begins with {first}")
    return out


def _something(message: Json) -> bool:
    content = message.get("content")
    said = bool(content.strip()) if isinstance(content, str) else bool(content)
    return said or bool(message.get("tool_calls")) or bool(message.get("refusal"))
