"""What the demo model says to a conversation: thoughts, text or tool calls, by fixed rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.chat import dumps, loads
from gateway.upstream import demo_tools
from gateway.upstream.demo_schema import Filler, as_list, as_object, quoted
from gateway.upstream.demo_tools import Call, Tool

Json = dict[str, Any]

_SAY = re.compile(
    r"^\W*(?:please\s+)?(?:can you\s+)?(?:say|repeat|echo|(?:reply|answer|respond)\s+with)\b"
    r"(?:\s+(?:after me|back|exactly|only|just|the words?|the text|this))*\s*[:,]?\s*(?P<what>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_SAY_CHINESE = re.compile(r"^\s*请?(?:说|重复|回复)(?:一遍)?[:：]?\s*(?P<what>.+)$", re.DOTALL)
_COUNT = re.compile(r"\bcount\b\D{0,20}?(?:from\s+(?P<low>\d{1,6})\s+)?(?:up\s+)?to\s+(?P<high>\d{1,6})|数到\s*(?P<zh>\d{1,6})", re.IGNORECASE)
_GREETING = re.compile(r"^\W*(?:hi|hello|hey|good (?:morning|evening)|你好|您好)\b\W*(?:there|demo)?\W*$", re.IGNORECASE)
_PLAN = re.compile(r"\bplan\b|step[- ]by[- ]step|think (?:first|before|carefully)|计划|规划|逐步", re.IGNORECASE)
_TOOL_LINE = re.compile(r"^\s*[-*]\s*`?(\w+)`?\s*(?:\([^)]*\))?\s*[:：-]\s*(.+)$", re.MULTILINE)
_QUESTION = re.compile(r"(?:Question|Task|问题|任务)\s*[:：]\s*(.+)", re.IGNORECASE)
_STEP = re.compile(r"^(?:Current step|当前步骤)\s*[:：]\s*(.+)", re.IGNORECASE | re.MULTILINE)
_OBSERVATION = re.compile(r"^(?:Observation|观察)\s*[:：]\s*(.+)", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_TASK = re.compile(r"\A[^\n]+\n\nTask: (.+)\Z", re.DOTALL)
_RESULT = re.compile(r"^Result \d+: (.+?)(?=\n\nStep \d+: |\n\nCurrent step: )", re.MULTILINE | re.DOTALL)
_REFINE = re.compile(r"^Your last result:\n(?P<result>.*?)\n\nReview:\n(?P<review>.*)", re.MULTILINE | re.DOTALL)
_REVIEWED = re.compile(r"^Result:\n(?P<result>.+)", re.MULTILINE | re.DOTALL)
_NO_IMPROVEMENT = "[NO_IMPROVEMENT_NEEDED]"
_CAVEAT = "This is what the demo model made of it: check it before you rely on it."
_COUNT_AT_MOST = 1_000
_RESULT_AT_MOST = 2_000

ABOUT = (
    "I am the demo model that is built into Thinkgate: I follow a few fixed rules, so that you can try everything without a key. "
    "I stream, show my reasoning, call the tools that you offer when the question fits them, fill JSON schemas, and say or count what you ask for. "
    "For real answers, set a provider's key and ask for the model `auto`."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: `text` or `calls`, and the reasoning before it ("" where thinking is off)."""

    reasoning: str = ""
    text: str = ""
    calls: Sequence[Call] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """The parts of `messages` that the demo model looks at.

    user      the last user message
    called    the tool calls made since then
    results   (call, text) of the tool messages since then
    planned   the request ends with a plan that an agent put before the answer
    everything  all texts of system and user messages, joined
    step      the step of its own plan that an agent lets the model carry out; `found`: the results of those before it
    """

    system: str
    user: str
    called: Sequence[Call]
    results: Sequence[tuple[Call, str]]
    planned: bool
    everything: str
    step: str = ""
    found: Sequence[str] = ()

    @classmethod
    def read(cls, messages: Sequence[Any]) -> Conversation:
        known = [message for message in messages if isinstance(message, Mapping)]
        last = max((at for at, message in enumerate(known) if message.get("role") == "user"), default=-1)
        system = "\n".join(text_of(m) for m in known if m.get("role") in ("system", "developer"))
        everything = "\n".join(text_of(m) for m in known if m.get("role") in ("system", "developer", "user"))
        since = known[last + 1 :]
        named: dict[str, Call] = {}
        called: list[Call] = []
        for entry in (as_object(entry) for message in since for entry in as_list(message.get("tool_calls"))):
            call = _call(entry)
            named[str(entry.get("id"))] = call
            called.append(call)
        results = [(named.get(str(m.get("tool_call_id"))) or Call("the tool", ""), text_of(m)) for m in since if m.get("role") == "tool"]
        user = text_of(known[last]) if last >= 0 else ""
        planned = bool(since) and since[-1].get("role") == "assistant" and text_of(since[-1]).startswith("[Plan]")
        user, plan, _ = user.partition("\n[Plan]\n")
        found = _RESULT.findall(user)
        user, step = _what_is_asked(user)
        return cls(system, user.strip(), called, results, planned or bool(plan), everything, step, found)


