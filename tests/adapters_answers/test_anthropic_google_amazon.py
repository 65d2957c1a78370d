"""The adapters anthropic, gemini, gemini_compat, vertex and bedrock: from a chat request to what is sent, and back from refusals."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import runpy
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.adapters import Adapter, Context, Hooks, Loader, Settings, builtin_folder, read_wish, settings
from gateway.adapters.apply import prepare, recover
from gateway.config import HookBudget
from gateway.dialects import dialect
from gateway.errors import Skipped

LOADER = Loader([builtin_folder()], HookBudget())
USER = {"role": "user", "content": "weather in Paris?"}
TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": '{"city":"Paris"}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "20C"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s=="}
ACCESS, SECRET = "AKIDEXAMPLE0000000", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Sending(Context):
    """A context as build_request gets it."""

    url: str
    body: bytes
    api_key: str | None


def context(adapter: Adapter, options: Settings, model: str, **fields: Any) -> Sending:
    ctx = Sending(adapter.name, model, dialect=adapter.dialect, options=options, **fields)
    ctx.url, ctx.body, ctx.api_key = options.base_url or "", b"{}", None
    return ctx


def ready(name: str, model: str, thinking: str = "auto", options: dict[str, Any] | None = None, **fields: Any) -> tuple[Hooks, Settings, Sending]:
    hooks = Hooks(LOADER.get(name))
    chosen = settings(hooks.adapter, model, options or {})
    return hooks, chosen, context(hooks.adapter, chosen, model, thinking=thinking, **fields)


def sent(name: str, model: str, **body: Any) -> dict[str, Any]:
    """The body that a chat request becomes."""
    hooks, options, ctx = ready(name, model, read_wish(body) or "auto")
    body = json.loads(json.dumps({"messages": [USER], **body, "model": model}))
    if hooks.adapter.dialect != "chat":
        body = dialect(hooks.adapter.dialect).request_from_chat(body)
    return prepare(body, hooks, options, ctx)


def built(name: str, model: str, options: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """What build_request gives."""
    given = {key: fields.pop(key) for key in ("url", "body", "api_key") if key in fields}
    hooks, _, ctx = ready(name, model, options=options, **fields)
    for key, value in given.items():
        setattr(ctx, key, value)
    return hooks.build_request({}, ctx) or {}


def repaired(name: str, model: str, kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
    hooks, options, ctx = ready(name, model)
    return recover(body, kind, hooks, options, ctx)


def classified(name: str, status: int, message: str, headers: dict[str, str] | None = None) -> str | None:
    hooks, _, ctx = ready(name, "m")
    body = {"message": message} if name == "bedrock" else {"error": {"message": message}}
    return (hooks.classify_error({"status": status, "headers": headers or {}, "body": body}, ctx) or {}).get("class")


# --- Anthropic


def test_unsigned_reasoning_does_not_reach_opus_5_5_and_neither_do_temperature_and_an_off_switch() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "need the city"}

    body = sent("anthropic", "claude-opus-5-5", messages=[USER, turn, RESULT], tools=TOOLS, temperature=0.2)

    assert body == {
        "model": "claude-opus-5-5",
        "max_tokens": 4096,
        "messages": [
            USER,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "w", "input": {"city": "Paris"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "20C"}]},
        ],
        "tools": [{"name": "w", "input_schema": TOOLS[0]["function"]["parameters"]}],
    }


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("claude-sonnet-4-5", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5-5", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
    ],
)
@pytest.mark.parametrize("wish", [{"disable_thinking": True}, {"reasoning_effort": "none"}, {"reasoning": {"enabled": False}}])
def test_off_is_said_in_each_claudes_own_words(model: str, said: dict[str, Any], wish: dict[str, Any]) -> None:
    assert sent("anthropic", model, **wish) == {"model": model, "max_tokens": 4096, "messages": [USER], **said}


def test_a_signed_carrier_returns_before_the_call_and_a_foreign_one_does_not() -> None:
    def content(carrier: dict[str, Any]) -> Any:
        turn = {"role": "assistant", "content": None, "tool_calls": [CALL], "thinking_blocks": [carrier]}
        return sent("anthropic", "claude-opus-5-5", messages=[USER, turn, RESULT], tools=TOOLS)["messages"][1]["content"]

    assert content(SIGNED)[0] == SIGNED
    assert [block["type"] for block in content({**SIGNED, "provider": "deepseek"})] == ["tool_use"]


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-sonnet-4-5-20250929", "claude-opus-4-1"])
def test_a_level_leaves_only_what_the_model_takes_beside_thinking(model: str) -> None:
    body = sent("anthropic", model, reasoning_effort="high", temperature=0.2, top_p=0.9, reasoning={"summary": "auto"})

    assert set(body) <= {"model", "max_tokens", "messages", "thinking", "output_config"}
    assert body["max_tokens"] > body["thinking"].get("budget_tokens", 0)


def test_requests_name_the_version() -> None:
    assert built("anthropic", "claude-opus-5-5")["headers"] == {"anthropic-version": "2023-06-01"}


def history(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": "t", "name": "w", "input": {}}
    return [USER, {"role": "assistant", "content": [*blocks, use]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]


def test_a_refused_signature_takes_all_thinking_along_and_nothing_else() -> None:
    redacted = {"type": "redacted_thinking", "data": "d"}
    only = {"role": "assistant", "content": [SIGNED]}

    body = repaired("anthropic", "claude-opus-5-5", "signature", {"messages": [*history(SIGNED, redacted), only, USER], "thinking": {"type": "adaptive"}})

    assert body is not None
    assert body["messages"] == [*history(), {"role": "assistant", "content": "(thinking left out)"}, USER]
    assert body["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize("kind", ["signature", "reasoning_missing"])
def test_thoughts_that_are_missing_before_calls_turn_enabled_thinking_off(kind: str) -> None:
    body = repaired("anthropic", "claude-sonnet-4-5", kind, {"messages": history(), "thinking": {"type": "enabled", "budget_tokens": 2048}})

    assert body == {"messages": history(), "thinking": {"type": "disabled"}}


def test_nothing_is_sent_again_where_there_is_no_thinking_to_take_out() -> None:
    assert repaired("anthropic", "claude-opus-5-5", "signature", {"messages": history()}) is None


def test_a_refused_sampling_parameter_is_dropped() -> None:
    message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    hooks, options, ctx = ready("anthropic", "claude-x")
    ctx.state["error"] = {"message": message, "param": None}

    assert classified("anthropic", 400, message) == "param"
    assert recover({"messages": [USER], "temperature": 0.2, "top_p": 0.9}, "param", hooks, options, ctx) == {"messages": [USER], "top_p": 0.9}


@pytest.mark.parametrize("name", ["anthropic", "bedrock"])
def test_thinking_that_does_not_fit_its_history_is_a_signature_failure(name: str) -> None:
    assert classified(name, 400, "Invalid signature in thinking block. The block is bound to a different conversation") == "signature"
    assert classified(name, 400, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.") == "signature"
    assert classified(name, 400, "something else") is None


def test_a_refusal_that_is_no_json_is_left_to_the_gateway() -> None:
    hooks, _, ctx = ready("anthropic", "m")
    assert hooks.classify_error({"status": 502, "headers": {}, "body": "<html>"}, ctx) is None


# --- Gemini


def test_path_and_query_of_gemini_follow_model_and_stream() -> None:
    assert built("gemini", "gemini-3-pro") == {"path": "/models/gemini-3-pro:generateContent"}
    assert built("gemini", "gemini-3-pro", stream=True) == {"path": "/models/gemini-3-pro:streamGenerateContent", "query": {"alt": "sse"}}
    assert built("gemini", "tunedModels/x") == {"path": "/tunedModels/x:generateContent"}


def test_a_chat_request_becomes_a_body_that_gemini_knows_every_field_of() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"}

    body = sent(
        "gemini", "gemini-3-pro-preview", messages=[USER, turn, RESULT], tools=TOOLS, reasoning_effort="low", reasoning={"summary": "auto"}, stream=True
    )

    assert set(body) == {"contents", "tools", "generationConfig"}
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"
    assert body["generationConfig"] == {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}


def test_refused_signatures_are_stood_in_for_on_first_calls_and_go_elsewhere() -> None:
    parts = [{"text": "a", "thoughtSignature": "x"}, {"functionCall": {"name": "w"}, "thoughtSignature": "y"}, {"functionCall": {"name": "w"}}]

    body = repaired("gemini", "gemini-3-pro", "signature", {"contents": [{"role": "user", "parts": [{"text": "q"}]}, {"role": "model", "parts": parts}]})

    assert body is not None
    assert body["contents"][1]["parts"] == [
        {"text": "a"},
        {"functionCall": {"name": "w"}, "thoughtSignature": "skip_thought_signature_validator"},
        {"functionCall": {"name": "w"}},
    ]
    assert repaired("gemini", "gemini-3-pro", "signature", body) is None


def test_a_region_that_google_does_not_serve_is_left_for_the_next_target() -> None:
    assert classified("gemini", 400, "User location is not supported for the API use.") == "auth"
    assert classified("gemini", 400, "something else") is None


@pytest.mark.parametrize(("name", "model"), [("gemini_compat", "gemini-3-pro-preview"), ("vertex", "google/gemini-3-pro-preview")])
def test_the_compatible_endpoints_get_the_stand_in_for_refused_signatures(name: str, model: str) -> None:
    def signed(call: dict[str, Any], text: str) -> dict[str, Any]:
        return {**call, "extra_content": {"google": {"thought_signature": text}}}

    early, late = [{"role": "assistant", "content": None, "tool_calls": [signed(CALL, text), CALL]} for text in ("old", "new")]

    body = repaired(name, model, "signature", {"messages": [USER, early, RESULT, RESULT, USER, late, RESULT, RESULT]})

    assert body is not None
    assert body["messages"][1]["tool_calls"] == [CALL, CALL]
    assert body["messages"][5]["tool_calls"] == [signed(CALL, "skip_thought_signature_validator"), CALL]


def test_other_makers_models_on_vertex_get_no_signatures() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"}

    assert sent("vertex", "xai/grok-4", messages=[USER, turn, RESULT])["messages"] == [USER, turn, RESULT]


@pytest.mark.parametrize(("options", "location"), [({}, "global"), ({"location": "europe-west4"}, "europe-west4")])
def test_the_path_of_vertex_names_project_and_location(options: dict[str, str], location: str) -> None:
    path = built("vertex", "google/gemini-3-pro", {"project": "p-1", **options})["path"]

    assert path == f"/projects/p-1/locations/{location}/endpoints/openapi/chat/completions"


def test_vertex_without_a_project_is_left_out() -> None:
    with pytest.raises(Skipped, match="project"):
        built("vertex", "google/gemini-3-pro")


# --- Bedrock


def test_the_region_stands_in_bedrocks_address() -> None:
    adapter = LOADER.get("bedrock")

    assert settings(adapter, "m", {}).base_url == "https://bedrock-runtime.us-east-1.amazonaws.com"
    assert settings(adapter, "m", {"region": "eu-central-1"}).base_url == "https://bedrock-runtime.eu-central-1.amazonaws.com"
    assert settings(adapter, "m", {"region": "a/../b"}).base_url == "https://bedrock-runtime.{region}.amazonaws.com"
    assert settings(adapter, "m", {"region": "x"}, "https://proxy.example").base_url == "https://proxy.example"


def test_path_and_accept_of_bedrock_follow_model_and_stream() -> None:
    assert built("bedrock", "anthropic.claude-3-haiku-20240307-v1:0") == {
        "path": "/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse",
        "headers": {"accept": "application/json"},
    }
    assert built("bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/x", stream=True) == {
        "path": "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fx/converse-stream",
        "headers": {"accept": "application/vnd.amazon.eventstream"},
    }


def test_a_bedrock_api_key_is_a_bearer_token() -> None:
    headers = built("bedrock", "amazon.nova-lite-v1:0", api_key="ABSKQmVkcm9ja0FQSUtleQ==")["headers"]

    assert headers["authorization"] == "Bearer ABSKQmVkcm9ja0FQSUtleQ=="


def signature_of(authorization: str) -> str:
    return authorization.rpartition("Signature=")[2]


# The first two are of AWS's published test suite for Signature Version 4 (get-vanilla, post-vanilla; remembered), the
# others were computed by botocore 1.44.8 on 2026-11-30.
BEDROCK = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
HOST = "bedrock-runtime.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("method", "host", "path", "body", "session", "service", "signature"),
    [
        ("GET", "example.amazonaws.com", "/", b"", None, "service", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "example.amazonaws.com", "/", b"", None, "service", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("POST", HOST, BEDROCK, b'{"a":1}', None, "bedrock", "4ee92563407bec7dc05ce96aaea5bb069b5546d28e7dae459589728375a50c19"),
        ("POST", HOST, BEDROCK, b'{"a":1}', "TOKEN+/==", "bedrock", "b4a2d2b9206aa0f96282cb8dac6245537e361777df89f7511227379cbfe4a378"),
    ],
)
def test_signatures_are_those_of_aws(method: str, host: str, path: str, body: bytes, session: str | None, service: str, signature: str) -> None:
    sign = runpy.run_path(str(builtin_folder() / "bedrock.py"))["sign"]

    headers = sign(method, host, path, body, ("AKIDEXAMPLE", SECRET, session), ("us-east-1", service), datetime(2015, 8, 30, 12, 36, tzinfo=UTC))

    assert signature_of(headers["authorization"]) == signature
    assert headers.get("x-amz-security-token") == session


@pytest.mark.parametrize(
    ("url", "options", "host", "prefix", "region"),
    [
        ("https://bedrock-runtime.eu-west-1.amazonaws.com", {}, "bedrock-runtime.eu-west-1.amazonaws.com", "", "eu-west-1"),
        ("https://bedrock-runtime-fips.us-west-2.amazonaws.com:443/", {}, "bedrock-runtime-fips.us-west-2.amazonaws.com", "", "us-west-2"),
        ("http://127.0.0.1:8123/base", {"region": "ap-south-1"}, "127.0.0.1:8123", "/base", "ap-south-1"),
    ],
)
@pytest.mark.parametrize("session", [None, "FwoGZXIvYXdzE:with/odd+characters=="])
def test_the_request_is_signed_as_it_is_sent(url: str, options: dict[str, Any], host: str, prefix: str, region: str, session: str | None) -> None:
    key = f"{ACCESS}:{SECRET}" + (f":{session}" if session else "")
    body = json.dumps({"messages": []}).encode()

    given = built("bedrock", "amazon.nova-lite-v1:0", options, url=url, body=body, api_key=key)

    headers = given["headers"]
    stamp = headers["x-amz-date"]
    assert abs((datetime.now(UTC) - datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)).total_seconds()) < 60
    names = "host;x-amz-date" + (";x-amz-security-token" if session else "")
    lines = f"host:{host}\nx-amz-date:{stamp}\n" + (f"x-amz-security-token:{session}\n" if session else "")
    path = prefix + given["path"].replace("%", "%25")
    canonical = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{stamp[:8]}/{region}/bedrock/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"

    def mac(secret: bytes, message: str) -> bytes:
        return hmac.digest(secret, message.encode(), "sha256")

    signature = mac(mac(mac(mac(mac(b"AWS4" + SECRET.encode(), stamp[:8]), region), "bedrock"), "aws4_request"), text).hex()
    assert headers["authorization"] == f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}"
    assert SECRET not in json.dumps(given)


@pytest.mark.parametrize(
    ("status", "kind", "message", "found"),
    [
        (429, "ThrottlingException:http://internal.amazon.com/", "Too many tokens", "rate_limit"),
        (429, "ModelNotReadyException", "wait", "overload"),
        (424, "ModelErrorException", "the model broke", "server"),
        (400, "ValidationException", "The provided model identifier is invalid.", "not_found"),
        (400, "ValidationException", "Invocation of model ID x with on-demand throughput isn\u2019t supported.", "not_found"),
        (400, "ValidationException", "Input is too long for requested model.", None),
        (403, "AccessDeniedException", "no access", None),
    ],
)
def test_bedrocks_refusals_are_told_apart_by_their_header(status: int, kind: str, message: str, found: str | None) -> None:
    assert classified("bedrock", status, message, {"x-amzn-ErrorType": kind}) == found


def test_a_refused_signature_takes_all_reasoning_along_on_bedrock_too() -> None:
    reasoning = {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}}
    use = {"toolUse": {"toolUseId": "t", "name": "w", "input": {}}}
    thinking = {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2048}}}

    body = repaired("bedrock", "claude", "signature", {"messages": [{"role": "assistant", "content": [reasoning, use]}], **thinking})

    assert body == {"messages": [{"role": "assistant", "content": [use]}], "additionalModelRequestFields": {"thinking": {"type": "disabled"}}}
    assert repaired("bedrock", "claude", "signature", {"messages": [{"role": "assistant", "content": [use]}]}) is None


@pytest.mark.parametrize("name", ["anthropic", "gemini", "gemini_compat", "vertex", "bedrock"])
def test_what_is_only_remembered_is_marked(name: str) -> None:
    adapter = LOADER.get(name)
    assert adapter.path is not None
    text = adapter.path.read_text()

    assert re.search(r"\b2026", text)
    assert "[remembered" in text
