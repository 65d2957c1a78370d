"""What a client wants of an agent, read from its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.agent.wording import text_of
from gateway.chat import Json, Request, dumps
from gateway.errors import InvalidRequest

PASSED_ON = (
    "temperature",
    "top_p",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "thinking",
    "reasoning",
    "enable_thinking",
    "disable_thinking",
    "response_format",
    "parallel_tool_calls",
    "service_tier",
    "user",
    "verbosity",
)
"""fields of a request that every call of the agent's model gets too"""

_SESSION = 200


@dataclass(frozen=True, slots=True)
class Order:
    """One request to an agent.

    messages    as they came; new ones, or a whole history
    answers     the tool messages at its end: they continue a run that waits under their ids
    appends     the messages are new to their session, even where they are what it began with ("hello" again)
    rich        the client wants the events too
    detached    what `on_disconnect` says, None: the agent's rule
    """

    agent: str
    messages: Sequence[Json]
    answers: Sequence[Json] = ()
    tools: Sequence[Json] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = ""
    key: str | None = None
    session_id: str | None = None
    appends: bool = False
    rich: bool = False
    background: bool = False
    metadata: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    idempotency_key: str | None = None


def read_order(agent: str, body: Json, request: Request) -> Order:
    """The order of a chat request. InvalidRequest for what an agent cannot take."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("`messages` must hold at least one message", param="messages")
    if body.get("n") not in (None, 1):
        raise InvalidRequest("an agent gives one answer; `n` must be 1", param="n")
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    answers: list[Json] = []
    for message in reversed(messages):
        if message.get("role") != "tool":
            break
        answers.insert(0, message)
    if not answers and not any(message.get("role") == "user" for message in messages):
        raise InvalidRequest("`messages` must hold a message of the user", param="messages")
    headers = request.headers
    rich = metadata.get("agent_events") or headers.get("x-agent-events")
    return Order(
        agent=agent,
        messages=messages,
        answers=answers,
        tools=_functions(body.get("tools")),
        parameters={name: body[name] for name in PASSED_ON if body.get(name) is not None},
        tenant=request.record.tenant,
        key=request.record.key,
        session_id=session_id(metadata.get("session_id") or headers.get("x-session-id")),
        rich=rich == "v1",
        metadata=metadata,
    )


def session_id(value: Any) -> str | None:
    """A session's name as a client gives it."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _SESSION or not value.isprintable():
        raise InvalidRequest(f"a session id is a printable text of at most {_SESSION} characters", param="metadata.session_id")
    return value


def messages_of(value: Any) -> list[Json]:
    """`input` of the runs API: a text, or messages."""
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    if isinstance(value, list) and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in value):
        asked = [message for message in value if message["role"] == "user" and text_of(message)]
        if asked:
            return value
    raise InvalidRequest("`input` must be a text, or messages with one of the user among them", param="input")


def _functions(tools: Any) -> list[Json]:
    """The client's own tools; those of a kind that only a vendor can serve are not for an agent."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise InvalidRequest("`tools` must be a list", param="tools")
    out = []
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequest("an agent's client can offer functions only", param=f"tools[{index}]")
        out.append({"type": "function", "function": function})
    return out


def answers_message(id: str, said: Json) -> Json:
    """The tool message with which a client answers an approval."""
    return {"role": "tool", "tool_call_id": id, "content": dumps(said).decode()}
