"""/admin: how the gateway does, and reading its config anew. Nothing here writes a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any

from starlette.requests import Request as Web
from starlette.responses import Response
from starlette.routing import Route

from gateway import config
from gateway.api.answering import json_response, visit_of


def routes() -> list[Route]:
    return [
        Route("/admin/providers", providers, methods=["GET"]),
        Route("/admin/config", settings, methods=["GET"]),
        Route("/admin/reload", reload, methods=["POST"]),
    ]


async def providers(web: Web) -> Response:
    """Every provider with its adapter, its targets that failed or rest, and the refusals that are prevented by now."""
    state = visit_of(web).state
    resting, known = state.health.resting(), state.health.breakers()
    data = [
        {
            "name": name,
            "adapter": provider.adapter.name,
            "base_url": state.redact(provider.base_url() or ""),
            "learned": [f"{model}: {kind}" for model, kind in provider.lessons],
            "resting": {target: why for target, why in resting.items() if target.startswith(f"{name}/")},
            "targets": {target: breaker for target, breaker in known.items() if target.startswith(f"{name}/")},
        }
        for name, provider in state.router.providers.items()
    ]
    return json_response(web, {"data": data})


async def settings(web: Web) -> Response:
    """The config in use, secrets masked, and how the last reload went."""
    state = visit_of(web).state
    conf, last = state.control.current()
    told = {"time": last.time, "ok": last.error is None, "error": last.error} if last is not None else None
    return json_response(web, {"config": masked(conf), "file": conf.file, "last_reload": told, "reload_error": last.error if last is not None else None})


async def reload(web: Web) -> Response:
    """Read the config again, here and in every other process that can be told."""
    state = visit_of(web).state
    ok = await state.control.reload_all()
    _, last = state.control.current()
    return json_response(web, {"reloaded": ok, "error": last.error if last is not None else None}, 200 if ok else 409)


def masked(value: Any, name: str = "") -> Any:
    """A config value as JSON; whatever may be secret is `***`."""
    if isinstance(value, config.Secret):
        return "***"
    if is_dataclass(value):
        return {f.name: masked(getattr(value, f.name), f.name) for f in fields(value) if f.name not in ("places", "warnings")}
    if isinstance(value, Mapping):
        return {key: "***" if name in ("headers", "env") else masked(item) for key, item in value.items()}
    if name == "command" and value:
        return [value[0], *("***" for _ in value[1:])]
    if isinstance(value, tuple | list):
        return [masked(item) for item in value]
    if isinstance(value, Path | date):
        return str(value)
    if name in ("store", "shared") and isinstance(value, str):
        scheme, _, rest = value.partition("://")
        return value if scheme == "sqlite" else f"{scheme}://***@{rest.rpartition('@')[2].partition('?')[0]}"
    if name == "url" and isinstance(value, str) and "?" in value:
        return f"{value.partition('?')[0]}?***"
    return "***" if name == "proxy" and value else value
