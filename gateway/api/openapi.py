"""`/openapi.json`: what the routes are, in OpenAPI 3.1.

Which routes there are the application itself says; what is known of each stands in one table
here. The bodies that belong to OpenAI's and Anthropic's own surface are described by their
own documents: here they are objects that keep every field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

import gateway
from gateway.chat import Json

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_SENT = {"mcp": ("post", "delete")}
"""Methods of what is served without Starlette's routes, where it is not POST alone."""


class Op(NamedTuple):
    """One operation. `body` and `answer` name schemas; `streams`: the answer may be a stream of events; `query`: parameters by name, with their type."""

    summary: str
    body: str | None = None
    answer: str = "Object"
    streams: bool = False
    query: Mapping[str, str] = {}
    status: int = 200


_PAGE = {"limit": "integer", "before": "integer", "key_name": "string", "model": "string", "format": "string"}
_RUNS = {"limit": "integer", "before": "integer", "agent": "string", "key_name": "string", "status": "string"}
_SPAN = {"by": "string", "from": "string", "to": "string", "format": "string"}

OPERATIONS: dict[str, Op] = {
    "GET /": Op("To the console.", answer="", status=307),
    "GET /console": Op("The console: a page for whoever runs the gateway.", answer="Page"),
    "GET /console/{name}": Op("A file of the console.", answer="Binary"),
    "GET /healthz": Op("Whether the process is alive.", answer="Health"),
    "GET /readyz": Op("Whether it can serve: config, store, shared state, targets that rest.", answer="Ready"),
    "GET /metrics": Op("Prometheus metrics of all workers.", answer="Text"),
    "GET /openapi.json": Op("This document."),
    "POST /v1/chat/completions": Op("A chat completion of a model, a chain or an agent.", "ChatRequest", streams=True),
    "POST /v1/responses": Op("A response in OpenAI's Responses dialect.", "ResponsesRequest", streams=True),
    "GET /v1/responses/{ident}": Op("A stored response."),
    "DELETE /v1/responses/{ident}": Op("Forget a stored response."),
    "POST /v1/responses/{ident}/cancel": Op("End a response that is in the background."),
    "GET /v1/responses/{ident}/input_items": Op("What a stored response was asked.", answer="List"),
    "POST /v1/responses/input_tokens": Op("How many tokens an input has.", "ResponsesRequest"),
    "POST /v1/responses/compact": Op("A shorter form of a conversation, where it can be made.", "ResponsesRequest"),
    "POST /v1/messages": Op("A message in Anthropic's dialect.", "MessagesRequest", streams=True),
    "POST /v1/messages/count_tokens": Op("How many tokens a request has.", "MessagesRequest"),
    "POST /v1/completions": Op("A completion of a text.", "CompletionRequest", streams=True),
    "POST /v1/embeddings": Op("Vectors of texts.", "ModelRequest"),
    "POST /v1/moderations": Op("What a text may offend against.", "Object"),
    "POST /v1/rerank": Op("Documents in the order in which they answer a question.", "ModelRequest"),
    "POST /v1/images/generations": Op("An image of a text.", "ModelRequest"),
    "POST /v1/images/edits": Op("An image changed.", "Form"),
    "POST /v1/images/variations": Op("Variations of an image.", "Form"),
    "POST /v1/audio/speech": Op("A text spoken.", "ModelRequest", answer="Binary"),
    "POST /v1/audio/transcriptions": Op("What is said in a recording.", "Form", streams=True),
    "POST /v1/audio/translations": Op("What is said in a recording, in English.", "Form"),
    "GET /v1/models": Op("The models that the key may use.", answer="List"),
    "GET /v1/models/{name}": Op("One model."),
    "POST /mcp": Op("One message to the tools' MCP server.", "Object", streams=True),
    "DELETE /mcp": Op("The end of an MCP session."),
    "POST /v1/agents/{name}/runs": Op("Run an agent.", "RunRequest", answer="Run", streams=True),
    "GET /v1/runs/{id}": Op("A run of an agent.", answer="Run"),
    "GET /v1/runs/{id}/events": Op("What a run has done, as it goes on; Last-Event-ID replays.", answer="Events"),
    "POST /v1/runs/{id}/cancel": Op("End a run.", answer="Run"),
    "POST /v1/runs/{id}/approve": Op("Let a waiting run use a tool, or not.", "Object", answer="Run"),
    "POST /v1/runs/{id}/input": Op("Go on with a run that waits or is incomplete.", "Object", answer="Run"),
    "POST /v1/runs/{id}/fork": Op("A new run from an event of another.", "Object", answer="Run"),
    "GET /v1/sessions/{id}": Op("A session and its runs."),
    "DELETE /v1/sessions/{id}": Op("Forget a session."),
    "GET /admin/providers": Op("Every provider: adapter, targets that rest, refusals that are prevented.", answer="List"),
    "GET /admin/config": Op("The config in use, secrets masked, and how the last reload went."),
    "POST /admin/reload": Op("Read the config again, in every process.", answer="Reloaded"),
    "GET /admin/keys": Op("Every virtual key with its limits and what it has spent; never a secret.", answer="Keys"),
    "POST /admin/keys": Op("A new virtual key; its secret is in this answer and nowhere else.", "NewKey", answer="MadeKey", status=201),
    "PATCH /admin/keys/{id}": Op("Other terms for a key; null takes a limit away.", "KeyTerms", answer="Key"),
    "DELETE /admin/keys/{id}": Op("Revoke a key on every replica."),
    "POST /admin/keys/{id}/rotate": Op("Another secret for a key; the old one serves on for a while.", "Object", answer="MadeKey", status=201),
    "GET /admin/requests": Op("Requests, the newest first.", answer="Requests", query=_PAGE),
    "GET /admin/requests/{id}": Op("One request.", answer="Request"),
    "GET /admin/usage": Op("Sums of requests, tokens and USD by key, model or provider.", answer="Usage", query=_SPAN),
    "GET /admin/runs": Op("Runs of agents.", answer="List", query=_RUNS),
    "GET /admin/runs/{id}": Op("A run with all its thoughts; events=none: without its journal.", answer="Run", query={"events": "string"}),
    "GET /admin/runs/{id}/events": Op("What anybody's run has done, as it goes on, with all its thoughts; Last-Event-ID replays.", answer="Events"),
    "POST /admin/runs/{id}/cancel": Op("End anybody's run.", answer="Run"),
    "POST /admin/runs/{id}/approve": Op("Let anybody's waiting run use a tool, or not.", "Object", answer="Run"),
    "POST /admin/runs/{id}/input": Op("Go on with anybody's run that waits or is incomplete.", "Object", answer="Run"),
}
"""What is known of each operation. One of a route that does not stand here is described by its function's words."""


