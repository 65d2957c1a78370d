"""`thinkgate drill`: a rehearsal of what a chain does when its providers fail."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Iterator

from gateway import app
from gateway.chat import dumps
from gateway.drill.rehearsal import Report, Row, drill
from gateway.errors import ConfigError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the config file")
    parser.add_argument("model", help="what a client puts into `model`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    began, log = time.monotonic(), logging.getLogger("thinkgate")
    level = log.level
    log.setLevel(logging.ERROR)  # failures are what a drill is made of
    try:
        report = asyncio.run(drill(app.read_config(args.file), args.model))
    except ConfigError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return 1
    finally:
        log.setLevel(level)
    if args.json:
        print(dumps(report.public()).decode())
    else:
        print("\n".join(_text(report, time.monotonic() - began)))
    return 0 if report.passed else 1


def _text(report: Report, seconds: float) -> Iterator[str]:
    yield f"{report.model}: {' > '.join(report.targets)}"
    yield f"Nothing left this machine; every time-out was {report.slow:.1f} s."
    yield ""
    yield f"{'fault':22}{'meets':8}{'plain':16}{'streamed':16}what happened"
    for plain, stream in zip(report.rows[::2], report.rows[1::2], strict=True):
        same = plain.chain == stream.chain and plain.got.status == stream.got.status
        told = _told(plain) if same else f"{_told(plain)} / {_told(stream)}"
        yield f"{plain.fault:22}{plain.meets:8}{_cell(plain):16}{_cell(stream):16}{told}"
    wrong = [row for row in report.rows if not row.passed]
    if wrong:
        yield ""
    for row in wrong:
        yield f"FAILED {row.fault}, meets {row.meets}, {'streamed' if row.stream else 'plain'}: {'; '.join(row.verdict.problems)}"
    yield ""
    yield f"{len(report.rows) - len(wrong)} of {len(report.rows)} passed in {seconds:.1f} s"


def _cell(row: Row) -> str:
    return f"{'ok' if row.passed else 'FAILED':7}{round(row.got.seconds * 1000):4} ms"


def _told(row: Row) -> str:
    """Status, whether the stream was cut, and the chain."""
    return f"{row.got.status}{', cut' if row.verdict.outcome == 'cut' else ''} {row.chain}".rstrip()
