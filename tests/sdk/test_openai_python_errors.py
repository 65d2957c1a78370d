"""Which exception of `openai` each failure becomes, what it says, and how many requests it costs."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai_client import HI, KEYED, Weather, openai_at, over
from running import KEY, serving, yaml
from upstream_double import CUT, HANG, RESET, Upstream, delta, events, plain, role

POST = "POST /v1/chat/completions"


def refusal(message: str, code: str | None = None, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


async def ask(client: AsyncOpenAI, stream: bool = False, into: list[str] | None = None) -> str:
    """The text of an answer; a stream is read to its end, its pieces go into `into`."""
    if not stream:
        said = await client.chat.completions.create(model="m", messages=HI)
        return said.choices[0].message.content or ""
    pieces = [] if into is None else into
    async for chunk in await client.chat.completions.create(model="m", messages=HI, stream=True):
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    return "".join(pieces)


class TestTheCallersOwn:
    async def test_a_wrong_key_is_an_authentication_error(self, a: Upstream) -> None:
        sent: list[str] = []
        async with serving(over(a)) as running, openai_at(running, sent, key="wrong-key-123456") as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await ask(client)

        assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")
        assert "wrong-key" not in str(caught.value)
        assert (sent, a.requests) == ([POST], [])

    async def test_an_unknown_model_is_not_found(self, a: Upstream) -> None:
        sent: list[str] = []
        async with serving(over(a)) as running, openai_at(running, sent) as client:
            with pytest.raises(openai.NotFoundError, match="nothing-of-that-name") as asked:
                await client.chat.completions.create(model="nothing-of-that-name", messages=HI)
            with pytest.raises(openai.NotFoundError) as looked_up:
                await client.models.retrieve("nothing-of-that-name")

        for error in (asked.value, looked_up.value):
            assert (error.code, error.param) == ("model_not_found", "model")
            assert error.request_id == error.response.headers["x-request-id"]
        assert (len(sent), a.requests) == (2, [])

    async def test_an_address_that_is_not_served_says_so(self, a: Upstream) -> None:
        async with serving(over(a)) as running, openai_at(running) as client:
            with pytest.raises(openai.NotFoundError, match=r"Invalid URL \(GET /v1/vector_stores\)") as caught:
                await client.vector_stores.list()

        assert caught.value.code == "unknown_url"

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_a_request_that_the_provider_refuses_is_refused_in_its_words(self, a: Upstream, b: Upstream, stream: bool) -> None:
        sent: list[str] = []
        a.reply(refusal("Invalid value: 'wizard'.", "invalid_value", param="messages[0].role"), status=400)
        async with serving(over(a, b)) as running, openai_at(running, sent) as client:
            with pytest.raises(openai.BadRequestError, match="Invalid value: 'wizard'") as caught:
                await ask(client, stream)

        assert (caught.value.code, caught.value.param, caught.value.type) == ("invalid_value", "messages[0].role", "invalid_request_error")
        assert (sent, len(a.requests), len(b.requests)) == ([POST], 1, 0)

    async def test_a_context_that_is_too_long_keeps_its_code(self, a: Upstream) -> None:
        message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
        a.reply(refusal(message, "context_length_exceeded", param="messages"), status=400)
        async with serving(over(a)) as running, openai_at(running) as client:
            with pytest.raises(openai.BadRequestError, match="maximum context length") as caught:
                await ask(client)

        assert caught.value.code == "context_length_exceeded"

    async def test_a_body_that_is_no_chat_request_names_the_field(self, a: Upstream) -> None:
        wrong: Any = "hi"
        async with serving(over(a)) as running, openai_at(running) as client:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="m", messages=wrong)

        assert caught.value.param == "messages"
        assert a.requests == []


class TestRetries:
    """The SDK asks at most three times; the gateway says when that is pointless."""

    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    async def test_a_rate_limit_is_asked_again_after_the_pause_that_it_names(self, a: Upstream, stream: bool) -> None:
        sent: list[str] = []
        a.reply(refusal("slow down", "rate_limit_exceeded", "rate_limit_error"), status=429)
        async with serving(over(a)) as running, openai_at(running, sent) as client:
            with pytest.raises(openai.RateLimitError) as caught:
                await ask(client, stream)

        headers = caught.value.response.headers
        assert caught.value.code == "providers_exhausted"
        assert 0 < int(headers["retry-after-ms"]) <= 40  # 20 ms and jitter
        assert "x-should-retry" not in headers
        assert (sent, len(a.requests)) == ([POST] * 3, 3)

    async def test_a_wait_of_more_than_a_minute_is_not_asked_for(self, a: Upstream) -> None:
        sent: list[str] = []
        settings = "retries: 0\ncooldown: {max: 10m}"
        a.reply(refusal("slow down"), status=429, headers={"retry-after": "90"})
        async with serving(yaml({"a": a.url}, server=KEYED, a=settings)) as running, openai_at(running, sent) as client:
            with pytest.raises(openai.RateLimitError) as caught:
                await ask(client)
            with pytest.raises(openai.RateLimitError) as later:
                await ask(client)

        for error in (caught.value, later.value):
            assert error.response.headers["x-should-retry"] == "false"
            assert "retry-after" not in error.response.headers
        assert later.value.code == "no_target_available"
        assert (sent, len(a.requests)) == ([POST] * 2, 1)

    @pytest.mark.parametrize(
        ("status", "body", "error", "says"),
        [
            (402, refusal("Insufficient Balance", "invalid_request_error"), openai.RateLimitError, "Insufficient Balance"),
            (429, refusal("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), openai.RateLimitError, "exceeded your current quota"),
            (401, refusal("Incorrect API key provided", "invalid_api_key"), openai.InternalServerError, "Incorrect API key"),
            (403, refusal("Country not supported", "unsupported_country_region_territory"), openai.InternalServerError, "Country not supported"),
            (404, refusal("The model `a-model` does not exist", "model_not_found"), openai.InternalServerError, "does not exist"),
        ],
        ids=["no balance", "no quota", "our key is wrong", "our key may not", "no such model there"],
    )
    async def test_what_asking_again_cannot_mend_is_one_request(self, a: Upstream, status: int, body: Any, error: Any, says: str) -> None:
        sent: list[str] = []
        a.reply(body, status=status)
        async with serving(over(a)) as running, openai_at(running, sent) as client:
            with pytest.raises(error, match=says) as caught:
                await ask(client)

        assert caught.value.code == "providers_exhausted"
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert (sent, len(a.requests)) == ([POST], 1)

    @pytest.mark.parametrize(
        ("script", "status", "label"),
        [
            (plain(refusal("boom", None, "server_error"), status=500), 502, "a=500,b=500"),
            (plain(refusal("Overloaded", None, "overloaded_error"), status=529), 503, "a=529,b=529"),
            (plain("<html>Bad Gateway</html>", status=502), 502, "a=502,b=502"),
            (plain("<html>hello</html>"), 502, "a=protocol,b=protocol"),
            (plain('{"id": "x", "choi'), 502, "a=protocol,b=protocol"),
            (plain({"error": {"message": "boom", "code": 500}}), 502, "a=server,b=server"),
            (plain({"id": "x", "object": "chat.completion", "choices": []}), 502, "a=protocol,b=protocol"),
            (events("[DONE]"), 502, "a=protocol,b=protocol"),
        ],
        ids=["500", "overloaded", "html error", "html answer", "half of a JSON", "error in a 200", "no choices", "empty stream"],
    )
    async def test_an_exhausted_chain_has_asked_every_target_once(self, a: Upstream, b: Upstream, script: Any, status: int, label: str) -> None:
        sent: list[str] = []
        a.call(lambda _: script)
        b.call(lambda _: script)
        async with serving(over(a, b)) as running, openai_at(running, sent, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError, match="all 2 providers failed") as caught:
                await ask(client)

        body: Any = caught.value.body
        assert (caught.value.status_code, caught.value.type, caught.value.code) == (status, "upstream_error", "providers_exhausted")
        assert [attempt["provider"] for attempt in body["attempts"]] == ["a", "b"]
        assert caught.value.response.headers["x-thinkgate-chain"] == label
        assert (sent, len(a.requests), len(b.requests)) == ([POST], 1, 1)

    async def test_an_exhausted_chain_is_asked_three_times_and_each_time_every_target(self, a: Upstream, b: Upstream) -> None:
        sent: list[str] = []
        for upstream in (a, b):
            upstream.reply(refusal("boom", None, "server_error"), status=500)
        async with serving(over(a, b)) as running, openai_at(running, sent) as client:
            with pytest.raises(openai.InternalServerError, match="all 2 providers failed"):
                await ask(client)

        assert (sent, len(a.requests), len(b.requests)) == ([POST] * 3, 3, 3)

    async def test_a_chain_that_times_out_is_a_504(self, a: Upstream) -> None:
        a.stream(HANG)
        settings = "retries: 0\ntimeouts: {first_token: 50ms}"
        async with serving(yaml({"a": a.url}, server=KEYED, a=settings)) as running, openai_at(running, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError, match="first_token_timeout after") as caught:
                await ask(client, stream=True)

        assert caught.value.status_code == 504

    async def test_the_sdks_second_try_can_succeed(self, a: Upstream) -> None:
        sent: list[str] = []
        a.reply(refusal("boom", None, "server_error"), status=500).stream()
        async with serving(over(a)) as running, openai_at(running, sent) as client:
            assert await ask(client, stream=True) == "Hello"

        assert sent == [POST] * 2


class TestAfterTheFirstContent:
    """The status is out: the failure is an event, the SDK raises APIError and does not ask again."""

    @pytest.mark.parametrize("end", [CUT, RESET], ids=["closed", "reset"])
    async def test_a_stream_that_breaks_off_is_no_clean_end(self, a: Upstream, b: Upstream, end: Any) -> None:
        sent: list[str] = []
        a.stream(role(), delta("Hel"), end)
        async with serving(over(a, b)) as running, openai_at(running, sent) as client:
            got: list[str] = []
            with pytest.raises(openai.APIError, match="the answer of a broke off") as caught:
                await ask(client, stream=True, into=got)

        assert not isinstance(caught.value, openai.APIConnectionError | openai.APIStatusError)
        assert (caught.value.code, caught.value.type) == ("stream_interrupted", "upstream_error")
        assert "".join(got) == "Hel"
        assert (sent, len(a.requests), len(b.requests)) == ([POST], 1, 0)

    async def test_an_end_without_a_finish_is_no_clean_end(self, a: Upstream) -> None:
        a.stream(role(), delta("Hel"), 0.05)
        async with serving(over(a)) as running, openai_at(running) as client:
            with pytest.raises(openai.APIError) as caught:
                await ask(client, stream=True)

        assert caught.value.code == "stream_interrupted"

    async def test_the_providers_own_error_is_told_in_its_words(self, a: Upstream) -> None:
        a.stream(role(), delta("Hel"), 0.05, {"error": {"message": "Provider disconnected", "code": 502}}, "[DONE]")
        async with serving(over(a)) as running, openai_at(running) as client:
            with pytest.raises(openai.APIError, match="Provider disconnected") as caught:
                await ask(client, stream=True)

        assert (caught.value.code, caught.value.type) == ("stream_interrupted", "upstream_error")

    async def test_the_helper_raises_the_same(self, a: Upstream) -> None:
        a.stream(role(), delta('{"ci'), CUT)
        async with serving(over(a)) as running, openai_at(running) as client:
            with pytest.raises(openai.APIError, match="broke off"):
                async with client.chat.completions.stream(model="m", messages=HI, response_format=Weather) as stream:
                    await stream.get_final_completion()

    async def test_silence_after_the_content_ends_in_an_error(self, a: Upstream) -> None:
        a.stream(role(), delta("Hel"), HANG)
        settings = "retries: 0\ntimeouts: {idle: 50ms}"
        async with serving(yaml({"a": a.url}, server=KEYED, a=settings)) as running, openai_at(running) as client:
            with pytest.raises(openai.APIError, match="nothing came for"):
                await ask(client, stream=True)

    async def test_keep_alive_comments_do_not_disturb_and_a_later_failure_is_an_event(self, a: Upstream) -> None:
        sent: list[str] = []
        a.stream(0.3, *[role(), delta("late")], CUT).reply(refusal("boom", None, "server_error"), status=500, delay=0.3)
        server = f"{KEYED}\nkeepalive: 50ms"
        async with serving(yaml({"a": a.url}, server=server)) as running, openai_at(running, sent) as client:
            with pytest.raises(openai.APIError, match="broke off"):
                await ask(client, stream=True)
            with pytest.raises(openai.APIError, match="all 1 providers failed") as caught:
                await ask(client, stream=True)

        assert not isinstance(caught.value, openai.APIStatusError)
        assert caught.value.code == "providers_exhausted"
        assert sent == [POST] * 2


async def test_no_secret_is_in_any_of_it(a: Upstream) -> None:
    a.reply(refusal(f"Incorrect API key provided: key-of-a-0123456789, asked by {KEY}", "invalid_api_key"), status=401)
    async with serving(over(a)) as running, openai_at(running) as client:
        with pytest.raises(openai.InternalServerError, match="Incorrect API key") as caught:
            await ask(client)

    told = f"{caught.value} {caught.value.body} {dict(caught.value.response.headers)}"
    assert "key-of-a-0123456789" not in told
    assert KEY not in told
