"""The adapter's step of an attempt, in order: rules, hooks, rules; and the repair after a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.adapters.rules import after_hooks, before_hooks, repair
from gateway.adapters.settings import Settings
from gateway.chat import Json

if TYPE_CHECKING:
    from gateway.adapters.hooks import Context, Hooks


def prepare(body: Json, hooks: Hooks, options: Settings, ctx: Context) -> Json:
    """The body that this provider gets. `body` is the attempt's own copy and is edited. Raises AdapterError, Skipped."""
    adapter = hooks.adapter
    body = before_hooks(body, adapter, options, ctx)
    if hooks.has("transform_request"):
        body = hooks.transform_request(body, ctx)
    return after_hooks(body, adapter, options, ctx)


def recover(body: Json, kind: str, hooks: Hooks, options: Settings, ctx: Context, *, before: bool = False) -> Json | None:
    """The prepared body changed so that a refusal of class `kind` should not come again; None: nothing can be changed.

    `ctx.state["error"]` is the provider's own error, `{message, type, code, param}`. The
    adapter's hook is asked first; where it gives nothing, the default repair of the class.
    `before`: it was refused in another request and is to be prevented in this one.
    """
    if hooks.has("repair"):
        repaired = hooks.repair(body, kind, ctx)
        if repaired is not None:
            ctx.note(f"{hooks.adapter.name}.repair={kind}")
            return repaired
    return repair(body, kind, options, ctx, before=before)
