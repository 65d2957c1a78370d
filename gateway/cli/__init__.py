"""The command line. Each command is a module of its own, loaded when it is the one that is asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

import gateway
from gateway.errors import GatewayError

_COMMANDS = {
    "serve": ("serve", "add", "run the gateway"),
    "check": ("configs", "add_check", "check a config, with every fault and its place"),
    "init": ("configs", "add_init", "write a first config from the keys found in the environment"),
    "explain": ("explain", "add", "show what each target of a chain would be sent"),
    "drill": ("drill", "add", "run a model's chain against providers that fail in every known way"),
    "adapter": ("adapter", "add", "list, make and try adapters"),
    "agent": ("agent", "add", "run an agent in the terminal"),
    "keys": ("keys", "add", "make, list, rotate and revoke virtual keys"),
    "usage": ("keys", "add_usage", "what was used and what it cost"),
}
"""Each command's module, the function there that gives its parser arguments and what to run, and a line for the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0: fine, 1: it found faults or failed, 2: the command line is wrong."""
    given = sys.argv[1:] if argv is None else list(argv)
    args = parser(given[0] if given else "").parse_args(given)
    try:
        code: int = args.run(args)
    except GatewayError as error:
        print(error.message, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or 'error'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return code


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """All commands with their arguments, or those of `only`: the modules of the others, and what they need, are not loaded."""
    top = argparse.ArgumentParser(prog="thinkgate", description="An OpenAI-compatible gateway: provider chains, adapters, agents as models.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, add, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if only in (None, name):
            getattr(import_module(f"gateway.cli.{module}"), add)(command)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return top


def _version(args: argparse.Namespace) -> int:
    print(gateway.__version__)
    return 0
