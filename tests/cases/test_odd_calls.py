"""What stands in the place of tool calls and is none costs the calls, not the answer."""

from __future__ import annotations

from typing import Any

import pytest
from running import serving, yaml
from upstream_double import Upstream, chunk, completion, delta, finish, role

ASKED = {
    "chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "m", "input": "hi"},
}


@pytest.mark.parametrize("odd", ["x", 5, True, {"a": 1}, None])
@pytest.mark.parametrize("endpoint", ASKED)
async def test_an_answer_with_calls_that_are_none_is_its_text(a: Upstream, endpoint: str, odd: Any) -> None:
    whole = completion("It is 5.")
    whole["choices"][0]["message"] |= {"tool_calls": odd, "function_call": [odd]}
    piece = chunk({"tool_calls": odd})
    a.reply(whole)
    a.stream(role(), delta("It is"), piece, delta(" 5."), finish("stop"), "[DONE]")

    async with serving(yaml({"a": a.url})) as running:
        plain = await running.client.post(f"/v1/{endpoint}", json=ASKED[endpoint])
        streamed = await running.client.post(f"/v1/{endpoint}", json={**ASKED[endpoint], "stream": True})

    assert (plain.status_code, "It is 5." in plain.text) == (200, True), plain.text
    assert streamed.status_code == 200, streamed.text
    assert " 5." in streamed.text
