"""The two stores, each with the same few ways to look inside."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

from rowlock.states import ChangeKind, EventKind, FenceReason, FinalStatus, Place, WishKind
from rowlock.store.caps import Caps
from rowlock.store.contract import Store
from rowlock.store.postgres import PostgresStore
from rowlock.store.types import (
    AgentId,
    Beat,
    Carry,
    Claimed,
    Event,
    Fenced,
    Final,
    NewRun,
    NewWorker,
    PoolId,
    RevisionId,
    RunId,
    WorkerId,
)
from rowlock.store.work import carries
from rowlock.testing import StillClock
from rowlock.testing.store import MemoryStore
from tests.integration.store.world import World


@dataclass(frozen=True)
class Stand:
    """Where a run stands that has not ended."""

    place: Place
    epoch: int
    attempt: int
    takeovers: int
    holder: WorkerId | None
    blamed: int = 0
    suspected: int = 0
    quarantined: bool = False


@dataclass(frozen=True)
class Ended:
    """How an attempt ended."""

    attempt: int
    epoch: int
    status: FinalStatus
    reason: str | None
    message: str | None
    outcome: str | None
    step: int | None
    worker: str | None
    takeovers: int


ENDED = tuple(field.name for field in fields(Ended))


class Subject(ABC):
    """A store with a pool and an agent, and nothing in its queue."""

    store: Store
    pool: PoolId
    agent: AgentId
    revision: RevisionId

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def prepare(self) -> None:
        self.pool = await self.store.ensure_pool(namespace="team", name="default")
        self.agent, self.revision = await self.another_agent("support")

    async def another_agent(self, name: str) -> tuple[AgentId, RevisionId]:
        return await self.store.ensure_agent(
            namespace="team", name=name, entrypoint="m:a", spec=b"{}", digest="d1"
        )

    async def another_pool(self) -> PoolId:
        return await self.store.ensure_pool(namespace="team", name="gpu")

    # ---------------------------------------------------------------- doing

    @abstractmethod
    async def later(self, seconds: float) -> None:
        """Let time pass for the store."""

    def new(self, count: int = 1, *, linked: bool = False, **fields: Any) -> list[NewRun]:
        return [self._one(linked=linked, given=fields) for _ in range(count)]

    def _one(self, *, linked: bool, given: dict[str, Any]) -> NewRun:
        number = next(self._numbers)
        plain: dict[str, Any] = {"pool_id": self.pool, "input": b'"hello"'}
        plain |= {"agent_id": self.agent, "revision_id": self.revision}
        if linked:
            plain |= {"cluster": "c", "uid": f"uid-{number:06}", "generation": 1}
            plain |= {"namespace": "team", "name": f"run-{number}"}
        return NewRun(**(plain | given))

    async def enqueue(self, count: int = 1, **fields: Any) -> list[RunId]:
        return [a.run_id for a in await self.store.enqueue(self.new(count, **fields))]

    async def worker(
        self,
        *,
        instance: str | None = None,
        pod: str | None = None,
        lease: float = 15.0,
        quarantine: bool = False,
    ) -> WorkerId:
        number = next(self._numbers)
        new = NewWorker(
            self.pool,
            instance or f"host-{number}/0",
            f"worker-{number}",
            number,
            "b1",
            lease,
            pod,
            quarantine=quarantine,
        )
        return (await self.store.register([new]))[0]

    def token(self) -> int:
        return next(self._numbers)

    async def claim(self, worker: WorkerId, limit: int = 1000) -> list[Claimed]:
        found = await self.store.claim(
            worker=worker, pool=self.pool, token=self.token(), limit=limit
        )
        assert found is not None, "the worker is fenced"
        return found

    async def claim_alone(self, worker: WorkerId | None = None) -> list[Claimed]:
        """Claim as a process of quarantine does."""
        worker = worker or await self.worker(quarantine=True)
        token = self.token()
        found = await self.store.claim_alone(worker=worker, pool=self.pool, token=token)
        assert found is not None, "the worker is fenced"
        return found

    async def die(
        self,
        worker: WorkerId,
        on_loop: RunId | None = None,
        *,
        reason: FenceReason = FenceReason.WORKER_DIED,
    ) -> Fenced:
        """Let a worker end with the code of `on_loop` on its event loop."""
        seen = {} if on_loop is None else {worker: on_loop}
        return await self.store.fence([worker], reason=reason, on_loop=seen)

    async def suspects(self, count: int = 2, **fields: Any) -> list[RunId]:
        """Return runs that two processes died with, nobody knows why; one alone is to blame."""
        runs = await self.enqueue(count, **fields)
        for _ in range(2):
            worker = await self.worker()
            assert len(await self.claim(worker)) == count
            await self.die(worker)
        return runs

    async def claim_one(self, worker: WorkerId | None = None) -> Claimed:
        """Claim the most urgent run."""
        [run] = await self.claim(worker or await self.worker(), 1)
        return run

    async def order(self, worker: WorkerId | None = None) -> list[RunId]:
        """Claim everything, one by one."""
        worker = worker or await self.worker()
        return [run.run_id for _ in range(1000) for run in await self.claim(worker, 1)]

    async def running(
        self, count: int = 1, *, worker: WorkerId | None = None, **fields: Any
    ) -> tuple[WorkerId, list[Claimed]]:
        worker = worker or await self.worker()
        await self.enqueue(count, **fields)
        return worker, await self.claim(worker)

    async def beat(self, *workers: WorkerId) -> set[WorkerId]:
        return await self.store.beat([Beat(one, 16, 0, 0, draining=False) for one in workers])

    async def cap(self, **limits: int) -> None:
        await self.store.set_caps(self.agent, Caps(**limits))

    async def end(self, worker: WorkerId, run: Claimed, **fields: Any) -> Any:
        finals = [end(run, **fields)]
        return await self.store.finish(worker=worker, events=[], finals=finals)

    # ---------------------------------------------------------------- looking

    @abstractmethod
    async def stands(self) -> dict[RunId, Stand]:
        """Return where each run stands that has not ended."""

    @abstractmethod
    async def all_ends(self) -> dict[RunId, list[Ended]]:
        """Return how the attempts of each run ended."""

    @abstractmethod
    async def carried(self) -> dict[RunId, tuple[Carry, ...]]:
        """Return what each run carries for its next owner, where there is anything."""

    @abstractmethod
    async def wished(self) -> set[tuple[RunId, WishKind]]:
        """Return all wishes."""

    @abstractmethod
    async def due_in(self, run: RunId) -> float:
        """Return the seconds until a run's timer is due."""

    @abstractmethod
    async def sound(self) -> None:
        """Assert that no invariant is broken."""

    async def stand(self, run: RunId) -> Stand | None:
        return (await self.stands()).get(run)

    async def ends(self, run: RunId) -> list[Ended]:
        return (await self.all_ends()).get(run, [])

    async def place(self, run: RunId) -> Place:
        stand = await self.stand(run)
        return stand.place if stand else Place.FINAL

    async def places(self, runs: list[RunId]) -> list[Place]:
        return [await self.place(run) for run in runs]

    async def kinds(self, run: RunId) -> list[ChangeKind]:
        """Return the kinds of a run's changes that nobody has shown."""
        return [x.kind for x in await self.store.unshown(limit=10_000) if x.run_id == run]


