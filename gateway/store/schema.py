"""The tables, and the way from every earlier schema to the present one.

A migration is never edited once it is released, and only adds: several versions of the
gateway may use one database while replicas are replaced. All that are missing run in one
transaction, so a failure leaves the schema as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gateway.store.engine import Dialect, Many, Sql, Steps
from gateway.store.faults import StoreRefused

_FIRST = (
    "CREATE TABLE thinkgate_meta (name TEXT PRIMARY KEY, number BIGINT NOT NULL, bytes {blob})",
    "INSERT INTO thinkgate_meta (name, number) VALUES ('schema', 0), ('keys', 0)",
    """CREATE TABLE thinkgate_keys (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        digest {blob} NOT NULL UNIQUE,
        models TEXT NOT NULL,
        rpm BIGINT,
        tpm BIGINT,
        concurrency BIGINT,
        budget_usd DOUBLE PRECISION,
        budget_per TEXT NOT NULL,
        expires DOUBLE PRECISION,
        team TEXT,
        tags TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        revoked DOUBLE PRECISION,
        rotated_from TEXT,
        overlap_until DOUBLE PRECISION
    )""",
    """CREATE TABLE thinkgate_requests (
        seq {serial},
        uid TEXT NOT NULL UNIQUE,
        id TEXT NOT NULL,
        time DOUBLE PRECISION NOT NULL,
        endpoint TEXT NOT NULL,
        model TEXT NOT NULL,
        key_id TEXT,
        key_name TEXT,
        team TEXT,
        status BIGINT NOT NULL,
        kind TEXT,
        provider TEXT,
        target_model TEXT,
        stream BIGINT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        cached_tokens BIGINT NOT NULL,
        reasoning_tokens BIGINT NOT NULL,
        estimated BIGINT NOT NULL,
        cost DOUBLE PRECISION,
        first_token_ms BIGINT,
        total_ms BIGINT NOT NULL,
        attempts TEXT NOT NULL,
        transforms TEXT NOT NULL,
        run_id TEXT
    )""",
    "CREATE INDEX thinkgate_requests_id ON thinkgate_requests (id, seq)",
    "CREATE INDEX thinkgate_requests_time ON thinkgate_requests (time)",
    "CREATE INDEX thinkgate_requests_key ON thinkgate_requests (key_name, seq)",
    "CREATE INDEX thinkgate_requests_model ON thinkgate_requests (model, seq)",
    # Sums by the hour, so that budgets and reports stay cheap, and right when requests are deleted
    """CREATE TABLE thinkgate_totals (
        hour BIGINT NOT NULL,
        key_id TEXT NOT NULL,
        key_name TEXT NOT NULL,
        team TEXT NOT NULL,
        model TEXT NOT NULL,
        provider TEXT NOT NULL,
        requests BIGINT NOT NULL,
        failed BIGINT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        cached_tokens BIGINT NOT NULL,
        reasoning_tokens BIGINT NOT NULL,
        cost DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (hour, key_id, key_name, team, model, provider)
    )""",
    "CREATE INDEX thinkgate_totals_key ON thinkgate_totals (key_id, hour)",
    "CREATE INDEX thinkgate_totals_team ON thinkgate_totals (team, hour)",
)

_RUNS = (
    # JSON is text, and `output` and `reasoning` are JSON too: PostgreSQL keeps no NUL otherwise
    """CREATE TABLE thinkgate_runs (
        nr {serial},
        id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        tenant TEXT NOT NULL,
        key_name TEXT NOT NULL,
        session TEXT,
        session_id TEXT,
        status TEXT NOT NULL,
        reason TEXT,
        input TEXT NOT NULL,
        output TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        error TEXT,
        usage TEXT NOT NULL,
        cost DOUBLE PRECISION,
        steps BIGINT NOT NULL,
        background BIGINT NOT NULL,
        detached BIGINT NOT NULL,
        idempotency_key TEXT,
        request_hash TEXT NOT NULL,
        settings TEXT NOT NULL,
        parent_run TEXT,
        forked_from TEXT,
        forked_seq BIGINT,
        metadata TEXT NOT NULL,
        waiting TEXT,
        wake_at DOUBLE PRECISION,
        created_at DOUBLE PRECISION NOT NULL,
        finished_at DOUBLE PRECISION,
        owner TEXT,
        epoch BIGINT NOT NULL,
        lease_until DOUBLE PRECISION,
        attempts BIGINT NOT NULL,
        last_seq BIGINT NOT NULL,
        cancel BIGINT NOT NULL
    )""",
    # without an idempotency key it is NULL, and NULLs are never equal
    "CREATE UNIQUE INDEX thinkgate_runs_once ON thinkgate_runs (tenant, agent, idempotency_key)",
    # not by the lease too: it changes with every write
    "CREATE INDEX thinkgate_runs_status ON thinkgate_runs (status, nr)",
    "CREATE INDEX thinkgate_runs_finished ON thinkgate_runs (finished_at)",
    """CREATE TABLE thinkgate_events (
        run_id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        type TEXT NOT NULL,
        step BIGINT NOT NULL,
        data TEXT NOT NULL,
        key TEXT NOT NULL,
        state TEXT,
        origin TEXT,
        time DOUBLE PRECISION NOT NULL,
        epoch BIGINT NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) {keyed}""",
    """CREATE TABLE thinkgate_sessions (
        key TEXT PRIMARY KEY,
        session_id TEXT NOT NULL,
        tenant TEXT NOT NULL,
        agent TEXT NOT NULL,
        state TEXT NOT NULL,
        version BIGINT NOT NULL,
        run_id TEXT,
        created_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL
    )""",
    """CREATE TABLE thinkgate_waiting (
        tenant TEXT NOT NULL,
        call_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        expires DOUBLE PRECISION,
        used BIGINT NOT NULL,
        PRIMARY KEY (tenant, call_id)
    )""",
    "CREATE INDEX thinkgate_waiting_run ON thinkgate_waiting (run_id)",
)

MIGRATIONS: tuple[Sequence[str | Many], ...] = (_FIRST, _RUNS)


def version(dialect: Dialect) -> Steps[int]:
    """The schema that the database has; 0: none."""
    if not (yield Sql(dialect.known)):
        return 0
    rows = yield Sql("SELECT number FROM thinkgate_meta WHERE name = 'schema'")
    return int(rows[0][0])


def migrate(dialect: Dialect, migrations: Sequence[Sequence[str | Many]] = MIGRATIONS) -> Steps[int]:
    """Bring the schema up to date, alone even if many processes start at once. Gives the version that was found."""
    if dialect.lock is not None:
        yield Sql(dialect.lock)
    found = yield from version(dialect)
    if found > len(migrations):
        raise StoreRefused(f"the store has schema {found}, this version knows {len(migrations)}: start a newer thinkgate on it, or restore a backup")
    for statements in migrations[found:]:
        for statement in statements:
            yield Sql(dialect.spell(statement)) if isinstance(statement, str) else statement
    if found < len(migrations):
        yield Sql("UPDATE thinkgate_meta SET number = ? WHERE name = 'schema'", (len(migrations),))
    if not (yield Sql("SELECT 1 FROM thinkgate_meta WHERE name = 'pepper'")):
        yield Sql("INSERT INTO thinkgate_meta (name, number, bytes) VALUES ('pepper', 0, ?)", (os.urandom(32),))
    return found


def claim(dialect: Dialect, task: str, seconds: float) -> Steps[bool]:
    """Take a task that is due once in so many seconds, whoever does it; False: somebody did. By the database's clock, and due too where that was set back."""
    name = f"task:{task}"
    now = f"CAST({dialect.now} AS BIGINT)"
    yield Sql("INSERT INTO thinkgate_meta (name, number) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", (name,))
    rows = yield Sql(
        f"UPDATE thinkgate_meta SET number = {now} WHERE name = ? AND (number <= {now} - ? OR number > {now} + 60) RETURNING name",  # noqa: S608
        (name, int(seconds)),
    )
    return bool(rows)
