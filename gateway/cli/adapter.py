"""`thinkgate adapter list | new | test`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from gateway import config
from gateway.adapters import Context, Hooks, Loader, apply, builtin_folder, read_wish, settings
from gateway.api.bodies import parse_object
from gateway.chat import dumps
from gateway.routing.explain import diff

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

_LUA = """-- {name}: what this provider wants otherwise than OpenAI. Data first, hooks only where data cannot say it.
local adapter = {{
  base_url = "https://api.example.com/v1",
  env      = "{env}_API_KEY",              -- where its key usually is
  options  = {{ greeting = false }},         -- settings of a provider in the config, with their defaults
}}

-- The body as it will be sent; it is this attempt's own copy.
function adapter.transform_request(req, ctx)
  if ctx.options.greeting then
    table.insert(req.messages, 1, {{ role = "system", content = "Be kind." }})
    ctx.warn("greeting added")
  end
  return req
end

return adapter
"""

_PYTHON = '''"""{name}: what this provider wants otherwise than OpenAI. Data first, hooks only where data cannot say it."""

base_url = "https://api.example.com/v1"
env = "{env}_API_KEY"  # where its key usually is
options = {{"greeting": False}}  # settings of a provider in the config, with their defaults


def transform_request(req, ctx):
    """The body as it will be sent; it is this attempt's own copy."""
    if ctx.options["greeting"]:
        req["messages"].insert(0, {{"role": "system", "content": "Be kind."}})
        ctx.warn("greeting added")
    return req
'''


def add(adapter: argparse.ArgumentParser) -> None:
    adapter.add_argument("--dir", default="adapters", metavar="FOLDER", help="your adapters (default: ./adapters), looked at before the built-in ones")
    verbs = adapter.add_subparsers(required=True, metavar="VERB")
    verbs.add_parser("list", help="all adapters that can be used").set_defaults(run=run_list)
    new = verbs.add_parser("new", help="write a new adapter to start from")
    new.add_argument("name")
    new.add_argument("--lang", choices=("lua", "py"), default="lua")
    new.set_defaults(run=run_new)
    test = verbs.add_parser("test", help="show what an adapter makes of a request")
    test.add_argument("file", help="an adapter's file, or its name")
    test.add_argument("request", help="a file with the JSON body of a request; - reads it from standard input")
    test.set_defaults(run=run_test)


def _loader(args: argparse.Namespace, *more: Path) -> Loader:
    return Loader([*more, Path(args.dir), builtin_folder()], config.HookBudget())


def run_list(args: argparse.Namespace) -> int:
    loader = _loader(args)
    for name in loader.names():
        adapter = loader.get(name)
        print(f"{name:14} {adapter.language:7} {adapter.base_url or '-':60} {' '.join(adapter.hooks)}".rstrip())
    return 0


def run_new(args: argparse.Namespace) -> int:
    if not _NAME.fullmatch(args.name):
        print("an adapter's name has small letters, digits, - and _", file=sys.stderr)
        return 2
    folder = Path(args.dir)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{args.name}.{args.lang}"
    text = (_LUA if args.lang == "lua" else _PYTHON).format(name=args.name, env=args.name.upper().replace("-", "_"))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        print(f"{file} is there already; it was not changed", file=sys.stderr)
        return 1
    print(f"{file} written; try it: thinkgate adapter test {file} REQUEST.json")
    return 0


def run_test(args: argparse.Namespace) -> int:
    file = Path(args.file)
    by_path = file.suffix in (".lua", ".py")
    adapter = _loader(args, file.parent).get(file.stem) if by_path else _loader(args).get(args.file)
    raw = sys.stdin.buffer.read() if args.request == "-" else Path(args.request).read_bytes()
    client, body = parse_object(raw), parse_object(raw)
    model = body.get("model") if isinstance(body.get("model"), str) else adapter.default_model or "model"
    options = settings(adapter, str(model), {})
    context = Context(
        provider=adapter.name,
        model=str(model),
        endpoint="chat",
        dialect=adapter.dialect,
        stream=body.get("stream") is True,
        attempt=1,
        thinking=read_wish(body) or "auto",
        options=options,
    )
    sent = apply.prepare(body, Hooks(adapter), options, context)
    print(f"adapter {adapter.name}{f' ({adapter.path.name})' if adapter.path else ''}")
    if context.notes:
        print(f"transforms: {' '.join(context.notes)}")
    print("\n".join(diff(client, sent)) or "no changes")
    print(dumps(sent).decode())
    return 0
