"""`thinkgate keys` and `thinkgate usage`: on the store that the config names, whether a gateway runs on it or not."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway import app, config
from gateway.api.admin_keys import end_of, moment, table
from gateway.chat import Json, dumps
from gateway.config.kinds import count, duration
from gateway.errors import InvalidRequest, NotFound
from gateway.keys import OVERLAP, PERIODS, issue, public, revoke, rotate, shown, terms
from gateway.store import Store, UsageRow, open_store


def add(parser: argparse.ArgumentParser) -> None:
    keys = parser.add_subparsers(required=True, metavar="ACTION")
    create = _with(keys.add_parser("create", help="make a key; it is printed once"), run_create)
    create.add_argument("name", help="what the key is called in reports")
    create.add_argument("--models", type=_words, metavar="A,B", help='names and globs of models and agents, such as "smart,agent/*" (default: all)')
    create.add_argument("--rpm", type=_number(count), metavar="N", help="requests in 60 s")
    create.add_argument("--tpm", type=_number(count), metavar="N", help="tokens in 60 s, also 200k or 2M")
    create.add_argument("--concurrency", type=_number(count), metavar="N", help="requests at a time")
    create.add_argument("--budget", type=float, metavar="USD", help="what it may spend")
    create.add_argument("--per", choices=PERIODS, default="month", help="in which time (default: month)")
    create.add_argument("--expires", type=_number(end_of), metavar="WHEN", help="how long it is good for (30d), or the day from which it is not (2027-01-31)")
    create.add_argument("--team", help="an entry of teams in the config, whose limits hold too")
    create.add_argument("--tags", type=_words, metavar="A,B", help="words of yours, for finding it again")
    _with(keys.add_parser("list", help="list all keys, without their secrets"), run_list)
    revoked = _with(keys.add_parser("revoke", help="end a key at once"), run_revoke)
    revoked.add_argument("key", help="its name or id")
    rotated = _with(keys.add_parser("rotate", help="make another secret for a key; it is printed once"), run_rotate)
    rotated.add_argument("key", help="its name or id")
    rotated.add_argument("--overlap", type=_number(duration), default=OVERLAP, metavar="TIME", help="how long the old secret still serves (default: 1d)")


def add_usage(usage: argparse.ArgumentParser) -> None:
    _with(usage, run_usage)
    usage.add_argument("--by", choices=("key", "model", "provider"), default="key", help="what the sums are for (default: key)")
    usage.add_argument("--from", dest="since", type=_number(moment), metavar="WHEN", help="a date or time (UTC); sums are by the hour")
    usage.add_argument("--to", dest="until", type=_number(moment), metavar="WHEN", help="the same, for the end")
    usage.add_argument("--csv", action="store_true", help="print CSV")


def _with(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="the config, which names the store")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run_create(args: argparse.Namespace) -> int:
    conf = app.read_config(args.config)
    given: Json = {name: getattr(args, name) for name in ("models", "rpm", "tpm", "concurrency", "expires", "team", "tags")}
    if args.budget is not None:
        given["budget"] = {"usd": args.budget, "per": args.per}
    columns = terms(given, conf.teams)
    secret, row = _with_store(conf, lambda store: issue(store, args.name, columns, conf.keys))
    if args.json:
        print(dumps({**public(row), "key": secret}).decode())
    else:
        print(secret)
        print(f"key {row.name} ({row.id}); it is shown this once", file=sys.stderr)
    return 0


def run_list(args: argparse.Namespace) -> int:
    conf = app.read_config(args.config)
    rows = _with_store(conf, lambda store: store.keys())
    known = {row.id: row for row in rows}
    keys = [*map(shown, conf.keys.values()), *(public(row, known) for row in rows)]
    if args.json:
        print(dumps({"data": keys}).decode())
    else:
        print("\n".join(_listed(keys)))
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    if not _with_store(app.read_config(args.config), lambda store: revoke(store, args.key)):
        raise NotFound(f'there is no key "{args.key}" in the store', code="key_not_found")
    print(dumps({"key": args.key, "revoked": True}).decode() if args.json else f"{args.key} is revoked; running gateways know it within a second")
    return 0


def run_rotate(args: argparse.Namespace) -> int:
    secret, row = _with_store(app.read_config(args.config), lambda store: rotate(store, args.key, args.overlap))
    if args.json:
        print(dumps({**public(row), "key": secret}).decode())
    else:
        print(secret)
        print(f"key {row.name} ({row.id}); it is shown this once, the old secret serves until {_when(time.time() + args.overlap)}", file=sys.stderr)
    return 0


def run_usage(args: argparse.Namespace) -> int:
    rows = _with_store(app.read_config(args.config), lambda store: store.usage(args.by, args.since, args.until))
    if args.csv:
        print(table(row.public() for row in rows), end="")
    elif args.json:
        print(dumps({"data": [row.public() for row in rows]}).decode())
    else:
        print("\n".join(_used(args.by, rows)))
    return 0


def _with_store(conf: config.Config, use: Callable[[Store], Awaitable[Any]]) -> Any:
    if conf.store in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        raise InvalidRequest("the config's store is in memory: nothing but the running gateway can see it; use /admin, or set store: sqlite:///FILE")

    async def run() -> Any:
        store = await open_store(conf.store, conf.base)
        try:
            return await use(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def _listed(keys: Sequence[Json]) -> Iterator[str]:
    yield f"{'name':20} {'id':22} {'state':10} {'rpm':>8} {'tpm':>10} {'conc':>5} {'budget':>16} {'expires':20} models"
    for key in keys:
        budget = f"{key['budget']['usd']:g}/{key['budget']['per']}" if key["budget"] else "-"
        state = "active" if key["active"] else "revoked" if key["revoked"] is not None else "expired"
        limits = f"{key['rpm'] or '-':>8} {key['tpm'] or '-':>10} {key['concurrency'] or '-':>5}"
        ends = [end for end in (key["expires"], key["overlap_until"]) if end is not None]
        yield f"{key['name']:20} {key['id']:22} {state:10} {limits} {budget:>16} {_when(min(ends)) if ends else '-':20} {','.join(key['models']) or '*'}"


def _used(by: str, rows: Iterable[UsageRow]) -> Iterator[str]:
    yield f"{by:32} {'requests':>9} {'failed':>7} {'prompt':>12} {'cached':>12} {'completion':>12} {'USD':>12}"
    for row in rows:
        counts = f"{row.requests:>9} {row.failed:>7} {row.prompt_tokens:>12} {row.cached_tokens:>12} {row.completion_tokens:>12} {row.cost:>12.6f}"
        yield f"{row.name or '-':32} {counts}"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _number(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A converter whose words reach the user."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(f"{text[:40]} {error}") from None

    return convert
