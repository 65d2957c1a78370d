"""Configs that Thinkgate writes itself: the embedded default and the file of `thinkgate init`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

Known = tuple[str, str, str]
"""a provider that can be had for its key alone: name, variable of the key, default model"""


def present(env: Mapping[str, str], known: Sequence[Known]) -> list[Known]:
    """Those of the known providers whose key is in the environment, each once."""
    found: dict[str, Known] = {}
    for entry in known:
        if env.get(entry[1]):
            found.setdefault(entry[0], entry)
    return list(found.values())


def _agents(texts: str) -> list[tuple[str, str]]:
    """One agent for each pattern, with tools that need no key; `texts` is the folder that web_search looks into."""
    search = f"{{web_search: {{backend: local, path: {_text(texts)}}}}}"
    tools = f"[sequential_thinking, todo_write, calculator, {search}]"
    return [("simple", tools), ("react", f"[calculator, {search}]"), ("two_stage", tools), ("reflection", "[]"), ("plan_and_solve", f"[calculator, {search}]")]


def embedded_text(env: Mapping[str, str], known: Sequence[Known], local: bool = False, texts: str = ".") -> str:
    """The config that serves without a file; `local`: the small local model is installed, `texts`: what the agents can search."""
    real = present(env, known)
    providers = [f"  {name}: {{api_key: {_text('${' + variable + '}')}}}" for name, variable, _ in real]
    chain = [f"{name}/{model}" for name, _, model in real] or ["demo/demo"]
    return "\n".join(
        [
            'server: {host: "${HOST:-127.0.0.1}", port: "${PORT:-8080}", keys: ["${THINKGATE_KEY:-}"], admin_key: "${THINKGATE_ADMIN_KEY:-}"}',
            "store: sqlite://",
            "providers:",
            '  demo: {adapter: demo, base_url: "mock://demo"}',
            *([_LOCAL] if local else []),
            *providers,
            "models:",
            "  demo: demo/demo",
            f"  auto: {{chain: {_text(chain)}}}",
            *(["  local/smollm2: local/smollm2"] if local else []),
            "agents:",
            *(f"  {name}: {{pattern: {name}, model: demo, tools: {tools}}}" for name, tools in _agents(texts)),
            "",
        ]
    )


_LOCAL = "  local: {adapter: llamacpp, base_url: 'local://smollm2', options: {speaks: [responses, messages]}, timeouts: {first_token: 2m}}"


def starter(env: Mapping[str, str], known: Sequence[Known]) -> str:
    """A first config file, commented, for the keys that are in the environment; without one it serves the demo model."""
    real = present(env, known)
    return _HEAD + (_with_keys(real) if real else _DEMO) + _TAIL


_HEAD = """\
# A Thinkgate config. `thinkgate check FILE` says what is wrong with it,
# `thinkgate check --schema` prints a JSON Schema for your editor.
# ${NAME} is a variable of the environment, ${NAME:-default} one that may be missing.

server:
  host: 127.0.0.1
  port: 8080
  keys: ["${THINKGATE_KEY:-}"]          # what clients present; none: clients of this machine only
  admin_key: "${THINKGATE_ADMIN_KEY:-}"

"""

_DEMO = """\
# No key of a provider was in the environment, so this serves the built-in demo model.
# With a key, a provider is one line:
#   openai: {api_key: "${OPENAI_API_KEY}"}
providers:
  demo: {adapter: demo, base_url: "mock://demo"}

# What clients put into "model": a chain of targets, tried from top to bottom.
models:
  smart:
    chain:
      - demo/demo
"""

_TAIL = """\
    deadline: 90s                       # for the whole chain; of a stream, until its first content
"""


def _with_keys(real: Sequence[Known]) -> str:
    lines = ["providers:"]
    for name, variable, _ in real:
        lines += [f"  {name}:", f"    api_key: ${{{variable}}}"]
    first = real[0][0]
    lines += [
        f"    # Every setting has a default; for {first} and all others these are:",
        "    # timeouts: {connect: 5s, first_token: 60s, idle: 30s, total: 10m}",
        "    # retries: 1",
        "    # thinking: auto                  # auto | off | on | minimal | low | medium | high | max",
        "",
        '# What clients put into "model": a chain of targets, tried from top to bottom.',
        "# provider/model of a declared provider works without an entry, too.",
        "models:",
        "  smart:",
        "    chain:",
        *(f"      - {_text(f'{name}/{model}')}" for name, _, model in real),
    ]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    """A text or a list of texts as YAML: JSON is YAML."""
    return json.dumps(value)
