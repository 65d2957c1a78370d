"""Chat request -> Gemini request.

Gemini wants turns of `user` and `model`, the results of a turn's calls together in one
content behind it, and from Gemini 3 on the signatures of the current turn's steps
(ai.google.dev, function calling and thought signatures, 2026). Text of the history is
never lost; reasoning text is not sent back, the signatures stand for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from gateway.chat import Json, dumps, loads
from gateway.dialects.gemini.parts import content_parts
from gateway.dialects.gemini.schema import cleaned
from gateway.dialects.gemini.terms import STAND_IN, function_name, signature, signs_steps
from gateway.dialects.messages.outbound import OPENING, tool_input
from gateway.dialects.messages.terms import listed, mapping
from gateway.errors import Skipped

_CONFIG = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
# fields of Gemini's own that chat clients send as extras, in both of Google's spellings
_SAME = {"safety_settings": "safetySettings", "cached_content": "cachedContent"}
_OWN_TOOLS = ("googleSearch", "google_search", "urlContext", "url_context")
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def request_from_chat(body: Json) -> Json:
    """The Gemini request that asks the same; `model` and `stream` stand in its path and are left in the body for that.

    `logprobs`, `logit_bias`, `user` and what else has no word there are left out. Raises
    Skipped for content that cannot be carried.
    """
    if body.get("functions"):
        raise Skipped("the Gemini dialect has no form for the legacy `functions`")
    system, contents = _conversation(listed(body.get("messages")), signs_steps(body.get("model")))
    out: Json = {"model": body.get("model")}
    if system:
        out["systemInstruction"] = {"parts": system}
    out["contents"] = contents
    _add_tools(out, body)
    google = mapping(mapping(body.get("extra_body")).get("google"))
    config = _config(body, google, "tools" in out)
    if config:
        out["generationConfig"] = config
    for snake, camel in _SAME.items():
        value = next((holder[key] for holder in (body, google) for key in (camel, snake) if holder.get(key) is not None), None)
        if value is not None:
            out[camel] = value
    if body.get("stream") is not None:
        out["stream"] = body["stream"]
    return out


def _config(body: Mapping[str, Any], google: Json, has_tools: bool) -> Json:
    out: Json = {camel: body[name] for name, camel in _CONFIG.items() if isinstance(body.get(name), int | float)}
    limit = next((body[key] for key in ("max_completion_tokens", "max_tokens") if type(body.get(key)) is int), None)
    if limit is not None:
        out["maxOutputTokens"] = limit
    stop = body.get("stop")
    stops = [text for text in ([stop] if isinstance(stop, str) else stop if isinstance(stop, list) else ()) if isinstance(text, str) and text]
    if stops:
        out["stopSequences"] = stops[:5]  # more are refused
    if type(body.get("n")) is int and body["n"] > 1:
        out["candidateCount"] = body["n"]
    if isinstance(body.get("modalities"), list) and "image" in body["modalities"]:
        out["responseModalities"] = [str(name).upper() for name in body["modalities"]]
    if not has_tools or signs_steps(body.get("model")):  # before Gemini 3: "Function calling with a response mime type ... is unsupported"
        _add_format(out, mapping(body.get("response_format")))
    if isinstance(google.get("thinking_config"), dict):
        out["thinkingConfig"] = google["thinking_config"]
    return out


def _add_format(out: Json, form: Json) -> None:
    if form.get("type") not in ("json_object", "json_schema"):
        return
    out["responseMimeType"] = "application/json"
    schema = mapping(form.get("json_schema")).get("schema")
    if isinstance(schema, dict):
        out["responseSchema"] = cleaned(schema)


def _add_tools(out: Json, body: Mapping[str, Any]) -> None:
    items, choice = listed(body.get("tools")), body.get("tool_choice")
    functions = [function for item in items if (function := _function(item))]
    own = [{key: item[key]} for item in items for key in _OWN_TOOLS if key in item]
    if functions or own:
        out["tools"] = [*([{"functionDeclarations": functions}] if functions else []), *own]
    calling = _calling(choice, {function["name"] for function in functions}) if functions else None
    if calling:
        out["toolConfig"] = {"functionCallingConfig": calling}


def _function(item: Json) -> Json | None:
    """One declaration, or None for a tool that is no function. A function without parameters has none here: an empty object is refused."""
    function = mapping(item.get("function")) if item.get("type") == "function" else {}
    if not isinstance(function.get("name"), str):
        return None
    out: Json = {"name": function_name(function["name"])}
    if isinstance(function.get("description"), str) and function["description"]:
        out["description"] = function["description"]
    schema = cleaned({"type": "object", **mapping(function.get("parameters"))})
    if schema.get("properties") or "anyOf" in schema:
        out["parameters"] = schema
    return out


def _calling(choice: Any, names: set[str]) -> Json | None:
    if isinstance(choice, str):
        return {"mode": _MODES[choice]} if choice in _MODES else None
    if not isinstance(choice, dict):
        return None
    if choice.get("type") == "allowed_tools":
        allowed = mapping(choice.get("allowed_tools")) or choice
        wanted = [name for item in listed(allowed.get("tools")) if (name := _named(item)) in names]
        # without ANY a list of names is refused
        return {"mode": "ANY", "allowedFunctionNames": wanted} if allowed.get("mode") == "required" and wanted else {"mode": "AUTO"}
    name = _named(choice)
    return {"mode": "ANY", "allowedFunctionNames": [name]} if name in names else None


def _named(item: Json) -> str:
    return function_name(mapping(item.get("function")).get("name"))


def _conversation(messages: list[Json], signs: bool) -> tuple[list[Json], list[Json]]:
    """The instructions and the contents. A late system message keeps its place, as the user's text: moved to the top
    it would spoil the prompt cache."""
    system: list[Json] = []
    contents: list[Json] = []
    names: dict[str, str] = {}
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer") and not contents:
            system += content_parts(message.get("content"), texts_only=True)
        elif role == "assistant":
            _say(contents, "model", _model_parts(message, names))
        elif role == "tool":
            _answer(contents, message, names)
        else:
            _say(contents, "user", content_parts(message.get("content")))
    if not contents or contents[0]["role"] == "model":
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    _order_results(contents)
    if signs:
        _sign_steps(contents)
    return system, contents


def _say(contents: list[Json], role: str, parts: list[Json]) -> None:
    """Add to the last content of the same side; what the user says behind results stands alone, as they are counted."""
    if not parts:
        return
    last = contents[-1] if contents else None
    if last is not None and last["role"] == role and not _results(last):
        last["parts"] += parts
    else:
        contents.append({"role": role, "parts": parts})


def _model_parts(message: Json, names: dict[str, str]) -> list[Json]:
    parts = content_parts(message.get("content"), texts_only=True)
    refusal = message.get("refusal")
    if not parts and isinstance(refusal, str) and refusal:
        parts = [{"text": refusal}]
    calls = [_call(call, place, names) for place, call in enumerate(listed(message.get("tool_calls")))]
    signed = signature(message)
    if signed and not calls:
        parts = parts or [{"text": ""}]
        parts[-1]["thoughtSignature"] = signed
    return [*parts, *calls]


def _call(call: Json, place: int, names: dict[str, str]) -> Json:
    function = mapping(call.get("function") or call.get("custom"))
    ident, name = str(call.get("id") or f"call_{place}"), function_name(function.get("name"))
    names[ident] = name
    given = function.get("arguments") if "arguments" in function else function.get("input")
    part: Json = {"functionCall": {"id": ident, "name": name, "args": tool_input(given)}}
    signed = signature(call)
    return {**part, "thoughtSignature": signed} if signed else part


def _answer(contents: list[Json], message: Json, names: Mapping[str, str]) -> None:
    """One tool's result; those of one turn share a content, with what they show (images, files) behind all of them."""
    ident = str(message.get("tool_call_id") or "")
    name = names.get(ident) or function_name(message.get("name")) or "unknown"
    shown = _shown(message.get("content"))
    media = [part for part in shown if "text" not in part]
    part = {"functionResponse": {"id": ident, "name": name, "response": _response("".join(part["text"] for part in shown if "text" in part))}}
    last = contents[-1] if contents else None
    if last is None or not _results(last):
        contents.append({"role": "user", "parts": [part, *media]})
        return
    count = len(_results(last))
    last["parts"][count:count] = [part]
    last["parts"] += media


def _shown(content: Any) -> list[Json]:
    if content is not None and not isinstance(content, str | list):
        content = dumps(content).decode()
    return content_parts(content)


def _response(text: str) -> Json:
    """A result as the object that it must be."""
    try:
        value = loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"output": text}


def _results(content: Json) -> list[Json]:
    return [part for part in content["parts"] if "functionResponse" in part]


def _order_results(contents: list[Json]) -> None:
    """Results in the order of their calls, by which they are matched where ids are not."""
    for calls, answers in pairwise(contents):
        places = {part["functionCall"]["id"]: place for place, part in enumerate(calls["parts"]) if "functionCall" in part}
        if places and (results := _results(answers)):
            results.sort(key=lambda part: places.get(part["functionResponse"]["id"], len(places)))
            answers["parts"][: len(results)] = results


def _sign_steps(contents: list[Json]) -> None:
    """Let the stand-in take the place of each signature that was lost in the current turn."""
    start = max((at for at, content in enumerate(contents) if content["role"] == "user" and not _results(content)), default=0)
    for content in contents[start:]:
        first: Json | None = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None:
            first.setdefault("thoughtSignature", STAND_IN)
