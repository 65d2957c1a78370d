"""A config text -> a Config, or a ConfigError with everything that is wrong in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gateway.config.fields import Reading
from gateway.config.reader import MAX_BYTES, Node, decode, read
from gateway.config.sections import FILE
from gateway.config.starter import Known, embedded_text
from gateway.config.values import Config, Key, Secret
from gateway.errors import ConfigError, Fault


def load(path: str | Path, env: Mapping[str, str] | None = None) -> Config:
    """The config of a file. `env` stands for the process's environment.

    Raises ConfigError with all faults in file order, also when the file cannot be read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError([Fault("", f"cannot be read: {error.strerror or type(error).__name__}", 1, 1)], str(path)) from None
    return parse(decode(raw, str(path)), str(path), path.parent, env)


def parse(text: str, file: str = "config", base: Path = Path(), env: Mapping[str, str] | None = None) -> Config:
    """The config of a text. `file` is its name in faults, `base` the folder of relative paths.

    Raises ConfigError with all faults in file order.
    """
    return build(text, file, base, os.environ if env is None else env)


def embedded(env: Mapping[str, str] | None = None, known: Sequence[Known] = (), *, local: bool = False, texts: str = ".") -> Config:
    """The config that serves without a file: model `demo`, and `auto` over the providers whose key is in the environment.

    `known` names providers: (name, variable of its key, default model). `THINKGATE_KEY`,
    `THINKGATE_ADMIN_KEY`, `HOST` and `PORT` of the environment apply; the store is in memory.
    `local` adds the small model of this machine as `local/smollm2`. There is an agent for each
    pattern; `texts` is the folder that they search.
    """
    env = os.environ if env is None else env
    return build(embedded_text(env, known, local, texts), "embedded default", Path(), env)


def build(text: str, file: str, base: Path, env: Mapping[str, str]) -> Config:
    faults: list[Fault] = []
    root = read(text, env, faults, file)
    reading = Reading(root, base, env)
    reading.faults = faults
    config: Config = FILE.read(root, (), reading)
    if "providers" in root.entries and reading.names.get("providers") == ():
        reading.fault(("providers",), "at least one provider is needed", root.entries["providers"])
    _check_keys(config, root, reading)
    warnings = tuple(sorted(reading.warnings, key=lambda fault: (fault.line, fault.column)))
    adapters_dir = config.adapters_dir if "adapters_dir" in root.entries else base / config.adapters_dir
    config = replace(config, adapters_dir=adapters_dir, file=file, base=base, places=reading.places, warnings=warnings)
    if reading.faults:
        raise ConfigError(reading.faults, file, config)
    return config


def _check_keys(config: Config, root: Node, reading: Reading) -> None:
    """No two clients may present the same key: it could not be told whose limits hold."""
    seen: dict[Secret, str] = {key: f"server.keys[{i}]" for i, key in enumerate(config.server.keys)}
    for key in config.keys.values():
        first = seen.setdefault(key.key, f"keys.{key.name}")
        if first != f"keys.{key.name}":
            _same_key(key, first, root, reading)


def _same_key(key: Key, first: str, root: Node, reading: Reading) -> None:
    entry = root.entries["keys"].value.entries[key.name].value.entries["key"]
    reading.fault(("keys", key.name, "key"), f"is the same key as {first}", entry.value)