class PostgresSubject(Subject):
    """The real one."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.store = PostgresStore(world.store)

    async def later(self, seconds: float) -> None:
        await self.world.later(seconds)

    async def stands(self) -> dict[RunId, Stand]:
        rows = await self.world.sql(
            "SELECT run_id, place, epoch, attempt, takeovers, worker_id, blamed, suspected,"
            " quarantined FROM rowlock.run_live"
        )
        found = {RunId(row[0]): Stand(Place(row[1]), *row[2:]) for row in rows}
        assert len(found) == len(rows), "a run stands in two places"
        return found

    async def all_ends(self) -> dict[RunId, list[Ended]]:
        rows = await self.world.sql(
            "SELECT run_id, attempt, epoch, status, reason, message, outcome, step, worker,"
            " takeovers FROM rowlock.run_final ORDER BY attempt"
        )
        found: dict[RunId, list[Ended]] = {}
        for row in rows:
            end = Ended(row[1], row[2], FinalStatus(row[3]), *row[4:])
            found.setdefault(RunId(row[0]), []).append(end)
        return found

    async def carried(self) -> dict[RunId, tuple[Carry, ...]]:
        rows = await self.world.sql("SELECT run_id, carry FROM rowlock.run_live")
        return {RunId(row[0]): carries(row[1]) for row in rows if row[1]}

    async def wished(self) -> set[tuple[RunId, WishKind]]:
        rows = await self.world.sql("SELECT run_id, kind FROM rowlock.wish")
        return {(RunId(row[0]), WishKind(row[1])) for row in rows}

    async def due_in(self, run: RunId) -> float:
        return float(
            await self.world.value(
                "SELECT extract(epoch FROM due_at - rowlock.now()) FROM rowlock.run_timer"
                " WHERE run_id = $1",
                run,
            )
        )

    async def sound(self) -> None:
        await self.world.sound()


class MemorySubject(Subject):
    """The one for tests."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = StillClock()
        self.store = self.memory = MemoryStore(self.clock)

    async def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def stands(self) -> dict[RunId, Stand]:
        return {
            run: Stand(
                row.place, row.epoch, row.attempt, row.takeovers, row.worker_id,
                row.blamed, row.suspected, row.quarantined,
            )
            for run, row in self.memory.tables.live.items()
        }  # fmt: skip

    async def all_ends(self) -> dict[RunId, list[Ended]]:
        return {
            run: [Ended(*(getattr(x, field) for field in ENDED)) for _, x in sorted(finals.items())]
            for run, finals in self.memory.tables.finals.items()
        }

    async def carried(self) -> dict[RunId, tuple[Carry, ...]]:
        return {run: row.carry for run, row in self.memory.tables.live.items() if row.carry}

    async def wished(self) -> set[tuple[RunId, WishKind]]:
        return set(self.memory.tables.wishes)

    async def due_in(self, run: RunId) -> float:
        due_at = self.memory.tables.live[run].due_at
        assert due_at is not None
        return (due_at - self.memory.tables.now()).total_seconds()

    async def sound(self) -> None:
        assert self.memory.tables.violations() == []


def step(
    run: Claimed, seq: int, *, kind: EventKind = EventKind.STEP_DONE, body: bytes = b"1"
) -> Event:
    return Event(run.run_id, seq, run.epoch, run.attempt, kind, "step", 1, 5, body)


def end(run: Claimed, status: FinalStatus = FinalStatus.SUCCEEDED, **fields: Any) -> Final:
    return Final(run.run_id, run.epoch, status, **fields)


def retry(run: Claimed, seconds: float = 30.0) -> Final:
    return end(
        run, FinalStatus.FAILED, reason="AgentError", message="it broke", retry_in_seconds=seconds
    )
