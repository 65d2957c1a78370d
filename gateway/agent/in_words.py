"""Tools for a model without tool calls: described in the system text, called and answered in plain messages."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.agent.prompts import fill
from gateway.agent.turn import Turn
from gateway.chat import Json
from gateway.errors import GatewayError

TEXT_TOOLS = """You can use these tools:
{tools}
To use one, write on a line of its own: [TOOL_CALL:name:{{"parameter": "value"}}]
You may write several. Wait for their results before you answer; never write a result yourself."""
CALLS = "(calls tools)"
"""what a turn says that only called"""

_REFUSALS = ("support", "not allowed", "unknown", "unrecognized", "enabled")


def wants_tools(error: GatewayError) -> bool:
    """Whether a provider refused a history of tool calls because the request defines no tools (Anthropic, remembered)."""
    return "must define tools" in error.message.lower()


def refuses_tools(error: GatewayError) -> bool:
    """Whether a provider refused the request because its model knows no tools."""
    text = error.message.lower()
    return "tool" in text and any(word in text for word in _REFUSALS)


def in_words(descriptions: str, messages: Sequence[Json]) -> list[Json]:
    """A conversation as plain messages, what tools there are in the system text."""
    words = fill(TEXT_TOOLS, tools=descriptions)
    system = [message for message in messages[:1] if message.get("role") == "system"]
    said = f"{system[0]['content']}\n\n{words}" if system else words
    out: list[Json] = [{"role": "system", "content": said}]
    names: dict[str, str] = {}
    for message in messages[len(system) :]:
        calls = message.get("tool_calls") or ()
        names |= {str(call.get("id")): str(call.get("function", call).get("name", "")) for call in calls}
        if message.get("role") != "tool":
            out.append(turn_in_words(str(message.get("content") or ""), message) if calls else message)
            continue
        text = _result(names.get(str(message.get("tool_call_id")), "a tool"), message.get("content"))
        if out[-1].get("role") == "user" and str(out[-1].get("content")).startswith("Result of "):
            out[-1] = {**out[-1], "content": f"{out[-1]['content']}\n\n{text}"}
        else:
            out.append({"role": "user", "content": text})
    return out


def turn_in_words(text: str, message: Json) -> Json:
    """A turn that called tools, without its calls."""
    return {**{name: value for name, value in message.items() if name != "tool_calls"}, "content": text or CALLS}


def results_in_words(turn: Turn, results: Sequence[Json]) -> list[Json]:
    """The results of a turn's calls as one message of the user."""
    return [{"role": "user", "content": "\n\n".join(_result(call.name, result["content"]) for call, result in zip(turn.calls, results, strict=True))}]


def _result(name: str, content: object) -> str:
    return f"Result of {name}:\n{content}"
