"""`/v1/models`, in the two shapes that clients know."""

from __future__ import annotations

import pytest
from running import serving, yaml

ANTHROPIC = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
async def test_the_list_is_openais_with_both_keys_or_anthropics(path: str) -> None:
    async with serving(yaml({"a": "mock://"}, more="agents: {w: {pattern: simple, model: m}}")) as running:
        openai = (await running.client.get(path)).json()
        anthropic = (await running.client.get(path, headers=ANTHROPIC)).json()

    assert openai["data"] == openai["models"]
    assert [(model["id"], model["object"]) for model in openai["data"]] == [("m", "model"), ("agent/w", "model")]
    assert [(model["id"], model["type"]) for model in anthropic["data"]] == [("m", "model"), ("agent/w", "model")]
    assert (anthropic["first_id"], anthropic["last_id"], anthropic["has_more"]) == ("m", "agent/w", False)


async def test_a_model_that_does_not_exist_is_told_in_the_clients_form() -> None:
    async with serving(yaml({"a": "mock://"})) as running:
        openai = await running.client.get("/v1/models/nope")
        anthropic = await running.client.get("/v1/models/nope", headers=ANTHROPIC)

    assert (openai.status_code, openai.json()["error"]["code"], "request-id" in openai.headers) == (404, "model_not_found", False)
    assert (anthropic.status_code, anthropic.json()["type"], anthropic.json()["error"]["type"]) == (404, "error", "not_found_error")
    assert anthropic.json()["request_id"] == anthropic.headers["request-id"]
