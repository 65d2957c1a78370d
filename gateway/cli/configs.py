"""`thinkgate check` and `thinkgate init`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gateway import app, config
from gateway.adapters import Loader, builtin_folder
from gateway.chat import dumps
from gateway.errors import ConfigError


def add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("file", nargs="?", help="the config file")
    check.add_argument("--schema", action="store_true", help="print the JSON Schema of config files, for editors")
    check.set_defaults(run=run_check)


def add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument("file", nargs="?", default="thinkgate.yaml", help="where to write it (default: thinkgate.yaml)")
    init.set_defaults(run=run_init)


def run_check(args: argparse.Namespace) -> int:
    if args.schema:
        print(dumps(config.schema()).decode())
        return 0
    if args.file is None:
        print("thinkgate check: which FILE?", file=sys.stderr)
        return 2
    try:
        conf = app.read_config(args.file)
        app.check(conf)
    except ConfigError as error:
        print("\n".join(error.lines()))
        return 1
    for warning in conf.warnings:
        print(f"{conf.file}:{warning.line}:{warning.column}: {warning.path}: warning: {warning.message}")
    print(f"{args.file}: fine: {len(conf.providers)} providers, {len(conf.models)} models")
    return 0


def run_init(args: argparse.Namespace) -> int:
    file = Path(args.file)
    loader = Loader([builtin_folder()], config.HookBudget())
    text = config.starter(os.environ, app.known_providers(loader, os.environ))
    try:
        with file.open("x", encoding="utf-8") as out:  # never over a file that is there
            out.write(text)
    except FileExistsError:
        print(f"{file} is there already; it was not changed", file=sys.stderr)
        return 1
    print(f"{file} written; next: thinkgate serve -c {file}")
    return 0
