"""What would be sent to each target of a chain, and why. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gateway import failures
from gateway.chat import Json, Request, dumps
from gateway.errors import Skipped, UpstreamError
from gateway.routing.chain import Chain
from gateway.routing.plan import Failure, Plan
from gateway.upstream import NothingToRepair, Provider

_LONG = 160  # characters of a value in a diff line


def explain(chain: Chain, request: Request, fail: Mapping[str, str], redact: Callable[[str], str]) -> Json:
    """Each target with the request that it would get.

    `fail` maps a provider to a status (`429`) or a failure class (`reasoning_missing`) with
    which its attempts are imagined to end. A repairable failure adds the repaired request as
    an entry of its own. `parts` are the bodies of an embeddings request that goes in several,
    `body` is the first. Secrets are shown as `***`.
    """
    plan = chain.plan(request)
    client = {} if request.headers.get("content-type", "").startswith("multipart/") else request.body.fresh()
    targets: list[Json] = []
    ended: str | None = None
    for target in [*plan.targets, *(t for t in chain.settings.chain if t not in plan.targets)]:
        provider = chain.providers[target.provider]
        why = _left_out(plan, target, ended)
        call = replace(request, target=target, attempt=len(targets) + 1)
        targets.append(_entry(provider, call, client, why, redact))
        if targets[-1]["skipped"] is not None or target.provider not in fail:
            continue
        error = imagined(fail[target.provider])
        plan.failures.append(Failure(target, error))
        targets[-1]["fails"] = error.kind if error.upstream_status is None else f"{error.upstream_status} {error.kind}"
        if failures.MOVES[error.kind].repairable:
            again = _entry(provider, replace(call, repair=error, attempt=len(targets) + 1), client, None, redact)
            if again["skipped"] is None:
                targets.append({**again, "repairs": error.kind})
        if not plan.goes_on(error):
            ended = f"the chain ends at {target.provider}: {error.kind}"
    return {"model": request.model, "endpoint": request.endpoint, "targets": targets}


def imagined(how: str) -> UpstreamError:
    """The failure that `--fail provider=HOW` stands for. ValueError if it is neither a status nor a class."""
    if how in failures.MOVES:
        return UpstreamError(how, f"imagined: {how}")
    if how.isdigit() and 400 <= int(how) <= 599:
        verdict = failures.classify(int(how), {}, b"")
        return UpstreamError(verdict.kind, f"imagined: status {how}", upstream_status=int(how), error=verdict.error)
    raise ValueError(f'"{how}" is neither a status from 400 to 599 nor a failure class ({", ".join(failures.MOVES)})')


def _left_out(plan: Plan, target: Any, ended: str | None) -> str | None:
    if ended is not None:
        return ended
    if target not in plan.targets:
        return f"only provider {plan.request.only} was asked for"
    if not plan.request.fallback and target is not plan.targets[0]:
        return "fallback is off"
    reason = plan.skip(target, 0.0)
    return reason.why if reason is not None else None


def _entry(provider: Provider, call: Request, client: Json, why: str | None, redact: Callable[[str], str]) -> Json:
    target = call.target
    assert target is not None
    out: Json = {
        "provider": target.provider,
        "model": target.model,
        "skipped": why,
        "method": "POST",
        "url": None,
        "headers": {},
        "body": None,
        "transforms": [],
        "diff": [],
    }
    parts: list[Json] = []
    try:
        sent = [provider.prepare(part) for part in provider.parts(call) or [call]]
        prepared = sent[0]
        if len(sent) > 1:
            prepared.context.note(provider.in_parts(len(sent)))
            parts = [part.body for part in sent]
    except Skipped as skipped:
        return {**out, "skipped": why or skipped.message}
    except NothingToRepair:
        return {**out, "skipped": "nothing to repair"}
    except UpstreamError as error:
        return {**out, "skipped": why or f"{error.kind}: {redact(error.message)}"}
    headers = {name.decode("ascii"): redact(value.decode("ascii")) for name, value in prepared.headers}
    return {
        **out,
        "url": redact(prepared.shown_url),
        "headers": headers,
        "body": prepared.body,
        **({"parts": parts} if parts else {}),
        "transforms": [*prepared.context.notes],
        "diff": list(diff(client, prepared.body)),
    }


def diff(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The changes from one JSON value to another, a line each: `+ path: value`, `- path: value`, `~ path: old -> new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            where = f"{path}.{key}" if path else key
            if key not in new:
                yield f"- {where}: {_short(old[key])}"
            elif key not in old:
                yield f"+ {where}: {_short(new[key])}"
            else:
                yield from diff(old[key], new[key], where)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            where = f"{path}[{index}]"
            if index >= len(new):
                yield f"- {where}: {_short(old[index])}"
            elif index >= len(old):
                yield f"+ {where}: {_short(new[index])}"
            else:
                yield from diff(old[index], new[index], where)
    elif type(old) is not type(new) or old != new:
        yield f"~ {path}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"


__all__ = ["diff", "explain", "imagined"]
