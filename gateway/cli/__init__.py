"""The command line. Each command is a function that takes the parsed arguments and gives the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import gateway
from gateway.cli import adapter, agent, configs, drill, explain, keys, serve
from gateway.errors import GatewayError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0: fine, 1: it found faults or failed, 2: the command line is wrong."""
    args = parser().parse_args(argv)
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


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="thinkgate", description="An OpenAI-compatible gateway: provider chains, adapters, agents as models.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for module in (serve, configs, explain, drill, adapter, agent, keys):
        module.add(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return top


def _version(args: argparse.Namespace) -> int:
    print(gateway.__version__)
    return 0
