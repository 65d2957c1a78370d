"""Responses request -> chat request.

The items of the input are a flat list; chat wants turns. What the assistant said, thought
and called between two items of others is one message; a call's output stands directly after
the message that made the call, wherever the client put it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.chat import Json, dumps
from gateway.dialects.responses.carriers import Thoughts
from gateway.dialects.responses.parts import chat_content, is_picture
from gateway.dialects.responses.terms import listed, mapping, text_of
from gateway.dialects.responses.tools import CALLABLE, chat_call, chat_tools
from gateway.errors import InvalidRequest, Skipped

# what only the Responses dialect has; every other unknown field is the client's extra for the provider and stays
_OWN = (
    *("input", "instructions", "previous_response_id", "conversation", "prompt", "background", "background_options", "include", "text"),
    *("reasoning", "max_output_tokens", "max_tool_calls", "truncation", "context_management", "client_metadata", "store", "stream_options"),
    *("tools", "tool_choice", "parallel_tool_calls", "top_logprobs", "image", "access_programs"),
)
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ROLES = ("user", "system", "developer", "assistant")


def request_to_chat(body: Json) -> Json:
    """The chat request that asks the same.

    Tools and past calls that a provider would run are left out (see `dropped_tools`), extras
    of the client stay. References to stored answers must have been resolved (`Stored.expand`).
    Raises InvalidRequest for an input that is none or refers to what is not there, Skipped for
    what only a provider that serves /responses can do.
    """
    _check(body)
    out: Json = {key: value for key, value in body.items() if key not in _OWN and value is not None}
    out["messages"] = Conversation(body).messages
    out |= chat_tools(body)
    if body.get("max_output_tokens") is not None:
        out["max_tokens"] = body["max_output_tokens"]  # the name that most hosts know; adapters rename it for those that refuse it
    if body.get("stream") is True:
        out["stream_options"] = {"include_usage": True}
    _add_text(out, mapping(body.get("text")))
    _add_reasoning(out, mapping(body.get("reasoning")))
    if body.get("top_logprobs") or "message.output_text.logprobs" in (body.get("include") or ()):
        out |= {"logprobs": True, **({"top_logprobs": body["top_logprobs"]} if body.get("top_logprobs") is not None else {})}
    return out


def _check(body: Json) -> None:
    for name in ("conversation", "prompt"):
        if body.get(name):
            raise Skipped(f"`{name}` is kept by the provider and needs one that serves /responses")
    if body.get("previous_response_id"):
        raise missing_response(body["previous_response_id"])
    given = body.get("input")
    if not isinstance(given, str | list):
        raise InvalidRequest("`input` is missing" if given is None else "`input` must be a text or a list of items", param="input")


def missing_response(ident: Any) -> InvalidRequest:
    """The error for a previous_response_id that nobody can look up."""
    return InvalidRequest(f"Previous response with id {str(ident)[:100]!r} not found.", param="previous_response_id", code="previous_response_not_found")


def missing_item(ident: Any) -> InvalidRequest:
    """The error for a reference to an item that nobody can look up."""
    return InvalidRequest(f"Item with id {str(ident)[:100]!r} not found. Items of a response are kept only with `store`, and not for ever.", param="input")


def dropped_tools(body: Json) -> list[str]:
    """What has no chat form and is left out, for the log: tools that the provider would run, and the past calls of such tools."""
    tools = [_label(tool) for tool in listed(body.get("tools")) if tool.get("type") not in CALLABLE]
    items = [kind for item in listed(body.get("input")) if (kind := kind_of(item)) not in ("message", "reasoning", "item_reference", *_CALLS, *_OUTPUTS)]
    return list(dict.fromkeys([*tools, *items]))


def _label(tool: Json) -> str:
    kind, name = str(tool.get("type"))[:40], tool.get("name") or tool.get("server_label")
    return f"{kind}:{name[:60]}" if isinstance(name, str) else kind


def kind_of(item: Mapping[str, Any]) -> str:
    """The type of an input item; short forms leave it out."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference"
    return str(kind)[:40]


