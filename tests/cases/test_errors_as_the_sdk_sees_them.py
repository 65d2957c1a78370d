"""Each way in which a request can fail, and the exception of the official SDK that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from asking import PATIENT, sdk, shaped
from faults import refused
from running import KEY, Running, serving, yaml
from upstream_double import HANG, Upstream, completion

HI: list[Any] = [{"role": "user", "content": "hi"}]


def says(message: str, type: str = "invalid_request_error", code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


Refusal = tuple[int, dict[str, Any]]
RATE: Refusal = (429, says("slow down", "rate_limit_error"))
BALANCE: Refusal = (429, says("You exceeded your current quota", "insufficient_quota", "insufficient_quota"))
BALANCE_402: Refusal = (402, says("Insufficient Balance"))
OVERLOAD: Refusal = (503, says("overloaded", "server_error"))
SERVER: Refusal = (500, says("oops", "server_error"))
AUTH: Refusal = (401, says("bad key", "authentication_error", "invalid_api_key"))
FORBIDDEN: Refusal = (403, says("not allowed", "permission_error"))
MISSING: Refusal = (404, says("The model `x` does not exist", code="model_not_found"))
BAD: Refusal = (400, says("messages is too short", param="messages", code="too_short"))
UNPROCESSABLE: Refusal = (422, {"detail": [{"loc": ["body", "temperature"], "msg": "too hot", "type": "value_error"}]})
FILTER: Refusal = (400, says("flagged", code="content_filter"))
OVERFLOW: Refusal = (400, says("maximum context length is 5", code="context_length_exceeded", param="messages"))
PARAM: Refusal = (400, says("Unsupported parameter: 'x'", code="unsupported_parameter", param="x"))
ROLES: Refusal = (400, says("roles must alternate user/assistant"))
REASONING: Refusal = (400, says("The `reasoning_content` in the thinking mode must be passed back to the API."))


@dataclass(frozen=True)
class Row:
    """What the two providers answer, and what the client must get; `error` are fields of the error object."""

    a: Refusal
    b: Refusal
    status: int
    kind: type[openai.APIStatusError]
    retry: str | None
    classes: list[str]
    error: dict[str, Any] = field(default_factory=lambda: {"type": "upstream_error", "code": "providers_exhausted", "param": None})


ROWS = {
    "both limit the rate": Row(RATE, RATE, 429, openai.RateLimitError, None, ["rate_limit", "rate_limit"]),
    "neither has a balance": Row(BALANCE, BALANCE_402, 429, openai.RateLimitError, "false", ["balance", "balance"]),
    "rate limit and balance": Row(RATE, BALANCE, 429, openai.RateLimitError, None, ["rate_limit", "balance"]),
    "both are overloaded": Row(OVERLOAD, (529, says("busy", "overloaded_error")), 503, openai.InternalServerError, None, ["overload", "overload"]),
    "both fail": Row(SERVER, SERVER, 502, openai.InternalServerError, None, ["server", "server"]),
    "neither knows our key": Row(AUTH, FORBIDDEN, 502, openai.InternalServerError, "false", ["auth", "auth"]),
    "neither knows the model": Row(MISSING, MISSING, 502, openai.InternalServerError, "false", ["not_found", "not_found"]),
    "overload and rate limit": Row(OVERLOAD, RATE, 502, openai.InternalServerError, None, ["overload", "rate_limit"]),
    "a server error, then the caller's fault": Row(SERVER, BAD, 400, openai.BadRequestError, "false", ["server", "bad_request"], BAD[1]["error"]),
    "the caller's fault": Row(BAD, SERVER, 400, openai.BadRequestError, "false", ["bad_request"], BAD[1]["error"]),
    "the caller's fault as 422": Row(UNPROCESSABLE, SERVER, 422, openai.UnprocessableEntityError, "false", ["bad_request"], {"param": "temperature"}),
    "content policy": Row(FILTER, SERVER, 400, openai.BadRequestError, "false", ["content_filter"], FILTER[1]["error"]),
    "the context is full": Row(OVERFLOW, SERVER, 400, openai.BadRequestError, "false", ["context_overflow"], OVERFLOW[1]["error"]),
    "a parameter that both refuse": Row(PARAM, PARAM, 400, openai.BadRequestError, "false", ["param", "param"], {"code": "providers_exhausted"}),
    "an order of roles that both refuse": Row(
        ROLES, ROLES, 400, openai.BadRequestError, "false", ["role_order", "role_order"], {"code": "providers_exhausted"}
    ),
    "reasoning that both miss": Row(REASONING, REASONING, 502, openai.InternalServerError, None, ["reasoning_missing", "reasoning_missing"]),
    "auth, then the caller's fault with status 401": Row(
        AUTH, (401, says("flagged by content_policy")), 400, openai.BadRequestError, "false", ["auth", "content_filter"], {}
    ),
}


async def failure(running: Running, stream: bool = False, **options: Any) -> openai.APIStatusError:
    async with sdk(running, **{"api_key": KEY, **options}) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="m", messages=HI, stream=stream)
    body: Any = caught.value.response.json()
    assert shaped(body["error"])
    assert caught.value.response.headers["content-type"] == "application/json"
    assert caught.value.request_id
    return caught.value


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("row", ROWS)
async def test_a_failed_chain(a: Upstream, b: Upstream, row: str, stream: bool) -> None:
    wanted = ROWS[row]
    a.reply(wanted.a[1], status=wanted.a[0])
    b.reply(wanted.b[1], status=wanted.b[0])

    async with serving(yaml({"a": a.url, "b": b.url}, a=PATIENT, b=PATIENT)) as running:
        error = await failure(running, stream)

    attempts: Any = error.response.json()["error"]["attempts"]
    assert (error.status_code, type(error)) == (wanted.status, wanted.kind)
    assert [attempt["class"] for attempt in attempts if "skipped" not in attempt] == wanted.classes
    assert {name: getattr(error, name) for name in ("type", "code", "param") if name in wanted.error} == {
        n: v for n, v in wanted.error.items() if n != "message"
    }
    assert error.response.headers.get("x-should-retry") == wanted.retry


@pytest.mark.parametrize("row", [name for name, row in ROWS.items() if row.retry == "false"])
async def test_the_sdk_does_not_ask_again_where_that_is_pointless(a: Upstream, row: str) -> None:
    wanted = ROWS[row]
    last = wanted.a if len(wanted.classes) == 1 else wanted.b
    a.reply(last[1], status=last[0])

    async with serving(yaml({"a": a.url}, a=PATIENT)) as running:
        await failure(running, max_retries=2)

    assert len(a.requests) == 1


async def test_the_sdk_waits_as_long_as_the_provider_asked_for(a: Upstream) -> None:
    a.reply(RATE[1], status=429, headers={"retry-after-ms": "200"}).reply(completion("now"))

    async with serving(yaml({"a": a.url})) as running, sdk(running, api_key=KEY, max_retries=1) as client:
        said = await client.chat.completions.create(model="m", messages=HI)

    assert said.choices[0].message.content == "now"
    assert 0.2 <= a.requests[1].at - a.requests[0].at < 2.5


async def test_a_wait_above_a_minute_is_no_wait_but_a_no(a: Upstream) -> None:
    a.reply(RATE[1], status=429, headers={"retry-after": "120"})

    async with serving(yaml({"a": a.url})) as running:
        first, second = await failure(running), await failure(running)

    for error in (first, second):
        assert error.status_code == 429
        assert "retry-after" not in error.response.headers
        assert error.response.headers["x-should-retry"] == "false"
    assert second.code == "no_target_available"


async def test_the_soonest_provider_decides_how_long_to_wait(a: Upstream, b: Upstream) -> None:
    a.reply(RATE[1], status=429, headers={"retry-after": "40"})
    b.reply(RATE[1], status=429, headers={"retry-after": "12"})

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        error = await failure(running)

    assert error.response.headers["retry-after"] == "12"


async def test_both_time_out(a: Upstream, b: Upstream) -> None:
    for upstream in (a, b):
        upstream.wire(HANG)
    settings = {"a": "retries: 0\ntimeouts: {total: 100ms}", "b": "retries: 0\ntimeouts: {first_token: 100ms}"}

    async with serving(yaml({"a": a.url, "b": b.url}, **settings)) as running:
        error = await failure(running, stream=True)

    body: Any = error.response.json()["error"]
    assert (error.status_code, error.code) == (504, "providers_exhausted")
    assert [(x["class"], x["status"]) for x in body["attempts"]] == [("timeout", None), ("first_token_timeout", None)]
    assert body["message"] == "all 2 providers failed, last error: first_token_timeout after 0.1 s (a: timeout; b: first_token_timeout)"


async def test_nobody_is_there(a: Upstream) -> None:
    a.wire()

    async with serving(yaml({"gone": refused(), "a": a.url})) as running:
        error = await failure(running)

    body: Any = error.response.json()["error"]
    assert (error.status_code, [x["class"] for x in body["attempts"]]) == (502, ["connect", "server"])
    assert error.response.headers["x-thinkgate-chain"] == "gone=connect,a=server"


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>hi</html>", b"null", b"[]", b'{"choices":[]}', b'{"error":{"message":"what"}}', b'{"id":'],
    ids=["empty", "html", "null", "list", "no choices", "error", "cut"],
)
async def test_a_200_that_is_no_answer(a: Upstream, answer: bytes) -> None:
    a.reply(answer, headers={"content-type": "application/json"})

    async with serving(yaml({"a": a.url})) as running:
        error = await failure(running)

    body: Any = error.response.json()["error"]
    assert (error.status_code, body["attempts"][0]["class"]) == (502, "protocol")
    assert error.response.headers["x-thinkgate-chain"] == "a=protocol"
    assert "<html>" not in error.response.text


async def test_a_hook_that_fails(a: Upstream, tmp_path: Path) -> None:
    (tmp_path / "bad.lua").write_text("function transform_request(req)\n  return req.nothing.there\nend")

    async with serving(yaml({"a": a.url}, a="hooks: [bad.lua]"), base=tmp_path) as running:
        error = await failure(running)

    body: Any = error.response.json()["error"]
    assert (error.status_code, body["attempts"][0]["class"]) == (502, "adapter")
    assert "bad.lua:2" in body["attempts"][0]["message"]
    assert a.requests == []


async def test_nothing_can_be_asked(a: Upstream, b: Upstream) -> None:
    for upstream in (a, b):
        upstream.reply(SERVER[1], status=500, headers={"retry-after": "9"})

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        await failure(running)
        error = await failure(running)

    body: Any = error.response.json()["error"]
    assert (error.status_code, error.code) == (503, "no_target_available")
    assert [bool(x["skipped"]) for x in body["attempts"]] == [True, True]
    assert "x-thinkgate-chain" not in error.response.headers  # nobody was asked
    assert 1 <= int(error.response.headers["retry-after"]) <= 9


CLIENT_FAULTS: dict[str, tuple[dict[str, Any], int, type[openai.APIStatusError], str | None]] = {
    "unknown model": ({"model": "nope"}, 404, openai.NotFoundError, "model_not_found"),
    "a model no model can have": ({"model": "../etc"}, 400, openai.BadRequestError, "invalid_model_name"),
    "no messages": ({"messages": None}, 400, openai.BadRequestError, "missing_required_parameter"),
    "messages of the wrong kind": ({"messages": "hi"}, 400, openai.BadRequestError, None),
    "stream of the wrong kind": ({"stream": "yes"}, 400, openai.BadRequestError, None),
    "unknown provider": ({"extra_headers": {"x-thinkgate-provider": "zz"}}, 400, openai.BadRequestError, "unknown_provider"),
}


@pytest.mark.parametrize("fault", CLIENT_FAULTS)
async def test_the_clients_own_fault(a: Upstream, fault: str) -> None:
    more, status, kind, code = CLIENT_FAULTS[fault]

    async with serving(yaml({"a": a.url})) as running, sdk(running, api_key=KEY, max_retries=2) as client:
        with pytest.raises(kind) as caught:
            await client.chat.completions.create(**{"model": "m", "messages": HI, **more})

    assert (caught.value.status_code, caught.value.code, caught.value.type) == (status, code, "invalid_request_error")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert a.requests == []


async def test_a_wrong_key(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, server=f"keys: [{KEY}]")) as running:
        error = await failure(running, api_key="sk-not-the-key-1234", max_retries=2)

    assert (type(error), error.code, a.requests) == (openai.AuthenticationError, "invalid_api_key", [])
    assert "sk-not-the-key-1234" not in error.response.text
