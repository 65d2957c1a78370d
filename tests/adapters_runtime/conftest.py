from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.adapters import Adapter, Context, Hooks
from gateway.adapters.loader import load
from gateway.config import HookBudget

Make = Callable[..., Adapter]
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """make(text, name="x.lua", budget=...) is the adapter that a file of this text is."""
    folder = tmp_path_factory.mktemp("files") / "adapters"
    folder.mkdir()

    def made(text: str, name: str = "x.lua", budget: HookBudget | None = None) -> Adapter:
        path = folder / name
        path.write_text(text, "utf-8")
        return load(path, budget or HookBudget())

    return made


@pytest.fixture(scope="session")
def run(make: Make) -> Run:
    """run(lua, body, ctx) is what the body becomes in a hook of these Lua lines, `req` and `ctx` given."""
    known: dict[str, Hooks] = {}

    def ran(lua: str, body: dict[str, Any], ctx: Context | None = None) -> Any:
        if lua not in known:
            known[lua] = Hooks(make(f"function transform_request(req, ctx) {lua}\n return req end"))
        return known[lua].transform_request(body, ctx or Context())

    return ran
