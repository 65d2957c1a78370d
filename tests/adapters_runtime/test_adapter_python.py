"""Adapter files in Python."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.adapters import Context, Hooks
from gateway.adapters.hooks import freeze
from gateway.chat import dumps, loads
from gateway.errors import AdapterError, UpstreamError


def test_a_hook_gets_the_real_body(make: Any) -> None:
    body = {"messages": [{"role": "user"}]}

    assert Hooks(make("def transform_request(req, ctx):\n    return req", "p.py")).transform_request(body, Context()) is body


def test_ctx_may_be_left_out_of_the_signature(make: Any) -> None:
    hooks = Hooks(make("def transform_request(req):\n    return {**req, 'a': 1}\ndef finish():\n    return None", "p.py"))

    assert hooks.transform_request({}, Context()) == {"a": 1}
    assert hooks.finish(Context()) == []


def test_helpers_are_there_by_name(make: Any) -> None:
    hooks = Hooks(
        make("def transform_request(req):\n    req['x'] = [null, array(), array([1]), array(1, 2), is_array([]), deep_copy(req)]\n    return req", "p.py")
    )

    assert hooks.transform_request({"a": [1]}, Context()) == {"a": [1], "x": [None, [], [1], [1, 2], True, {"a": [1]}]}


def test_a_failure_names_file_line_and_error(make: Any) -> None:
    hooks = Hooks(make("def deep(req):\n    return req['absent']\n\ndef transform_request(req):\n    return deep(req)", "p.py"))

    with pytest.raises(AdapterError, match=r"^adapters/p\.py:2: transform_request: KeyError: 'absent'$"):
        hooks.transform_request({}, Context())


@pytest.mark.parametrize("does", ["req['x'] = object()\n    return req", "req['x'] = ctx.warn\n    return req", "raise SystemExit(3)", "exit()"])
def test_whatever_a_hook_does_is_its_own_failure(make: Any, does: str) -> None:
    """What it gives must be JSON, and it does not end the gateway."""
    hooks = Hooks(make(f"def transform_request(req, ctx):\n    {does}", "p.py"))

    with pytest.raises(AdapterError, match=r"^adapters/p\.py:[12]: transform_request: "):
        hooks.transform_request({}, Context())


def test_an_option_may_go_into_the_body(make: Any) -> None:
    hooks = Hooks(make("def transform_request(req, ctx):\n    return {**req, **ctx.options}", "p.py"))
    options = {"route": {"order": ["a", "b"]}, "stop": ["x"]}

    body = hooks.transform_request({"n": 1}, Context(options=freeze(options)))

    assert loads(dumps(body)) == {"n": 1, **options}


def test_a_gateway_error_passes_through(make: Any) -> None:
    hooks = Hooks(make("from gateway.errors import UpstreamError\ndef transform_request(req):\n    raise UpstreamError('balance', 'empty')", "p.py"))

    with pytest.raises(UpstreamError, match="empty") as caught:
        hooks.transform_request({}, Context())

    assert caught.value.kind == "balance"


def test_a_slow_hook_is_logged(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks(make("import time\ndef transform_request(req):\n    time.sleep(0.06)\n    return req", "p.py"))

    hooks.transform_request({}, Context())

    assert [record.message.split(" took ")[0] for record in caplog.records] == ["adapters/p.py: transform_request"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def transform_request(req:\n  pass", r"adapters/bad\.py:1: "),
        ("x = 1\nraise ValueError('no')", r"adapters/bad\.py:2: ValueError: no"),
        ("\nimport surely_not_there", r"adapters/bad\.py:2: ModuleNotFoundError"),
        ("async def transform_request(req):\n    return req", r"adapters/bad\.py:1: transform_request must be a plain function"),
        ("def transform_chunk(c):\n    yield c", "neither async nor a generator"),
        ("transform_request = 1", "must be a function"),
        ("def transform_requst(req):\n    return req", "unknown name 'transform_requst'; did you mean \"transform_request\""),
        ("base_ulr = 'x'", 'did you mean "base_url"'),
        ("base_url = 1", "base_url must be a text"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(make: Any, text: str, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        make(text, "bad.py")


def test_other_names_are_the_files_own(make: Any) -> None:
    adapter = make(
        "import json\nfrom pathlib import Path\nLIMIT = 3\n_private = 1\ndef own(x):\n    return x\nclass Own:\n    pass\noptions = {'a': [1]}", "p.py"
    )

    assert (dict(adapter.options), dict(adapter.hooks), adapter.language) == ({"a": (1,)}, {}, "python")
