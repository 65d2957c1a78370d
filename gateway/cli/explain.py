"""`thinkgate explain`: what would be sent, without sending it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway import app
from gateway.api.bodies import parse_object
from gateway.chat import Body, Json, Record, Request, dumps
from gateway.errors import ConfigError, InvalidRequest
from gateway.routing import explain
from gateway.upstream import RELAYED

DIALECTS = ("chat", "completions", "messages", "responses")
"""Endpoints, each of which has the dialect of the same name; the others are passed on."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the config file")
    parser.add_argument("request", help="a file with the JSON body of a request; - reads it from standard input")
    parser.add_argument(
        "--fail", action="append", default=[], metavar="PROVIDER=STATUS", help="imagine that a provider fails with this status or failure class"
    )
    parser.add_argument(
        "--endpoint",
        choices=(*DIALECTS, *RELAYED),
        metavar="NAME",
        default="chat",
        help=f"which endpoint the body is for (default: chat): {', '.join((*DIALECTS, *RELAYED))}",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        gate = app.Gateway(lambda: app.read_config(args.file))
    except ConfigError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return 1
    raw = sys.stdin.buffer.read() if args.request == "-" else Path(args.request).read_bytes()
    body = parse_object(raw)
    model = body.get("model")
    if not isinstance(model, str):
        raise InvalidRequest("the request has no `model`")
    chain = gate.state.router.chain(model)
    if chain.settings.balance == "cheapest" or any(item.endswith("=context_overflow") for item in args.fail):
        gate.read_prices()
    spoken = args.endpoint if args.endpoint in DIALECTS else "chat"
    request = Request(Body(raw, body), model, Record("explain", model=model), stream=body.get("stream") is True, endpoint=args.endpoint, dialect=spoken)
    try:
        shown = explain(chain, request, _fails(args.fail, set(gate.config.providers)), gate.state.redact)
    except ValueError as error:
        print(f"--fail: {error}", file=sys.stderr)
        return 2
    print(dumps(shown).decode() if args.json else "\n".join(_text(shown)))
    return 0


def _fails(given: list[str], known: set[str]) -> dict[str, str]:
    out = {}
    for item in given:
        provider, equals, how = item.partition("=")
        if not equals or provider not in known:
            raise ValueError(f'"{item}" is not PROVIDER=STATUS with a provider of the config ({", ".join(sorted(known))})')
        out[provider] = how
    return out


def _text(shown: Json) -> Iterator[str]:
    yield f"{shown['model']} ({shown['endpoint']})"
    for number, target in enumerate(shown["targets"], 1):
        yield ""
        repaired = f", sent once more after repairing {target['repairs']}" if "repairs" in target else ""
        yield f"{number}. {target['provider']}/{target['model']}{repaired}"
        if target["skipped"] is not None:
            yield f"   skipped: {target['skipped']}"
        elif "fails" in target:
            yield f"   asked; imagined to fail with {target['fails']}"
        else:
            yield "   asked first" if number == 1 else "   asked when those before it failed"
        if target["url"] is None:
            continue
        yield f"   {target['method']} {target['url']}"
        yield from (f"   {name}: {value}" for name, value in target["headers"].items())
        if target["transforms"]:
            yield f"   transforms: {' '.join(target['transforms'])}"
        yield "   changes to what the client sent:"
        yield from (f"     {line}" for line in target["diff"] or ["none"])
        yield "   body:" if "parts" not in target else "   bodies, one request each:"
        yield from (f"     {dumps(body).decode()}" for body in target.get("parts", [target["body"]]))