def _add_text(out: Json, text: Json) -> None:
    form = mapping(text.get("format"))
    if form.get("type") == "json_schema":
        schema = {key: form[key] for key in ("name", "description", "schema", "strict") if form.get(key) is not None}
        out["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form.get("type") == "json_object":
        out["response_format"] = {"type": "json_object"}
    if text.get("verbosity") is not None:
        out["verbosity"] = text["verbosity"]


def _add_reasoning(out: Json, reasoning: Json) -> None:
    """The effort is a field of chat's own; what else says whether to think stays for whoever reads that wish."""
    if reasoning.get("effort") is not None:
        out["reasoning_effort"] = reasoning["effort"]
    if rest := {key: reasoning[key] for key in ("enabled", "max_tokens") if reasoning.get(key) is not None}:
        out["reasoning"] = rest


class Conversation:
    """The messages for the instructions and the input of a Responses request."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.messages: list[Json] = []
        self._thoughts: Thoughts | None = None
        self._extras: Json = {}
        self._pictures: list[Json] = []
        if text_of(body.get("instructions")):
            self.messages.append({"role": "system", "content": body["instructions"]})
        given = body["input"]
        for place, item in enumerate([{"role": "user", "content": given}] if isinstance(given, str) else given):
            if not isinstance(item, dict):
                raise InvalidRequest("an input item must be an object", param=f"input[{place}]")
            self._add(item, place)
        self._end_turn()
        self._show_pictures()
        self._give_extras()

    def _add(self, item: Json, place: int) -> None:
        kind = kind_of(item)
        if kind in _OUTPUTS:
            self._output(item)
            return
        if kind == "reasoning":
            self._turn()
            assert self._thoughts is not None
            self._thoughts.add(item)
        elif kind in _CALLS:
            self._turn().setdefault("tool_calls", []).append(chat_call(item))
        elif kind == "message":
            self._message(item, place)
        elif kind == "item_reference":
            raise missing_item(item.get("id"))
        elif kind == "compaction":
            raise Skipped("only the provider that compacted the conversation can read it")

    def _message(self, item: Json, place: int) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise InvalidRequest(f"a message's role must be one of {', '.join(_ROLES)}", param=f"input[{place}].role")
        if role == "assistant":
            self._say(item)
            return
        self._end_turn()
        self._show_pictures()
        content = chat_content(item.get("content"))
        if content or role == "user":
            self.messages.append({"role": role, "content": content})

    def _say(self, item: Json) -> None:
        turn, content = self._turn(), item.get("content")
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else listed(content)
        text = "".join(text_of(part.get("text")) for part in parts)
        refusal = "".join(text_of(part.get("refusal")) for part in parts)
        if text:
            turn["content"] = f"{turn['content']}\n\n{text}" if turn["content"] else text
        if refusal:
            turn["refusal"] = text_of(turn.get("refusal")) + refusal

    def _turn(self) -> Json:
        """The assistant's message that is being put together."""
        if self._thoughts is None:
            self._show_pictures()
            self._thoughts = Thoughts()
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def _end_turn(self) -> None:
        if self._thoughts is None:
            return
        turn = self.messages[-1]
        turn |= self._thoughts.fields()
        self._extras |= self._thoughts.extras
        self._thoughts = None
        if turn["content"] is None and not turn.get("tool_calls"):
            turn["content"] = ""
        if turn.keys() == {"role", "content"} and not turn["content"]:
            self.messages.pop()

    def _output(self, item: Json) -> None:
        self._end_turn()
        ident, content = item.get("call_id"), item.get("output")
        parts = listed(content)
        pictures = [part for part in parts if is_picture(part)]
        text = chat_content([part for part in parts if not is_picture(part)]) if parts else content
        if pictures:
            shown = chat_content(pictures)
            self._pictures += [{"type": "text", "text": f"[output of tool call {ident}]"}, *(shown if isinstance(shown, list) else [])]
            text = text or "[the output follows in the next message]"
        if not isinstance(text, str):
            text = "" if text is None or text == [] else dumps(text).decode()
        self.messages.insert(self._place(ident), {"role": "tool", "tool_call_id": ident, "content": text})

    def _place(self, ident: Any) -> int:
        """Where the output of a call belongs: after the message that made it and the outputs that are there."""
        for place in range(len(self.messages) - 1, -1, -1):
            if any(call["id"] == ident for call in self.messages[place].get("tool_calls") or ()):
                place += 1
                while place < len(self.messages) and self.messages[place]["role"] == "tool":
                    place += 1
                return place
        return len(self.messages)

    def _show_pictures(self) -> None:
        if self._pictures:
            self.messages.append({"role": "user", "content": self._pictures})
            self._pictures = []

    def _give_extras(self) -> None:
        for message in self.messages:
            for call in message.get("tool_calls") or ():
                if call["id"] in self._extras:
                    call["extra_content"] = self._extras[call["id"]]
