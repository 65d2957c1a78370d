"""JSON that parsers read differently: refused, or forwarded as the one value that was read."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from asking import shaped
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import Upstream, answer, completion

JSON = {"content-type": "application/json"}
BODY = json.dumps(CHAT).encode()


def with_(text: str | bytes) -> bytes:
    """The request with one more member, spelled like this."""
    return BODY[:-1] + b"," + (text if isinstance(text, bytes) else text.encode()) + b"}"


REFUSED: dict[str, bytes] = {
    "NaN": with_('"x":NaN'),
    "Infinity": with_('"x":Infinity'),
    "minus Infinity": with_('"x":-Infinity'),
    "a number beyond floats": with_('"x":1e999'),
    "half of a surrogate pair": with_('"x":"\\ud800"'),
    "the halves in the wrong order": with_('"x":"\\udc00\\ud800"'),
    "half of a pair as bytes": with_(b'"x":"\xed\xa0\x80"'),
    "half of a pair in a key": with_('"\\ud800":1'),
    "an overlong encoding": with_(b'"x":"\xc0\xaf"'),
    "a control character": with_(b'"x":"\x01"'),
    "a line break in a text": with_(b'"x":"a\nb"'),
    "a NUL behind it": BODY + b"\x00",
    "a NUL before it": b"\x00" + BODY,
    "a BOM": b"\xef\xbb\xbf" + BODY,
    "UTF-16 with a BOM": BODY.decode().encode("utf-16"),
    "UTF-16 without one": BODY.decode().encode("utf-16-le"),
    "UTF-32": BODY.decode().encode("utf-32"),
    "something behind it": BODY + b"x",
    "a comma at the end": BODY[:-1] + b",}",
    "single quotes": BODY.replace(b'"', b"'"),
    "a comment": b"/* hi */" + BODY,
    "a leading zero": with_('"x":01'),
    "a leading plus": with_('"x":+1'),
    "hexadecimal": with_('"x":0x10'),
    "a bare word": with_('"x":undefined'),
    "5,000 digits": with_(f'"x":{"9" * 5000}'),
}


@pytest.mark.parametrize("body", REFUSED)
async def test_what_is_no_json_is_refused_and_reaches_nobody(a: Upstream, body: str) -> None:
    async with serving(yaml({"a": a.url})) as running:
        got = await running.client.post("/v1/chat/completions", content=REFUSED[body], headers=JSON)

    assert got.status_code == 400
    assert got.json()["error"]["code"] == "invalid_json"
    assert shaped(got.json()["error"])
    assert a.requests == []


KEPT: dict[str, str] = {
    "an integer of 30 digits": "123456789012345678901234567890",
    "a negative one": "-98765432109876543210",
    "2 to the 63": "9223372036854775808",
    "2 to the 64": "18446744073709551616",
    "1.0 beside 1": "[1.0,1,-0.0,0]",
    "an escaped NUL": '"\\u0000"',
    "a whole pair": '"\\ud83d\\ude00"',
    "a slash that need not be escaped": '"\\/"',
    "U+2028": '"\u2028"',
    "an empty key": '{"":{"":[]}}',
}


@pytest.mark.parametrize("value", KEPT)
async def test_what_is_unusual_json_keeps_its_value(a: Upstream, value: str) -> None:
    async with serving(yaml({"a": a.reply().url})) as running:
        got = await running.client.post("/v1/chat/completions", content=with_(f'"x":{KEPT[value]}'), headers=JSON)

    assert got.status_code == 200
    assert repr(a.requests[0].json["x"]) == repr(json.loads(KEPT[value]))  # repr tells 1.0 from 1 and -0.0 from 0


@pytest.mark.parametrize("order", ["m first", "m last"])
async def test_of_a_repeated_key_one_value_is_read_routed_and_forwarded(a: Upstream, b: Upstream, order: str) -> None:
    names = ("m", "b/x") if order == "m first" else ("b/x", "m")
    body = '{"model":"%s","temperature":0,"model":"%s","temperature":1,"messages":[{"role":"user","content":"hi"}]}' % names  # noqa: UP031 - braces

    async with serving(yaml({"a": a.reply().url, "b": b.reply().url})) as running:
        got = await running.client.post("/v1/chat/completions", content=body.encode(), headers=JSON)

    asked = b.requests if order == "m first" else a.requests
    assert got.status_code == 200
    assert len(a.requests) + len(b.requests) == len(asked) == 1
    assert asked[0].raw.count(b'"model"') == asked[0].raw.count(b'"temperature"') == 1
    assert asked[0].json["temperature"] == 1


ANSWERS: dict[str, bytes] = {
    "NaN": json.dumps(completion()).encode()[:-1] + b',"x":NaN}',
    "a BOM": b"\xef\xbb\xbf" + json.dumps(completion()).encode(),
    "UTF-16": json.dumps(completion()).encode("utf-16"),
    "something behind it": json.dumps(completion()).encode() + b"garbage",
    "100,000 deep": json.dumps(completion()).encode()[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a list": b"[1,2,3]",
    "null": b"null",
}


@pytest.mark.parametrize("body", ANSWERS)
async def test_an_answer_that_is_no_json_is_an_answer_of_the_next_provider_or_a_sound_one(a: Upstream, b: Upstream, body: str) -> None:
    a.reply(ANSWERS[body])
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        got = await running.chat()

    said = got.json()["choices"][0]["message"]["content"]  # strict JSON, or this would fail
    assert (got.headers["x-thinkgate-chain"], said) in [("a=protocol,b=200", "from b"), ("a=200", "Hello")]


async def test_a_streams_event_with_a_number_of_30_digits_keeps_it(a: Upstream) -> None:
    items = answer("x")
    big = json.dumps(items[1])[:-1] + ',"big":123456789012345678901234567890}'
    a.stream(items[0], big, *items[2:])

    async with serving(yaml({"a": a.url})) as running:
        got = await running.chat(STREAM)

    assert '"big":123456789012345678901234567890' in got.text


async def healthy(running: Running, stop: asyncio.Event) -> float:
    """The most of this process's time that /healthz had to wait for until `stop`: what other processes do meanwhile is not ours."""
    worst = 0.0
    while not stop.is_set():
        began = time.process_time()
        assert (await running.client.get("/healthz")).status_code == 200
        worst = max(worst, time.process_time() - began)
    return worst


@pytest.mark.parametrize("kind", ["keys", "lists", "text"])
async def test_a_body_as_large_as_is_allowed_holds_nobody_up_for_long(a: Upstream, kind: str) -> None:
    size = 4 << 20
    filler = {"keys": b"{" + b",".join(b'"k%07d":1' % i for i in range(size // 13)) + b"}", "lists": b"[" + b"[]," * (size // 3) + b"1]"}
    body = with_(b'"x":' + filler.get(kind, b'"' + b"a" * size + b'"'))
    stop = asyncio.Event()

    async with serving(yaml({"a": a.reply().url})) as running:
        watch = asyncio.create_task(healthy(running, stop))
        got = await running.client.post("/v1/chat/completions", content=body, headers=JSON)
        stop.set()
        worst = await watch

    if kind == "lists":
        assert got.status_code == 400
        assert "lists and objects" in got.json()["error"]["message"]
    else:
        assert got.status_code == 200
        assert len(a.requests[0].raw) > size // 2
    assert worst < 3