def document(routes: Iterable[BaseRoute], direct: Mapping[str, ASGIApp]) -> Json:
    """The document of an application with these routes, and these served straight from the gate. `/v1/x` stands for `/x` too."""
    found: dict[str, Json] = {}
    for path in direct:
        for method in _SENT.get(path.strip("/"), ("post",)):
            _add(found, path, method, "")
    for route in routes:
        if isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                _add(found, route.path, method.lower(), route.endpoint.__doc__ or "")
    paths = {path: found[path] for path in sorted(found) if f"/v1{path}" not in found}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Thinkgate", "version": gateway.__version__, "description": "Every path below /v1 is served without /v1 too.", "license": _LICENSE},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"header": []}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": {"Error": _answer("Error", "What is wrong, in OpenAI's form; in Anthropic's on /v1/messages.")},
            **_AUTH,
        },
    }


def _add(found: dict[str, Json], path: str, method: str, words: str) -> None:
    shown = _PARAMETER.sub(r"{\1}", path)
    op = OPERATIONS.get(f"{method.upper()} {shown}") or Op(" ".join(words.split("\n\n")[0].split()) or f"{method.upper()} {shown}")
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _PARAMETER.findall(path)]
    parameters += [{"name": name, "in": "query", "schema": {"type": kind}} for name, kind in op.query.items()]
    operation: Json = {
        "operationId": re.sub(r"\W+", "_", f"{method}{shown}").strip("_"),
        "summary": op.summary,
        "tags": [_tag(shown)],
        "responses": {str(op.status): _answer(op.answer, "The answer.", op.streams), "default": {"$ref": "#/components/responses/Error"}},
    }
    if parameters:
        operation["parameters"] = parameters
    if op.body is not None:
        media = "multipart/form-data" if op.body == "Form" else "application/json"
        operation["requestBody"] = {"required": True, "content": {media: {"schema": _ref(op.body)}}}
    if shown in ("/", "/healthz", "/readyz", "/openapi.json") or shown.startswith("/console"):
        operation["security"] = []
    found.setdefault(shown, {})[method] = operation


