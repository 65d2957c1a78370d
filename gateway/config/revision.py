"""A short word for what a config says, so that replicas can see whether they run the same one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gateway.config.values import Config, Secret

_OWN = {"Config": {"file", "base", "adapters_dir", "places", "warnings", "store", "shared"}, "Server": {"host", "port"}}
"""What may differ between two machines, or is a secret."""


def revision(conf: Config) -> str:
    """Equal for equal configs, wherever their files lie and whatever their secrets are."""
    return sha256(repr(_plain(conf, conf.base)).encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _plain(value: Any, base: Path) -> Any:
    if isinstance(value, Secret):
        return "***"
    if is_dataclass(value):
        left_out = _OWN.get(type(value).__name__, ())
        return [(field.name, _plain(getattr(value, field.name), base)) for field in fields(value) if field.name not in left_out]
    if isinstance(value, Mapping):
        return [(key, _plain(item, base)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_plain(item, base) for item in value]
    if isinstance(value, Path):
        return str(value.relative_to(base)) if value.is_relative_to(base) else str(value)
    return value
