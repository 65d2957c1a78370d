"""What all processes on a store do together once is done, also where the first try fails."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.keys import Ledger, ledger
from gateway.store import RequestRow, Sql, Steps, open_store


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_old_requests_are_forgotten_by_whoever_took_the_round_also_after_a_failure(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger, "_RETAIN_AGAIN", 0.1)
    url = "sqlite:///requests.db" if kind == "sqlite" else request.getfixturevalue("postgres").fresh()
    store = await open_store(url, tmp_path)
    await store.write_requests([RequestRow("old", time.time() - 7200, "chat", "m", 200)])
    await store.engine.write(renamed("thinkgate_requests", "away"))
    made = Ledger()
    made.retention = 3600.0
    await made.open(store)
    try:
        async with asyncio.timeout(10):
            while "could not be forgotten" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await store.engine.write(renamed("away", "thinkgate_requests"))
            while await store.request("old") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await made.close()


def renamed(table: str, name: str) -> Steps[None]:
    yield Sql(f"ALTER TABLE {table} RENAME TO {name}")
