"""docs/routing.md says what the chain does. `THINKGATE_WRITE_DOCS=1` writes its table of classes anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import config
from gateway.cli import parser
from gateway.failures import CLASSES, MOVES, Move
from gateway.routing.keyring import KEY_FAULTS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "routing.md"

MEANS = {
    "connect": "no connection: refused, no address, TLS",
    "timeout": "silence after the first piece, or the whole took too long",
    "first_token_timeout": "no content in time",
    "rate_limit": "too many requests or tokens",
    "overload": "the provider is busy",
    "server": "5xx, or the connection ended before an answer began",
    "balance": "no credit, quota used up",
    "auth": "the provider's key is refused",
    "not_found": "no such model or address",
    "context_overflow": "the request is too long for the model",
    "content_filter": "refused by a content policy",
    "reasoning_missing": "an earlier turn must carry its reasoning",
    "reasoning_unsupported": "an earlier turn must not carry reasoning",
    "signature": "a signature of reasoning is not valid here",
    "tool_choice_thinking": "a forced tool while the model thinks",
    "tools_effort": "tools and this effort do not go together",
    "thinking_mode": "thinking cannot be switched like this, or needs a stream",
    "param": "a parameter that the model does not take",
    "role_order": "messages or tool ids in an order that it does not take",
    "bad_request": "anything else that is wrong with the request",
    "protocol": "no answer of the dialect: garbage, HTML, empty, cut off, without an end",
    "adapter": "a hook failed or ran over its budget",
    "client_gone": "the client left",
}
"""class -> what it is, in a few words"""


def row(name: str, move: Move) -> str:
    again = {"backoff": "`retries`, after a pause", "wait": "`retries`, if Retry-After is short", "no": ""}[move.retry]
    if name in KEY_FAULTS:
        again = f"with the next key{f'; else {again}' if again else ''}"
    if move.repairable:
        again = "repaired, once"
    on = {True: "yes", False: "no", "larger_context": "with a larger known context"}[move.moves_on]
    rests = {"at_once": "at once", "counts": "after `after` failures in a row", "no": "no"}[move.cools]
    if move.cools == "counts" and move.heeds_wait:
        rests += ", at once with a Retry-After"
    return f"| `{name}` | {MEANS[name]} | {again or '&nbsp;'} | {on} | {rests} |"


def table() -> Iterator[str]:
    yield "| class | what it is | same target again | next target | the target rests |"
    yield "|---|---|---|---|---|"
    yield from (row(name, MOVES[name]) for name in CLASSES)


def test_the_table_of_classes_is_the_codes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, start, rest = text.partition("<!-- classes -->\n")
    old, end, after = rest.partition("<!-- /classes -->")
    assert start
    assert end
    wanted = "\n".join(table()) + "\n"
    if os.environ.get("THINKGATE_WRITE_DOCS"):
        PAGE.write_text(before + start + wanted + end + after, encoding="utf-8")
        return
    assert old == wanted, "docs/routing.md: the table of classes is not what the code says; THINKGATE_WRITE_DOCS=1 writes it anew"


def test_every_class_is_explained() -> None:
    assert set(MEANS) == set(CLASSES) == set(MOVES)


SETTINGS = {path.rpartition(".")[2].removesuffix("[]") for path in (row.path for row in config.reference())}


@pytest.mark.parametrize("name", ["balance", "weight", "hedge", "limits", "deadline", "api_keys", "retries", "first_token", "total", "move_on", "resume"])
def test_the_settings_that_the_page_names_exist(name: str) -> None:
    assert re.search(rf"`(?:\w+\.)*{name}(?::[^`]*)?`", PAGE.read_text(encoding="utf-8"))
    assert name in SETTINGS


def test_the_commands_that_the_page_names_exist() -> None:
    commands = re.findall(r"`thinkgate ([^`]+)`", PAGE.read_text(encoding="utf-8"))

    assert [parser().parse_args(command.split()).run.__module__ for command in commands] == ["gateway.cli.explain", "gateway.cli.drill"]


def test_the_readme_links_the_page() -> None:
    assert "(docs/routing.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
