"""What `/v1/responses` kept on one replica can be referred to, read and deleted on another (D11: replicas are stateless behind a balancer)."""

from __future__ import annotations

from typing import Any

import httpx
from running import Running, serving, yaml
from servers import Valkey
from test_two_replicas import BEARER, KEY, bearer, eventually, pair, shared, text
from upstream_double import Upstream, completion

OTHER = bearer(f"{KEY}-of-two")
KEYS = f"  two: {{key: {KEY}-of-two}}\n"


async def ask(running: Running, words: Any, headers: dict[str, str] = BEARER, **more: Any) -> httpx.Response:
    return await running.client.post("/v1/responses", json={"model": "m", "input": words, **more}, headers=headers)


def said(a: Upstream) -> list[str]:
    """The texts of the last request that the provider got."""
    found = [message["content"] for message in a.requests[-1].json["messages"]]
    return [words if isinstance(words, str) else words[0]["text"] for words in found]


async def test_a_conversation_goes_on_whichever_replica_is_asked(a: Upstream, valkey: Valkey) -> None:
    for number in range(6):
        a.reply(completion(f"answer {number}"))

    async with pair(text(a, valkey.fresh(), "rpm: 100")) as both:
        previous: dict[str, str] = {}
        for turn in range(6):
            answer = await ask(both[turn % 2], f"question {turn}", **previous)
            assert answer.status_code == 200, answer.text
            previous = {"previous_response_id": answer.json()["id"]}

    assert said(a) == [word for turn in range(5) for word in (f"question {turn}", f"answer {turn}")] + ["question 5"]


async def test_a_streamed_answer_is_known_elsewhere_when_it_ends(a: Upstream, valkey: Valkey) -> None:
    a.stream(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "streamed"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    )
    a.reply(completion())

    async with pair(text(a, valkey.fresh(), "rpm: 100")) as (one, two):
        events = (await ask(one, "hi", stream=True)).text
        id = events.rpartition('"response":{"id":"')[2].partition('"')[0]
        answer = await ask(two, "go on", previous_response_id=id)

    assert answer.status_code == 200, answer.text
    assert said(a) == ["hi", "streamed", "go on"]


async def test_one_replica_reads_and_deletes_what_another_kept_and_then_nobody_has_it(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion("kept"), repeat=3)

    async with pair(text(a, valkey.fresh(), "rpm: 100")) as (one, two):
        made = (await ask(one, "hi")).json()
        path = f"/v1/responses/{made['id']}"
        read = await two.client.get(path, headers=BEARER)
        items = (await two.client.get(f"{path}/input_items", headers=BEARER)).json()["data"]
        gone = await two.client.delete(path, headers=BEARER)
        after = [await running.client.get(path, headers=BEARER) for running in (one, two)]
        follows = await ask(one, "go on", previous_response_id=made["id"])

    assert read.json() == made
    assert items[0]["content"][0]["text"] == "hi"
    assert gone.json()["deleted"] is True
    assert [g.status_code for g in after] == [404, 404]
    assert follows.status_code == 400
    assert follows.json()["error"]["code"] == "previous_response_not_found"


async def test_an_item_of_another_replicas_answer_can_be_referred_to(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion("the item"), repeat=2)

    async with pair(text(a, valkey.fresh(), "rpm: 100")) as (one, two):
        item = (await ask(one, "hi")).json()["output"][0]["id"]
        answer = await ask(two, [{"type": "item_reference", "id": item}, {"role": "user", "content": "go on"}])

    assert answer.status_code == 200, answer.text
    assert said(a) == ["the item", "go on"]


async def test_another_tenant_and_what_was_not_to_be_stored_stay_apart(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion(), repeat=5)

    async with pair(text(a, valkey.fresh(), "rpm: 100", KEYS)) as (one, two):
        made = (await ask(one, "hi")).json()["id"]
        private = (await ask(one, "hi", store=False)).json()["id"]
        stranger = await two.client.get(f"/v1/responses/{made}", headers=OTHER)
        follows = await ask(two, "go on", OTHER, previous_response_id=made)
        unkept = await two.client.get(f"/v1/responses/{private}", headers=BEARER)

    assert [stranger.status_code, follows.status_code, unkept.status_code] == [404, 400, 404]


async def test_without_the_shared_state_each_has_its_own(a: Upstream, own_valkey: Valkey) -> None:
    a.reply(completion(), repeat=5)

    async with serving(text(a, own_valkey.fresh(), "rpm: 100")) as one:
        await eventually(lambda: shared(one)["state"] == "up")
        made = (await ask(one, "hi")).json()["id"]
        own_valkey.kill()
        try:
            here = await ask(one, "go on", previous_response_id=made)
            unknown = await ask(one, "go on", previous_response_id="resp_nobody")
        finally:
            own_valkey.start()

    assert [here.status_code, unknown.status_code] == [200, 400]


async def test_a_key_of_the_server_finds_its_own_on_every_replica_also_where_each_has_a_store_of_its_own(a: Upstream, valkey: Valkey) -> None:
    a.reply(completion(), repeat=2)
    mine, others = KEY, f"{KEY}-of-two"
    conf = f"{yaml({'a': a.url}, server=f'keys: [{mine}, {others}]')}shared: {valkey.fresh()}\n"

    async with pair(conf) as (one, two):
        made = (await ask(one, "hi", bearer(mine))).json()["id"]
        stranger = await ask(two, "go on", bearer(others), previous_response_id=made)
        follows = await ask(two, "go on", bearer(mine), previous_response_id=made)

    assert [stranger.status_code, follows.status_code] == [400, 200]
