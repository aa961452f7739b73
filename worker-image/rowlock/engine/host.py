"""Puts the parts of a loop process together, and takes them apart again in the right order.

Leaving has four steps, and each may be the last:
claim nothing more; let each run reach a step boundary; hand over what did not; write the last row.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from rowlock.agents.pressure import PRESSURE
from rowlock.agents.protocol import Agent
from rowlock.clock import Clock, SystemClock
from rowlock.engine.backoff import backoff_seconds
from rowlock.engine.blocked import BlockWatch
from rowlock.engine.board import COMMIT_MS, DRAINING, REFUSED, TRIES, Board, Groups
from rowlock.engine.claimer import Claimer
from rowlock.engine.executors import Executors
from rowlock.engine.frames import Setup
from rowlock.engine.loader import Loader
from rowlock.engine.messages import EXIT_FENCED, EXIT_LEFT, Boot, Report
from rowlock.engine.onloop import tasks_on
from rowlock.engine.prepared import Prepared, Surroundings
from rowlock.engine.probation import Probation
from rowlock.engine.pulse import Pulse
from rowlock.engine.rehearsal import Rehearsal
from rowlock.engine.runner import SWEEP_SECONDS, Runner
from rowlock.engine.statements import ClaimerStatements, WriterStatements
from rowlock.engine.trust import Trust
from rowlock.engine.writer import Writer
from rowlock.errors import StoreUnavailable
from rowlock.metrics import (
    EXECUTORS_BUSY,
    EXECUTORS_WAITING,
    LOOP_LAG,
    RUNNING,
    SLOTS,
    WRITER_OLDEST,
    WRITER_SLOWEST,
    WRITER_WAITING,
    WRITER_WAITING_BYTES,
    Tally,
)
from rowlock.store.connection import COMMAND_SECONDS, Connection
from rowlock.store.types import AgentId, PoolId, RunId, WorkerId

log = structlog.get_logger(__name__)

#: Batches in flight at most.
_WRITERS = 3
#: Blocking functions at once that were asked to run in threads of this process.
_THREADS = 64
#: How long tasks may take to end when the process must leave now.
_LAST_SECONDS = 1.0
_LOOK_SECONDS = 0.02

#: Large histories and results take their time, however short the lease is.
_SHORTEST_ANSWER_SECONDS = 5.0


def answer_seconds(lease_seconds: float) -> float:
    """Return for how long to wait for PostgreSQL's answer before it counts as lost.

    A connection that some firewall has forgotten stays open and silent.
    Runs that were claimed on it must not stand still for longer than a lost worker's would.
    """
    return min(COMMAND_SECONDS, max(_SHORTEST_ANSWER_SECONDS, lease_seconds))


class Host:
    """One loop process.

    Parameters
    ----------
    rehearsal
        What it does beside for somebody who tries an agent out.
    """

    def __init__(
        self,
        boot: Boot,
        board: Board,
        clock: Clock | None = None,
        *,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self._boot = boot
        self._board = board
        self._clock = clock or SystemClock()
        self._tally = Tally()
        self._drain = asyncio.Event()
        self._stop = asyncio.Event()
        self._fence = asyncio.Event()
        self._trust = Trust(board, lease_seconds=boot.lease_seconds)
        self._pulse = Pulse(board, self._trust.tick)
        self._writer = Writer(clock=self._clock, tally=self._tally, on_fenced=self.fenced)
        self._loader = Loader(self._clock)
        self._executors = self._make_executors()
        self._runner = Runner(self._surroundings(rehearsal), slots=boot.slots)
        self._probation = Probation()
        self._capped: frozenset[AgentId] = frozenset()
        self._commits: deque[float] = deque([0.0] * 10, maxlen=10)
        self._claimer: Claimer | None = None
        self._claiming: asyncio.Task[None]

    def _surroundings(self, rehearsal: Rehearsal | None) -> Surroundings:
        around = Surroundings(
            name=self._boot.name,
            writer=self._writer,
            trust=self._trust,
            board=self._board,
            tally=self._tally,
            clock=self._clock,
            load=self._load,
            max_result_bytes=self._boot.max_result_bytes,
            executors=self._executors,
            park_seconds=self._boot.park_seconds,
            build=self._boot.build,
            build_lives=self._build_lives,
        )
        if rehearsal is not None:
            around.journal = rehearsal.journal
        return around

    def _make_executors(self) -> Executors:
        boot = self._boot
        return Executors(
            Setup(boot.index, boot.max_result_bytes, boot.log_format, boot.log_level),
            size=boot.executors,
            max_calls=boot.executor_max_calls,
            groups=Groups(self._board),
            tally=self._tally,
        )

    async def _build_lives(self, build: str) -> bool:
        return self._claimer is not None and await self._claimer.build_lives(build)

    def _load(self, prepared: Prepared) -> Agent:
        return self._loader.load(prepared.claimed.revision_id, prepared.revision.entrypoint)

    def cancel(self, runs: Iterable[tuple[int, str | None]]) -> None:
        """Somebody asked to cancel these runs."""
        for run_id, reason in runs:
            self._runner.cancel(RunId(run_id), reason)

    def capped(self, agents: Iterable[int]) -> None:
        """Only these agents have caps."""
        self._capped = frozenset(map(AgentId, agents))
        if self._claimer:
            self._claimer.capped = self._capped

    def look(self) -> None:
        """There is something to claim."""
        if self._claimer:
            self._claimer.look()

    def suspend(self, runs: Iterable[int]) -> None:
        """Somebody asked to suspend these runs."""
        for run_id in runs:
            self._runner.suspend(RunId(run_id))

    def drain(self) -> None:
        """Leave when each run has reached a step boundary."""
        self._drain.set()

    def stop(self) -> None:
        """Leave now, handing everything over."""
        self._drain.set()
        self._stop.set()

    def fenced(self) -> None:
        """Leave quietly: nothing can be written any more, so no effect may begin either."""
        self._trust.drain()
        self._fence.set()
        self._stop.set()
        self._drain.set()

    async def run(self) -> int:
        """Host runs until told to leave; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(tasks_on(self._board.cells))
        watch = BlockWatch(self._board, threading.get_ident())
        watch.start()
        try:
            return await self._host()
        finally:
            watch.stop()
            loop.set_task_factory(None)
            self._executors.kill()

    async def _host(self) -> int:
        self._pulse.start()
        # asyncio's own choice, cores + 4 threads, would let a few blocking tools hold up all runs.
        threads = ThreadPoolExecutor(min(self._boot.slots, _THREADS), "tool")
        asyncio.get_running_loop().set_default_executor(threads)
        connections = [await self._open(index) for index in range(1 + _WRITERS)]
        claimer = self._claimer = self._make_claimer(connections[0])
        self._claiming = asyncio.create_task(claimer.run())
        writing = [asyncio.create_task(self._write(one)) for one in connections[1:]]
        sweeping = asyncio.create_task(self._sweep())
        await self._until_told(self._claiming, sweeping, *writing)
        claimer.stop()
        self._board.cells[DRAINING] = 1
        code = await self._leave()
        if code == EXIT_LEFT:
            self._writer.close()
            await self._executors.close()
            await asyncio.gather(self._claiming, *writing)
            await asyncio.gather(*(one.close() for one in connections))
        return code

    async def _until_told(self, *parts: asyncio.Task[None]) -> None:
        """Wait for a drain; a part that ends before has met a bug of ours and takes all down.

        Its supervisor then gives its runs to others; half a worker would keep them.
        """
        told = asyncio.create_task(self._drain.wait())
        ended, _ = await asyncio.wait({told, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for part in ended:
            part.result()

    async def _open(self, index: int) -> Connection:
        kind = "claimer" if index == 0 else f"writer {index}"
        name = f"{self._boot.name} {kind}"
        failures = 0
        while True:
            try:
                return await Connection.open(
                    self._boot.database_url,
                    name=name,
                    check_schema=False,
                    command_timeout=answer_seconds(self._boot.lease_seconds),
                )
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("PostgreSQL is away; waiting for it", error=str(error))
                await self._clock.sleep(backoff_seconds(failures))

    def _make_claimer(self, connection: Connection) -> Claimer:
        worker, pool = WorkerId(self._boot.worker_id), PoolId(self._boot.pool_id)
        claimer = Claimer(
            ClaimerStatements(connection, worker, pool, self._boot.quarantine),
            self._runner,
            # Alone in its process, a run makes nobody late but itself.
            lag=(lambda: 0.0) if self._boot.quarantine else self._pulse.recent,
            clock=self._clock,
            tally=self._tally,
            on_fenced=self.fenced,
        )
        claimer.capped = self._capped
        self._runner.on_free = claimer.freed
        return claimer

    async def _write(self, connection: Connection) -> None:
        await self._writer.run(WriterStatements(connection, WorkerId(self._boot.worker_id)))

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            self._runner.sweep()
            if self._probation.over(self._runner.claimed(), self._clock.monotonic()):
                self.drain()

    async def _leave(self) -> int:
        if not self._fence.is_set():
            log.info("Draining", runs=len(self._runner.known()))
            self._runner.drain()
            await self._until(lambda: self._settled() or self._stop.is_set())
        if not self._fence.is_set():
            self._runner.stop()
            await self._within(_LAST_SECONDS, lambda: self._runner.empty)
            self._runner.abandon_all()
            await self._until(lambda: self._settled() or self._fence.is_set())
        if not self._fence.is_set():
            return EXIT_LEFT
        log.warning("This worker is fenced: its runs belong to others now")
        self._runner.lose_all()
        await self._clock.sleep(_LOOK_SECONDS)  # cancelled tasks run their clean-up up to an await
        return EXIT_FENCED

    def _settled(self) -> bool:
        return self._claiming.done() and self._runner.empty and self._writer.empty

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            await self._clock.sleep(_LOOK_SECONDS)

    async def _within(self, seconds: float, done: Callable[[], bool]) -> None:
        until = self._clock.monotonic() + seconds
        await self._until(lambda: done() or self._clock.monotonic() > until)

    def _show_pressure(self, commit_seconds: float) -> None:
        """Show the beats how hard models and PostgreSQL press; half of the last seconds decide."""
        cells, commits = self._board.cells, self._commits
        commits.append(commit_seconds)
        cells[TRIES], cells[REFUSED] = PRESSURE.read(self._clock.monotonic())
        cells[COMMIT_MS] = int(sorted(commits)[len(commits) // 2] * 1000)

    def report(self) -> Report:
        """Return what was counted since the last report, and how things stand."""
        writer = self._writer.state()
        self._show_pressure(max(writer.slowest_batch, writer.oldest_wait))
        return Report(
            counters=self._tally.take(),
            gauges=[
                (RUNNING.name, len(self._runner.known())),
                (SLOTS.name, self._runner.slots),
                (EXECUTORS_BUSY.name, self._executors.busy),
                (EXECUTORS_WAITING.name, self._executors.waiting),
                (LOOP_LAG.name, self._pulse.lag),
                (WRITER_WAITING.name, writer.waiting_rows),
                (WRITER_WAITING_BYTES.name, writer.waiting_bytes),
                (WRITER_OLDEST.name, writer.oldest_wait),
                (WRITER_SLOWEST.name, writer.slowest_batch),
            ],
        )