def _what_is_asked(user: str) -> tuple[str, str]:
    """The question in an agent's prompt, and the step of a plan that is due: all else in such a prompt is what led to it."""
    step, question = _STEP.search(user), _QUESTION.search(user)
    if step is not None:
        mine = question is not None and step[1].strip() in demo_tools.STEPS[1:]
        return question[1] if mine and question is not None else step[1], step[1].strip()
    task = _TASK.match(user)
    return (task[1] if task is not None else user), ""


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whatever form its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in map(as_object, as_list(content))).strip()


def _call(entry: Mapping[str, Any]) -> Call:
    inner = as_object(entry.get("function")) or as_object(entry.get("custom"))
    if "input" in inner:
        return Call(str(inner.get("name")), str(inner["input"]))
    try:
        arguments = loads(str(inner.get("arguments") or "{}"))
    except ValueError:
        arguments = {}
    return Call(str(inner.get("name")), dict(as_object(arguments)))


def answer(body: Mapping[str, Any]) -> Reply:
    """The reply to a chat request; the same request always gets the same one."""
    talk = Conversation.read(body.get("messages") or ())
    tools, must = demo_tools.offered(body)
    calls: list[Call] = []
    if tools and (must or (_instruction(talk.user) is None and not _step_needs_no_tool(talk.step))):
        parallel = body.get("parallel_tool_calls") is not False
        calls = demo_tools.choose(tools, talk.user, talk.system, talk.called, must=must, parallel=parallel, planned=talk.planned)
    text = "" if calls else _text(body, talk)
    return Reply(_reasoning(talk, calls) if thinks(body) else "", text, calls)


def _step_needs_no_tool(step: str) -> bool:
    return step.startswith(demo_tools.STEPS[0]) or step == demo_tools.STEPS[2]


def thinks(body: Mapping[str, Any]) -> bool:
    """Whether the request leaves thinking on."""
    thinking, reasoning, template = (as_object(body.get(name)) for name in ("thinking", "reasoning", "chat_template_kwargs"))
    off = (
        thinking.get("type") == "disabled",
        reasoning.get("enabled") is False,
        reasoning.get("effort") == "none",
        template.get("enable_thinking") is False,
        body.get("reasoning_effort") == "none",
        body.get("enable_thinking") is False,
        body.get("disable_thinking") is True,
        body.get("thinking") is False,
    )
    return not any(off)


def _reasoning(talk: Conversation, calls: Sequence[Call]) -> str:
    asked = " ".join(talk.user.split())
    if talk.planned or talk.step:
        return f"The plan says what to do{', and it needs ' + ', '.join(dict.fromkeys(call.name for call in calls)) if calls else ''}."
    if _OBSERVATION.match(talk.user):
        return "The tool has answered."
    asked = asked if len(asked) <= 120 else f"{asked[:117]}..."
    start = f'The user says: "{asked}". ' if asked else "There is no question yet. "
    if calls:
        names = ", ".join(dict.fromkeys(call.name for call in calls))
        return f"{start}{'After what came back, the' if talk.results else 'The'} next step is to call {names}."
    if talk.results:
        return f"{start}The tools have answered, so I can put the answer together from what they said."
    return f"{start}I need no tool for that and can answer at once."


# ---- text --------------------------------------------------------------------------------------------


def _text(body: Mapping[str, Any], talk: Conversation) -> str:
    form = as_object(body.get("response_format"))
    if form.get("type") in ("json_object", "json_schema"):
        return _json(form, talk)
    for rule in (_react, _refine, _reflect, _plan_list, _step):
        if (text := rule(talk)) is not None:
            return text
    return _plain(talk)


def _plain(talk: Conversation) -> str:
    if talk.results and _PLAN.search(talk.system) and not talk.planned and "[Plan]" in talk.system:
        return "The last step went well. Next: put together what is there, and answer if nothing is missing."
    if talk.results:
        return _from_results(talk.results)
    if (told := _instruction(talk.user)) is not None:
        return told
    if _PLAN.search(talk.system) and not talk.planned:
        return "Plan:\n" + "\n".join(f"{number}. {step}." for number, step in enumerate(demo_tools.steps(talk.user), 1))
    if not talk.user or _GREETING.search(talk.user):
        return f"Hello! {ABOUT}"
    asked = " ".join(talk.user.split())
    return f'You asked: "{asked if len(asked) <= 200 else asked[:197] + "..."}". {ABOUT}'