def _tag(path: str) -> str:
    if path.startswith("/admin"):
        return "admin"
    return (
        "agents" if path.startswith(("/v1/agents", "/v1/runs", "/v1/sessions", "/agents", "/runs", "/sessions")) else "models" if "/v1" in path else "service"
    )


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(schema: str, text: str, streams: bool = False) -> Json:
    if not schema:
        return {"description": text}
    media = {"Text": "text/plain", "Page": "text/html", "Binary": "application/octet-stream", "Events": "text/event-stream"}.get(schema, "application/json")
    content: Json = {media: {"schema": {"type": "string"} if media != "application/json" else _ref(schema)}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": text, "content": content}


def _object(required: str = "", **properties: Json) -> Json:
    return {"type": "object", **({"required": required.split()} if required else {}), "properties": properties}


def _list(of: Json) -> Json:
    return {"type": "array", "items": of}


_TEXT, _WHOLE, _REAL, _TRUTH, _ANY = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"}
_TEXT_OR_NULL, _WHOLE_OR_NULL, _REAL_OR_NULL = ({"type": [kind, "null"]} for kind in ("string", "integer", "number"))
_COUNT: Json = {"type": ["integer", "null"], "minimum": 1}
_BUDGET: Json = {"anyOf": [_object("usd", usd=_REAL, per={"enum": ["day", "week", "month", "total"]}), {"type": "null"}]}
_TERMS: dict[str, Json] = {
    "models": _list(_TEXT),
    "rpm": _COUNT,
    "tpm": _COUNT,
    "concurrency": _COUNT,
    "budget": _BUDGET,
    "expires": _REAL_OR_NULL,
    "team": _TEXT_OR_NULL,
    "tags": _list(_TEXT),
}
_WORDED: Json = {"type": ["integer", "string", "null"], "minimum": 1}  # 60, or "200k"
_GIVEN: dict[str, Json] = {**_TERMS, **dict.fromkeys(("rpm", "tpm", "concurrency"), _WORDED), "expires": {"type": ["number", "string", "null"]}}
_SUMS: dict[str, Json] = dict.fromkeys(("requests", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"), _WHOLE)
_KEY: dict[str, Json] = {
    **_TERMS,
    "id": _TEXT,
    "name": _TEXT,
    "source": {"enum": ["store", "file"]},
    "created": _REAL_OR_NULL,
    "revoked": _REAL_OR_NULL,
    "active": _TRUTH,
}
_REQUEST: dict[str, Json] = {
    **dict.fromkeys(("id", "endpoint", "model"), _TEXT),
    **dict.fromkeys(("key", "class", "provider", "target_model", "run_id"), _TEXT_OR_NULL),
    **dict.fromkeys(("status", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "total_ms"), _WHOLE),
    **dict.fromkeys(("stream", "estimated"), _TRUTH),
    "time": _REAL,
    "cost": _REAL_OR_NULL,
    "first_token_ms": _WHOLE_OR_NULL,
    "attempts": _list(_ANY),
    "transforms": _list(_TEXT),
}
_RUN: dict[str, Json] = {
    **dict.fromkeys(("id", "object", "agent"), _TEXT),
    **dict.fromkeys(("session_id", "output", "reasoning", "reason"), _TEXT_OR_NULL),
    "status": {"enum": ["queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled"]},
    "usage": _ANY,
    "cost": _REAL_OR_NULL,
    "steps": _WHOLE,
    "created_at": _REAL,
    "finished_at": _REAL_OR_NULL,
    "error": {"type": ["object", "null"]},
}
_MESSAGES = _list(_ANY)

SCHEMAS: dict[str, Json] = {
    "Object": _ANY,
    "Form": _ANY,
    "List": _object("data", data=_list(_ANY)),
    "Health": _object("status", status=_TEXT),
    "Ready": _object("status config store shared", status=_TEXT, config=_ANY, store=_ANY, shared=_ANY, providers=_ANY),
    "Error": _object("error", error=_object("message type", message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL, attempts=_list(_ANY))),
    "ModelRequest": _object("model", model=_TEXT),
    "ChatRequest": _object("model messages", model=_TEXT, messages=_MESSAGES, stream=_TRUTH),
    "ResponsesRequest": _object("model", model=_TEXT, input={"anyOf": [_TEXT, _MESSAGES]}, stream=_TRUTH),
    "MessagesRequest": _object("model messages", model=_TEXT, messages=_MESSAGES, max_tokens=_WHOLE, stream=_TRUTH),
    "CompletionRequest": _object("model prompt", model=_TEXT, prompt={"anyOf": [_TEXT, _list({})]}, stream=_TRUTH),
    "RunRequest": _object("input", input={"anyOf": [_TEXT, _MESSAGES]}, session_id=_TEXT, background=_TRUTH, stream=_TRUTH, metadata=_ANY, options=_ANY),
    "Run": _object("id object agent status", **_RUN),
    "Reloaded": _object("reloaded error", reloaded=_TRUTH, error=_TEXT_OR_NULL),
    "KeyTerms": {**_object("", **_GIVEN), "additionalProperties": False},
    "NewKey": {**_object("name", name=_TEXT, **_GIVEN), "additionalProperties": False},
    "Key": _object("id name source active", **_KEY),
    "MadeKey": _object("id name key", key=_TEXT, **_KEY),
    "Keys": _object("data", data=_list(_ref("Key"))),
    "Request": _object("id time status", **_REQUEST),
    "Requests": _object("data next", data=_list(_ref("Request")), next=_WHOLE_OR_NULL),
    "Usage": _object("data", data=_list(_object("name", name=_TEXT, cost=_REAL, **_SUMS))),
}

_TAGS = {
    "models": "What OpenAI's and Anthropic's clients call.",
    "agents": "Agents, their runs and sessions.",
    "admin": "With the admin key: keys, usage, health, config.",
    "service": "How the gateway itself does.",
}
_LICENSE = {"name": "MIT", "identifier": "MIT"}
_AUTH: Json = {
    "securitySchemes": {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A client's key; the admin key on /admin."},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same in the header that Anthropic's clients send."},
    }
}
