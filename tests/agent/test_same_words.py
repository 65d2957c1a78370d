"""The words with which a session began, said again."""

from __future__ import annotations

from agents_yaml import AGENTS, says
from running import serving, yaml
from upstream_double import Upstream


async def test_more_input_in_the_words_of_the_first_is_added_and_forgets_nothing(a: Upstream) -> None:
    """A run that was cut short has left its part of the session; what goes on with it only adds."""
    says(a, ("calculator", '{"expression": "2+3"}'), "not done yet", "done")
    async with serving(yaml({"a": a.url}, more=AGENTS)) as world:
        asked = {"input": "go on", "session_id": "s", "options": {"steps": 1}}
        run = (await world.client.post("/v1/agents/calc/runs", json=asked)).json()
        assert (run["status"], run["output"]) == ("incomplete", "not done yet")
        await world.client.post(f"/v1/runs/{run['id']}/input", json={"input": "go on"})
        events = await world.client.get(f"/v1/runs/{run['id']}/events")
        assert "done" in events.text
        session = (await world.client.get("/v1/sessions/s")).json()
    said = [message["content"] for message in session["messages"] if message["content"] and message["role"] != "tool"]
    assert said == ["go on", "not done yet", "go on", "done"]
