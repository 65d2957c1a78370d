"""The unmodified `openai` SDK in front of a running gateway, and what it asks in several tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel, ConfigDict
from running import KEY, Running, yaml
from upstream_double import Script, Seen, Upstream, completion, plain

HI: list[Any] = [{"role": "user", "content": "hi"}]
KEYED = f"keys: [{KEY}]"


class Weather(BaseModel):
    """The arguments of the tool `get_weather`, and a form for an answer."""

    model_config = ConfigDict(extra="forbid")

    city: str


WEATHER_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
    },
}


def over(*upstreams: Upstream, adapter: str = "openai", model: str = "", more: str = "") -> str:
    """A config with the client's key and the model `m` over these providers: `a`, then `b`, none of them resting for long."""
    settings = f"adapter: {adapter}\nretries: 0\ncooldown: {{after: 3, base: 20ms, max: 20ms}}"
    names = dict(zip("abcd", upstreams, strict=False))
    return yaml({name: upstream.url for name, upstream in names.items()}, server=KEYED, model=model, more=more, **dict.fromkeys(names, settings))


@asynccontextmanager
async def openai_at(running: Running, sent: list[str] | None = None, key: str = KEY, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    """The client with its own defaults; `sent` gets a line `METHOD path` for every request that it sends, retries included."""

    async def note(request: Any) -> None:
        if sent is not None:
            sent.append(f"{request.method} {request.url.path}")

    http = DefaultAsyncHttpxClient(event_hooks={"request": [note]}, trust_env=False, verify=False)  # loading the CAs costs more than the test
    async with AsyncOpenAI(base_url=running.url, api_key=key, http_client=http, **options) as client:
        yield client


def strict_deepseek(answers: list[Script]) -> Any:
    """A double that answers as DeepSeek does: 400 where tools are offered and an assistant turn lacks its reasoning."""
    queue = list(answers)

    def answer(seen: Seen) -> Script:
        body = seen.json
        turns = [m for m in body["messages"] if m["role"] == "assistant"]
        if body.get("tools") and not all(isinstance(turn.get("reasoning_content"), str) for turn in turns):
            error = {
                "message": "The `reasoning_content` in the thinking mode must be passed back to the API.",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_request_error",
            }
            return plain({"error": error}, status=400)
        return queue.pop(0) if queue else plain(completion("nothing is left to say"))

    return answer
