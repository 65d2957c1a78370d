"""What a refusal teaches: the next request does not pay for it again."""

from __future__ import annotations

import pytest
from running import CHAT, serving, yaml
from upstream_double import Upstream, completion

from gateway.errors import UpstreamError
from gateway.upstream.lessons import Lessons

REFUSAL = {
    "error": {"message": "Unsupported parameter: 'temperature' is not supported with this model.", "param": "temperature", "code": "unsupported_parameter"}
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(kind: str, param: str | None = None) -> UpstreamError:
    return UpstreamError(kind, "x", error={"param": param})


def test_a_lesson_holds_for_its_model_and_its_time() -> None:
    clock = Clock()
    lessons = Lessons(seconds=10, now=clock)
    lessons.learn("m", refused("param", "temperature"))

    assert [error.kind for error in lessons.of("m")] == ["param"]
    assert lessons.of("other") == []
    clock.now = 10
    assert lessons.of("m") == []
    assert list(lessons) == []


@pytest.mark.parametrize("kind", ["role_order", "signature"])
def test_what_is_about_one_request_teaches_nothing(kind: str) -> None:
    lessons = Lessons()

    assert not lessons.learn("m", refused(kind))
    assert lessons.of("m") == []


def test_the_same_lesson_is_kept_once_and_others_beside_it() -> None:
    lessons = Lessons()
    for param in ("temperature", "top_p", "temperature"):
        lessons.learn("m", refused("param", param))
    lessons.learn("m", refused("tools_effort"))

    assert sorted(kind for _, kind in lessons) == ["param:temperature", "param:top_p", "tools_effort"]


def test_it_stays_bounded() -> None:
    lessons = Lessons()
    for number in range(1000):
        lessons.learn(f"m{number}", refused("param", "x"))
        lessons.learn("m", refused("param", str(number)))

    assert len(list(lessons)) <= 512 + 8


async def test_the_next_request_is_sent_right_at_once(a: Upstream) -> None:
    a.reply(REFUSAL, status=400)
    a.reply(completion("one"))
    a.reply(completion("two"))
    async with serving(yaml({"a": a.url})) as running:
        first = await running.chat({**CHAT, "temperature": 0.5})
        second = await running.chat({**CHAT, "temperature": 0.5})
        ready = await running.client.get("/readyz")
        metrics = await running.client.get("/metrics")

    assert first.headers["x-thinkgate-chain"] == "a=400,a=200"
    assert second.headers["x-thinkgate-chain"] == "a=200"
    assert "temperature" not in a.requests[2].json
    assert ready.json()["providers"]["learned"] == {"a/a-model": ["param:temperature"]}
    assert 'thinkgate_learned{class="param",provider="a"} 1.0' in metrics.text


TOOL = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize(
    ("adapter", "refusal", "cause"),
    [
        ("adapter: openai", "Function tools with reasoning_effort are not supported", {"tools": TOOL, "reasoning_effort": "high"}),
        (
            "adapter: deepseek\noptions: {forced_tool_choice_while_thinking: keep}",
            "Thinking mode does not support this tool_choice",
            {"tools": TOOL, "tool_choice": "required"},
        ),
    ],
    ids=["tools_effort", "tool_choice_thinking"],
)
async def test_a_lesson_about_tools_leaves_other_requests_alone(a: Upstream, adapter: str, refusal: str, cause: dict[str, object]) -> None:
    """They would lose their thinking, for an hour and without a word."""
    a.reply({"error": {"message": refusal}}, status=400)
    a.reply(completion("one"), repeat=4)
    plain = {**CHAT, "model": "a/gpt-x"}
    async with serving(yaml({"a": a.url}, a=f"{adapter}\nretries: 0")) as running:
        first = await running.chat({**plain, **cause})
        await running.chat(plain)
        again = await running.chat({**plain, **cause})

    refused, repaired, other, prevented = (seen.json for seen in a.requests)
    assert first.headers["x-thinkgate-chain"] == "a=400,a=200"
    assert again.headers["x-thinkgate-chain"] == "a=200"
    assert prevented == repaired != refused
    assert other == {**CHAT, "model": "gpt-x"}