def _instruction(user: str) -> str | None:
    """The text that the user told the model to say, None if there is no such order."""
    if (count := _COUNT.search(user)) is not None:
        low, high = int(count["low"] or 1), int(count["high"] or count["zh"])
        return ", ".join(str(number) for number in range(low, min(high, low + _COUNT_AT_MOST - 1) + 1))
    match = _SAY.match(user) or _SAY_CHINESE.match(user)
    if match is None:
        return None
    what = match["what"].strip()
    return quoted(what) or what.rstrip(".。").strip() or what


def _from_results(results: Sequence[tuple[Call, str]]) -> str:
    """The answer from what the tools said; thinking and planning tools say nothing that a user wants to read."""
    telling = [(call, text) for call, text in results if not Tool(call.name).thinks and not Tool(call.name).plans]
    if not telling:
        return f"I have thought it through. {ABOUT}"
    lines = [f"{_label(call)}: {text.strip()[:_RESULT_AT_MOST] or '(nothing)'}" for call, text in telling]
    return f"Here is what I found with {lines[0]}" if len(lines) == 1 else "Here is what I found:\n" + "\n".join(f"- {line}" for line in lines)


def _label(call: Call) -> str:
    """The tool and, where it is short, what it was asked."""
    values = [call.arguments] if isinstance(call.arguments, str) else list(call.arguments.values())
    asked = ", ".join(str(value) for value in values if isinstance(value, str | int | float))
    return f"{call.name} ({asked})" if 0 < len(asked) <= 60 else call.name


def _json(form: Mapping[str, Any], talk: Conversation) -> str:
    said = _from_results(talk.results) if talk.results else _instruction(talk.user) or talk.user or "Hello!"
    if form.get("type") == "json_object":
        return dumps({"answer": said}).decode()
    schema = as_object(as_object(form.get("json_schema")).get("schema"))
    return dumps(Filler(schema, talk.user, said).value()).decode()


# ---- the text forms that agent prompts ask for ---------------------------------------------------------


def _react(talk: Conversation) -> str | None:
    """`Thought:` and `Action: tool[input]` or `Action: Finish[answer]`, where the prompt explains that form."""
    if "Finish[" not in talk.everything:
        return None
    seen = _OBSERVATION.match(talk.user)
    question = (_QUESTION.findall(talk.everything) or [talk.user])[-1].strip()
    if seen is not None:
        return f"Thought: The observation answers the question.\nAction: Finish[{seen[1].strip()}]"
    tools = [Tool(name, about, {"properties": {"input": {"type": "string"}}, "required": ["input"]}) for name, about in _TOOL_LINE.findall(talk.everything)]
    calls = demo_tools.choose(tools, question, "", (), must=False, parallel=False)
    if calls and isinstance(calls[0].arguments, dict):
        return f"Thought: {calls[0].name} can tell.\nAction: {calls[0].name}[{next(iter(calls[0].arguments.values()), question)}]"
    return f"Thought: I can answer this at once.\nAction: Finish[{_instruction(question) or ABOUT}]"


def _reflect(talk: Conversation) -> str | None:
    """A review: one point where there is a first result to review, then nothing more to improve."""
    if _NO_IMPROVEMENT not in talk.user and _NO_IMPROVEMENT not in talk.system:
        return None
    result = _REVIEWED.search(talk.user)
    if result is not None and _CAVEAT not in result["result"]:
        return "It does what was asked, but does not say how far it can be relied on. Add one line about that at the end."
    return f"The answer is clear and complete. {_NO_IMPROVEMENT}"


def _refine(talk: Conversation) -> str | None:
    """A result made better by its review; as it is where the review found nothing."""
    asked = _REFINE.search(talk.user)
    if asked is None:
        return None
    return asked["result"] if _NO_IMPROVEMENT in asked["review"] or _CAVEAT in asked["result"] else f"{asked['result']}\n\n{_CAVEAT}"


def _step(talk: Conversation) -> str | None:
    """What a step of the demo's own plan comes to; other steps are answered like any question."""
    if talk.step.startswith(demo_tools.STEPS[0]):
        return f"Asked is this: {talk.step.removeprefix(demo_tools.STEPS[0]).strip(' :')}"
    if talk.step == demo_tools.STEPS[2] and len(talk.found) > 1:
        return talk.found[-1].strip()
    return None


def _plan_list(talk: Conversation) -> str | None:
    """A fenced list of steps, where the prompt asks for a plan in that form."""
    if "```python" not in talk.everything or not _PLAN.search(talk.everything):
        return None
    question = (_QUESTION.findall(talk.everything) or [talk.user])[-1].strip()
    return f"```python\n{dumps(demo_tools.steps(question)).decode()}\n```"
