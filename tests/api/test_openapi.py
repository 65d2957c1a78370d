"""`/openapi.json` against the application that it describes, and against what OpenAPI 3.1 asks for."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

import httpx
import jsonschema
import pytest
from running import serving, yaml
from starlette.applications import Starlette
from starlette.routing import Route
from upstream_double import Upstream, completion

from gateway.api.gate import Gate
from gateway.api.openapi import OPERATIONS
from gateway.api.routes import NeverDry

KEY, ADMIN = "client-key-for-tests-0123456789", "admin-key-for-tests-0123456789"
SERVER = f"keys: [{KEY}]\nadmin_key: {ADMIN}"

# The parts of the OpenAPI 3.1 schema that a document of ours can get wrong
_REF = {"type": "object", "required": ["$ref"], "properties": {"$ref": {"type": "string", "pattern": "^#/components/"}}, "additionalProperties": False}
_MEDIA = {
    "type": "object",
    "additionalProperties": {"type": "object", "properties": {"schema": {"type": ["object", "boolean"]}}, "additionalProperties": False},
}
_RESPONSE = {"type": "object", "required": ["description"], "properties": {"description": {"type": "string"}, "content": _MEDIA}, "additionalProperties": False}
_PARAMETER = {
    "type": "object",
    "required": ["name", "in", "schema"],
    "properties": {"name": {"type": "string"}, "in": {"enum": ["path", "query"]}, "required": {"type": "boolean"}, "schema": {"type": "object"}},
    "if": {"properties": {"in": {"const": "path"}}},
    "then": {"required": ["required"], "properties": {"required": {"const": True}}},
    "additionalProperties": False,
}
_OPERATION = {
    "type": "object",
    "required": ["operationId", "summary", "tags", "responses"],
    "properties": {
        "operationId": {"type": "string", "pattern": "^[A-Za-z0-9_]+$"},
        "summary": {"type": "string", "minLength": 5},
        "tags": {"type": "array", "items": {"type": "string"}},
        "parameters": {"type": "array", "items": _PARAMETER},
        "requestBody": {"type": "object", "required": ["content"], "properties": {"required": {"type": "boolean"}, "content": _MEDIA}},
        "responses": {"type": "object", "minProperties": 1, "patternProperties": {"^([1-5][0-9X]{2}|default)$": {"anyOf": [_REF, _RESPONSE]}}},
        "security": {"type": "array"},
    },
    "additionalProperties": False,
}
SHAPE = {
    "type": "object",
    "required": ["openapi", "info", "paths", "components"],
    "properties": {
        "openapi": {"const": "3.1.0"},
        "info": {"type": "object", "required": ["title", "version"]},
        "paths": {
            "type": "object",
            "patternProperties": {
                "^/": {"type": "object", "propertyNames": {"enum": ["get", "post", "put", "patch", "delete"]}, "additionalProperties": _OPERATION}
            },
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
async def document(a: Upstream) -> dict[str, Any]:
    async with serving(yaml({"a": a.url}, server=SERVER)) as running:
        answer = await running.client.get("/openapi.json")
    assert answer.status_code == 200, "it is open without a key"
    found: dict[str, Any] = answer.json()
    return found


def test_it_has_the_shape_that_openapi_asks_for(document: dict[str, Any]) -> None:
    jsonschema.validate(document, SHAPE, cls=jsonschema.Draft202012Validator)
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    for path, item in document["paths"].items():
        for operation in item.values():
            named = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path)), path
            assert set(operation["tags"]) <= {tag["name"] for tag in document["tags"]}
    if importlib.util.find_spec("openapi_spec_validator") is not None:  # a validator of its own, where there is one
        importlib.import_module("openapi_spec_validator").validate(document)


def test_every_reference_leads_somewhere_and_every_schema_is_one(document: dict[str, Any]) -> None:
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_every_route_of_the_application_stands_in_it(a: Upstream, document: dict[str, Any]) -> None:
    async with serving(yaml({"a": a.url}, server=SERVER)) as running:
        gate = running.gateway.asgi._gate
        assert isinstance(gate, Gate)
        assert isinstance(gate._app, NeverDry)
        app = gate._app.app
        assert isinstance(app, Starlette)
        served = {(path, "POST") for path in gate._direct}
        for route in app.routes:
            assert isinstance(route, Route)
            served |= {(re.sub(r":\w+\}", "}", route.path), method) for method in (route.methods or set()) - {"HEAD", "OPTIONS"}}

    told = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    for path, method in served:
        assert (path, method) in told or (f"/v1{path}", method) in told, f"{method} {path}"
    assert {(path, method) for path, method in told if (path, method) not in served} <= {("/mcp", "DELETE")}


def test_what_is_told_of_an_operation_is_told_of_one_that_there_is(document: dict[str, Any]) -> None:
    told = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
    later = {name for name in OPERATIONS if re.search(r"/(runs|agents|sessions|images|audio)", name)}  # as far as they are served
    assert set(OPERATIONS) - later <= told
    own = {name for name in told if not re.search(r"/v1/(files|batches)", name)}  # these go to a provider as they are
    assert sum(name in OPERATIONS for name in own) >= 0.8 * len(own), "most have more than their function's words"


async def test_answers_are_what_it_says(a: Upstream, document: dict[str, Any]) -> None:
    a.reply(completion())
    admin = {"authorization": f"Bearer {ADMIN}"}

    async with serving(yaml({"a": a.url}, server=SERVER)) as running:

        async def call(method: str, path: str, operation: str, body: Any = None, query: str = "", status: str = "200") -> httpx.Response:
            headers = admin if path.startswith("/admin") else {"x-api-key": KEY}
            got = await running.client.request(method, path + query, json=body, headers=headers)
            assert str(got.status_code) == status, got.text
            described = document["paths"][operation][method.lower()]["responses"][status]
            schema = {**described["content"]["application/json"]["schema"], "components": document["components"]}
            jsonschema.validate(got.json(), schema, cls=jsonschema.Draft202012Validator)
            return got

        await call("POST", "/v1/chat/completions", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        terms = {"name": "new", "rpm": 5, "budget": {"usd": 1.5, "per": "day"}, "models": ["m"], "tags": ["x"]}
        key = (await call("POST", "/admin/keys", "/admin/keys", terms, status="201")).json()
        await call("PATCH", f"/admin/keys/{key['id']}", "/admin/keys/{id}", {"rpm": None})
        await call("GET", "/admin/keys", "/admin/keys")
        await call("POST", f"/admin/keys/{key['id']}/rotate", "/admin/keys/{id}/rotate", {}, status="201")
        requests = (await call("GET", "/admin/requests", "/admin/requests", query="?limit=5")).json()["data"]
        await call("GET", f"/admin/requests/{requests[0]['id']}", "/admin/requests/{id}")
        await call("GET", "/admin/usage", "/admin/usage", query="?by=model")
        await call("GET", "/admin/providers", "/admin/providers")
        await call("POST", "/admin/reload", "/admin/reload")
        await call("GET", "/readyz", "/readyz")
        await call("GET", "/healthz", "/healthz")
        await call("GET", "/v1/models", "/v1/models")
        wrong = await running.client.post("/admin/keys", json={**terms, "secret": "x"}, headers=admin)

    assert wrong.status_code == 400
    jsonschema.validate(wrong.json(), document["components"]["schemas"]["Error"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**terms, "secret": "x"}, document["components"]["schemas"]["NewKey"])
