"""A Messages request that goes to a chat provider without a thinking rule must not carry Anthropic's own words for it."""

from __future__ import annotations

from running import serving, yaml
from upstream_double import Upstream, completion


async def test_the_wish_of_a_translated_request_is_told_in_chats_words(a: Upstream) -> None:
    a.reply(completion("x"))
    body = {
        "model": "m",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "hi"}],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "high"},
    }
    async with serving(yaml({"a": a.url})) as running:
        await running.client.post("/v1/messages", json=body)

    sent = a.requests[0].json
    assert not {"output_config", "thinking"} & set(sent)  # OpenAI: 400 Unrecognized request argument
    assert sent.get("reasoning_effort") == "high"
