"""The queue of background runs that several replicas share, by procrastinate on PostgreSQL.

It spreads runs and notices workers that fell silent. That nothing is lost does not depend
on it: what is due stands in the runs themselves, and `lost` finds what the queue has not.
Its tables are in a schema of their own, made new for each release of procrastinate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued, ProcrastinateException
from procrastinate.schema import SchemaManager
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gateway.store.faults import StoreUnavailable
from gateway.store.postgres import DIALECT, Postgres

log = logging.getLogger("thinkgate")

BEAT = 2.0
"""seconds between two signs of life of a worker"""
STALLED = 6.0
"""seconds without one after which its tasks are given to others"""
_TASK = "run"
_QUEUE = "thinkgate"
_AGAIN = 1.0
CONNECTIONS = 2
"""for putting in, taking and signs of life; one more hears of new runs"""

_FAULTS = (ProcrastinateException, psycopg.Error, OSError)


class Queue:
    """A replica's part in the queue: puts runs in, and takes up to `concurrency` of them at a time. Made by `open`."""

    def __init__(self, app: procrastinate.App, concurrency: int) -> None:
        self._app = app
        self._concurrency = concurrency
        self._worker: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, engine: Postgres, take: Callable[[str], Awaitable[None]], concurrency: int) -> Queue:
        """`take` is called with the id of each run that falls to this replica. StoreUnavailable if there can be no queue."""
        logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it tells each task's way at INFO, and we tell it ourselves
        try:
            schema = await _prepare(engine)
            given = conninfo_to_dict(engine.target)
            options = f"{given.get('options') or ''} -c search_path={schema}".strip()
            connector = procrastinate.PsycopgConnector(
                conninfo=make_conninfo(engine.target, options=options), min_size=1, max_size=CONNECTIONS, timeout=5.0, name="thinkgate-queue"
            )
            app = procrastinate.App(connector=connector)
            try:
                async with asyncio.timeout(20):
                    await app.open_async()
            except BaseException:
                await app.close_async()
                raise
        except _FAULTS as error:
            raise StoreUnavailable(f"no queue: {type(error).__name__}") from error

        @app.task(name=_TASK, queue=_QUEUE)
        async def run(run_id: str) -> None:
            await take(run_id)

        queue = cls(app, concurrency)
        queue._worker = asyncio.create_task(queue._work(), name="queue")
        return queue

    async def aclose(self) -> None:
        """Take nothing more; what was taken is interrupted."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.wait([worker])
        await self._app.close_async()

    async def put(self, run_id: str) -> None:
        """Somebody is to take this run. One that waits to be taken is not put in twice."""
        try:
            await self._app.configure_task(_TASK, queue=_QUEUE, queueing_lock=run_id).defer_async(run_id=run_id)
        except AlreadyEnqueued:
            return
        except _FAULTS as error:
            raise StoreUnavailable(f"the queue does not serve: {type(error).__name__}") from error

    async def rescue(self, run_ids: Iterable[str]) -> None:
        """Give the tasks of silent workers to others, and put in those of these runs that the queue does not have."""
        jobs = self._app.job_manager
        try:
            for job in await jobs.get_stalled_jobs(queue=_QUEUE, seconds_since_heartbeat=STALLED):
                await self._again(job)
            await jobs.prune_stalled_workers(STALLED * 5)
            wanted = list(run_ids)
            if wanted:
                there = {str(job.task_kwargs.get("run_id")) for status in ("todo", "doing") for job in await jobs.list_jobs_async(queue=_QUEUE, status=status)}
                for run_id in wanted:
                    if run_id not in there:
                        await self.put(run_id)
        except _FAULTS as error:
            raise StoreUnavailable(f"the queue does not serve: {type(error).__name__}") from error

    async def _again(self, job: procrastinate.jobs.Job) -> None:
        try:
            await self._app.job_manager.retry_job(job)
        except _FAULTS as error:  # another replica was faster, or the run waits under a new task already
            log.debug("a task of a silent worker is given on by somebody else: %s", type(error).__name__)

    async def _work(self) -> None:
        """A worker ends when the server does not answer; another one begins."""
        ended: type[Exception] | None = None
        while True:
            try:
                await self._app.run_worker_async(
                    queues=[_QUEUE],
                    concurrency=self._concurrency,
                    install_signal_handlers=False,
                    fetch_job_polling_interval=BEAT,
                    update_heartbeat_interval=BEAT,
                    stalled_worker_timeout=STALLED * 5,
                    shutdown_graceful_timeout=0.0,
                    delete_jobs="always",
                )
                ended = None
            except Exception as error:  # whatever it is, runs must not wait for a restart
                if type(error) is not ended:
                    log.warning("the queue of runs does not serve, a new worker begins: %s", type(error).__name__, exc_info=not isinstance(error, _FAULTS))
                ended = type(error)
            await asyncio.sleep(_AGAIN)


async def _prepare(engine: Postgres) -> str:
    """Make the queue's tables if they are not there. Gives their schema's name."""
    async with await psycopg.AsyncConnection.connect(engine.target) as connection:
        await connection.execute("SET LOCAL lock_timeout = '60s'")
        await connection.execute(DIALECT.lock or "")
        found = await (await connection.execute("SELECT current_schema()")).fetchone()
        ours = str(found[0]) if found else "public"
        release = "_".join(procrastinate.__version__.split(".")[:2])
        schema = f"{'thinkgate' if ours == 'public' else ours}_queue_{release}"
        there = await (await connection.execute("SELECT to_regclass(%s)", (f'"{schema}".procrastinate_jobs',))).fetchone()
        if there is None or there[0] is None:
            await connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(psycopg.sql.Identifier(schema)))
            await connection.execute(psycopg.sql.SQL("SET LOCAL search_path = {}").format(psycopg.sql.Identifier(schema)))
            await connection.execute(SchemaManager.get_schema())
    return schema
