"""/admin: keys, requests and usage."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request as Web
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.answering import json_response, visit_of
from gateway.api.headers import response_headers
from gateway.api.responses import read_json
from gateway.api.state import State
from gateway.chat import Json
from gateway.config.kinds import count, duration
from gateway.errors import InvalidRequest, NotFound, Overloaded
from gateway.keys import OVERLAP, file_id, issue, newest, public, revoke, rotate, shown, terms
from gateway.store import KeyRow, Store

_WORDS = {"key_name", "model", "limit", "before", "by", "from", "to", "format"}


def routes() -> list[Route]:
    return [
        Route("/admin/keys", listing, methods=["GET"]),
        Route("/admin/keys", create, methods=["POST"]),
        Route("/admin/keys/{id}", change, methods=["PATCH"]),
        Route("/admin/keys/{id}", end, methods=["DELETE"]),
        Route("/admin/keys/{id}/rotate", renew, methods=["POST"]),
        Route("/admin/requests", requests, methods=["GET"]),
        Route("/admin/requests/{id}", request, methods=["GET"]),
        Route("/admin/usage", usage, methods=["GET"]),
    ]


async def listing(web: Web) -> Response:
    """Every key, of the file and of the store, with what it has spent; never a secret."""
    state = visit_of(web).state
    authority = state.ledger.authority
    conf, _ = state.control.current()
    await state.ledger.look()
    await state.ledger.usage.flush()
    found = [shown(key) for key in conf.keys.values()]
    rows = await _store(state).keys()
    found += [public(row, {row.id: row for row in rows}) for row in rows]
    for entry in found:
        account = authority.account(entry["counts_as"])
        if account is not None:
            await state.ledger.usage.read_spent([account])
            entry["spent_usd"] = round(account.purse.spent, 9) if account.purse.budget is not None else None
            entry["resets"] = account.purse.resets
    return json_response(web, {"data": found})


async def create(web: Web) -> Response:
    """A new key; the answer is the only place where it can be read."""
    state, body = visit_of(web).state, await read_json(web)
    conf, _ = state.control.current()
    name = body.pop("name", None)
    secret, row = await issue(_store(state), name, terms(_in_numbers(body), conf.teams), conf.keys)
    await state.ledger.look()
    answer = {**public(row), "key": secret}
    if conf.server.admin_key is None:
        answer["warning"] = "there is a client key now and no admin key: /admin is closed until server.admin_key is set"
    return json_response(web, answer, 201)


async def change(web: Web) -> Response:
    state, body = visit_of(web).state, await read_json(web)
    conf, _ = state.control.current()
    changes, store = terms(_in_numbers(body), conf.teams), _store(state)
    latest = newest(await store.keys(), _id(web))
    row = await store.update_key(latest.id, **changes) if latest is not None else None
    if row is None:
        raise _unknown(web)
    await state.ledger.look()
    return json_response(web, await _public(state, row))


async def end(web: Web) -> Response:
    """Revoke a key: at once here, within a second on other replicas. What it used stays."""
    state = visit_of(web).state
    if not await revoke(_store(state), _id(web)):
        raise _unknown(web)
    await state.ledger.look()
    return json_response(web, {"id": web.path_params["id"], "revoked": True})


async def renew(web: Web) -> Response:
    """Another secret for a key; the old one serves for `overlap` seconds more."""
    state, body = visit_of(web).state, await read_json(web)
    overlap = body.get("overlap", OVERLAP)
    if type(overlap) not in (int, float) or not 0 <= overlap <= 366 * 86400:
        raise InvalidRequest("overlap is a number of seconds, at most a year", param="overlap")
    secret, row = await rotate(_store(state), _id(web), float(overlap))
    await state.ledger.look()
    return json_response(web, {**await _public(state, row), "key": secret}, 201)


async def requests(web: Web) -> Response:
    """The latest requests first; `format=csv` for a table."""
    state, query = visit_of(web).state, _query(web)
    limit, before = whole(query, "limit", 1), whole(query, "before", 0)
    await state.ledger.usage.flush()
    page = await _store(state).requests(100 if limit is None else limit, before, query.get("key_name"), query.get("model"))
    rows = [row.public() for row in page.rows]
    return _table(web, rows) if query.get("format") == "csv" else json_response(web, {"data": rows, "next": page.next})


async def request(web: Web) -> Response:
    state = visit_of(web).state
    await state.ledger.usage.flush()
    row = await _store(state).request(web.path_params["id"])
    if row is None:
        raise NotFound("there is no request with this id", code="request_not_found")
    return json_response(web, row.public())


async def usage(web: Web) -> Response:
    """Sums by key, model or provider; `format=csv` for a table."""
    state, query = visit_of(web).state, _query(web)
    await state.ledger.usage.flush()
    rows = [row.public() for row in await _store(state).usage(query.get("by", "key"), _moment(query, "from"), _moment(query, "to"))]
    return _table(web, rows) if query.get("format") == "csv" else json_response(web, {"data": rows})


def _store(state: State) -> Store:
    store = state.ledger.store
    if store is None:
        raise Overloaded("the store is not open", code="store_unavailable")
    return store


async def _public(state: State, row: KeyRow) -> Json:
    """A key as it is shown, with the id that the use of all its secrets counts under."""
    return public(row, {known.id: known for known in await _store(state).keys()})


def _id(web: Web) -> str:
    """The id of a key in the store. InvalidRequest for one that the file declares."""
    ident: str = web.path_params["id"]
    if ident.startswith(file_id("")):
        raise InvalidRequest("this key stands in the config file: change it there", code="key_in_file")
    return ident


def _unknown(web: Web) -> NotFound:
    return NotFound(f'there is no key "{web.path_params["id"][:64]}"', code="key_not_found")


def _query(web: Web) -> Mapping[str, str]:
    unknown = sorted(set(web.query_params) - _WORDS)
    if unknown:
        raise InvalidRequest(f'unknown parameter "{unknown[0][:64]}"', param=unknown[0][:64])
    if web.query_params.get("format", "json") not in ("json", "csv"):
        raise InvalidRequest("format is json or csv", param="format")
    return web.query_params


def whole(query: Mapping[str, str], name: str, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
        raise InvalidRequest(f"{name} is a whole number of at least {least}", param=name)
    return int(text)


def _in_numbers(body: Json) -> Json:
    """The same with numbers for texts as commands and config files have them: `200k`, `30d`, `2027-01-01`."""
    out = dict(body)
    for name, read in (("rpm", count), ("tpm", count), ("concurrency", count), ("expires", end_of)):
        if isinstance(text := body.get(name), str):
            try:
                out[name] = read(text)
            except (ValueError, OverflowError) as error:
                raise InvalidRequest(f"{name} {error}", param=name) from None
    return out


def end_of(text: str) -> float:
    """Unix seconds of `30d`, from now on, or of a day or moment. ValueError if it is neither."""
    if "-" not in text:
        return time.time() + duration(text)
    try:
        return moment(text)
    except ValueError:
        raise ValueError("is not a day such as 2027-01-31") from None


def _moment(query: Mapping[str, str], name: str) -> float | None:
    """Unix seconds, or a date or time as ISO 8601 writes it (UTC where it names no zone)."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return moment(text)
    except ValueError:
        raise InvalidRequest(f"{name} is unix seconds or an ISO date", param=name) from None


def moment(text: str) -> float:
    """Unix seconds of a text in digits or in ISO 8601. ValueError if it is neither."""
    if text.replace(".", "", 1).isdigit() and len(text) < 20 and "-" not in text:
        return float(text)
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _table(web: Web, rows: Iterable[Json]) -> Response:
    headers = {"content-disposition": f'attachment; filename="thinkgate-{time.strftime("%Y%m%d", time.gmtime())}.csv"'}
    response = Response(table(rows), media_type="text/csv; charset=utf-8", headers=headers)
    response.raw_headers += response_headers(visit_of(web).record)
    return response


def table(rows: Iterable[Json]) -> str:
    """CSV with a header line. Texts that a spreadsheet would run as a formula are quoted with an apostrophe (OWASP, CSV injection)."""
    out = io.StringIO()
    writer: Any = None
    for row in rows:
        if writer is None:
            writer = csv.writer(out)
            writer.writerow(row)
        writer.writerow([_cell(value) for value in row.values()])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        value = str(len(value)) if isinstance(value, list) else ""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
