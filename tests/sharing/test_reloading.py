"""Reloads beside a shared state and a store: no connection more, and another server takes a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from running import Running, serving, yaml
from servers import Postgres, Valkey
from test_odd_servers import told
from test_two_replicas import eventually, shared
from upstream_double import Upstream, completion


async def connections(valkey: Valkey) -> int:
    """Those of gateways: the one that asks does not count."""
    return len((await told(valkey.fresh(), "CLIENT", "LIST")).splitlines()) - 1


def in_postgres(server: Postgres) -> int:
    count: int = server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reloading'")[0][0]
    return count


async def error(running: Running) -> Any:
    return (await running.client.get("/readyz")).json()["config"]["error"]


async def test_many_reloads_leave_one_connection_and_work_as_before(a: Upstream, b: Upstream, own_valkey: Valkey, postgres: Postgres, tmp_path: Path) -> None:
    a.reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "60"})
    b.reply(completion(), repeat=20)
    file = tmp_path / "gate.yaml"
    rest = f"shared: {own_valkey.fresh()}\nstore: {postgres.fresh()}&application_name=reloading\n"

    def write(number: int) -> None:
        file.write_text(yaml({"a": a.url, "b": b.url}, model=f"deadline: {60 + number}s", more=rest))

    write(0)
    async with serving(file) as running:
        await eventually(lambda: shared(running)["state"] == "up")
        await running.chat()
        for number in range(1, 30):
            write(number)
            assert running.gateway.reload()
        chain = (await running.chat()).headers["x-thinkgate-chain"]
        clients = await connections(own_valkey)
        backends = in_postgres(postgres)

    async def gone() -> bool:
        return await connections(own_valkey) == in_postgres(postgres) == 0

    await eventually(gone)

    assert chain == "b=200", "the rest of a is known still"
    assert clients == 1
    assert backends <= 4


async def test_another_shared_state_or_store_takes_a_restart_and_the_old_config_serves_on(a: Upstream, own_valkey: Valkey, tmp_path: Path) -> None:
    a.reply(completion(), repeat=10)
    file = tmp_path / "gate.yaml"
    old = f"shared: {own_valkey.fresh()}\nstore: sqlite:///one.db\n"
    others = {
        "another shared state takes a restart": f"shared: {own_valkey.fresh()}\nstore: sqlite:///one.db\n",
        "another store takes a restart": old.replace("one.db", "two.db"),
    }

    file.write_text(yaml({"a": a.url}, more=old))
    async with serving(file) as running:
        for why, more in others.items():
            file.write_text(yaml({"a": a.url}, more=more, a="retries: 1"))
            assert not running.gateway.reload()
            assert why in await error(running)
            assert (await running.chat()).status_code == 200
            assert running.gateway.config.providers["a"].retries == 0
        file.write_text(yaml({"a": a.url}, more=old, a="retries: 1"))
        assert running.gateway.reload()
        assert await error(running) is None
    assert not (tmp_path / "two.db").exists()
