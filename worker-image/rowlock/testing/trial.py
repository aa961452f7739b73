"""One run of an agent, by real workers on a store in memory, each of which may die."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowlock import options as run_options
from rowlock.agents.protocol import Agent
from rowlock.engine.board import Board
from rowlock.engine.claimer import Claimer
from rowlock.engine.prepared import Surroundings
from rowlock.engine.runner import Runner
from rowlock.engine.trust import Trust
from rowlock.engine.writer import Writer
from rowlock.metrics import Tally
from rowlock.options import RunOptions
from rowlock.states import Decision, EventKind, FenceReason, FinalStatus, Place
from rowlock.store.bodies import unpack
from rowlock.store.types import Approval, Event, NewRun, NewWorker, PoolId, RunId, WorkerId
from rowlock.testing.clock import StillClock
from rowlock.testing.points import CrashAt, names
from rowlock.testing.process import Died, Process
from rowlock.testing.store import MemoryStore
from rowlock.testing.store.tables import Ended
from rowlock.testing.watching import (
    PARK_SECONDS,
    Threads,
    Watch,
    WatchedAgent,
    WatchedDesk,
    WatchedSink,
)

_LARGEST_BODY = 16 * 2**20
_LEASE_SECONDS = 15.0
#: No beat comes here, so the worker is sure of its lease for as long as a test takes.
_SURE_NS = 10**15


class NeverReached(AssertionError):
    """The run ended, or waits, and its worker never came to the point at which it was to die."""


@dataclass(frozen=True, slots=True)
class Life:
    """What one worker did.

    Parameters
    ----------
    crashed_at
        Where it died; None for one that was still alive when the run had ended.
    begun
        Keys of the steps that it began to do, in their order; replayed ones are not among them.
    """

    worker: str
    crashed_at: CrashAt | None
    begun: tuple[str, ...]


@dataclass(slots=True)
class Trial:
    """One run, from worker to worker; made by `Trial.begin`.

    Attributes
    ----------
    store
        Holds the run, and can be asked like the real one.
    lives
        What each worker did, in their order.
    """

    agent: Agent
    store: MemoryStore
    clock: StillClock
    run_id: RunId
    pool: PoolId
    lives: list[Life] = field(default_factory=list)
    _lost: list[WorkerId] = field(default_factory=list)

    @classmethod
    async def begin(
        cls,
        agent: Agent,
        value: Any = None,
        *,
        options: RunOptions | None = None,
        max_takeovers: int = 5,
        linked: bool = False,
    ) -> Trial:
        """Return a trial whose run waits in the queue.

        Parameters
        ----------
        value
            The input, as decoded from JSON.
        linked
            The run belongs to a custom resource, so that `store.unshown` tells its transitions.
        """
        clock = StillClock()
        store = MemoryStore(clock)
        pool = await store.ensure_pool(namespace="", name="default")
        agent_id, revision_id = await store.ensure_agent(
            namespace="", name=agent.name, entrypoint=agent.name, spec=b"{}", digest="1"
        )
        new = NewRun(
            agent_id,
            revision_id,
            pool,
            msgspec.json.encode(value),
            options=run_options.encode(options or RunOptions()),
            max_takeovers=max_takeovers,
            cluster="test" if linked else None,
            uid="1" if linked else None,
            name="trial" if linked else "",
        )
        [accepted] = await store.enqueue([new])
        return cls(agent, store, clock, accepted.run_id, pool)

    async def run(self, *, crash_at: CrashAt | None = None) -> Life:
        """Let a new worker run it until it ends, waits for a person, or the worker dies.

        What a dead worker held is taken over, and all other waits pass at once.

        Raises
        ------
        NeverReached
            The run ended, or waits, without coming to `crash_at`.
        """
        name = f"worker-{len(self.lives) + 1}"
        await self._bury()
        process = Process()
        watch = Watch(process, crash_at)
        with contextlib.suppress(Died):
            await process.run(self._serve(name, watch))
        life = Life(name, crash_at if process.dead else None, tuple(watch.begun))
        self.lives.append(life)
        if crash_at is not None and not process.dead:
            raise NeverReached(f"the run ended, or waits, without coming to {crash_at}")
        return life

    async def decide(
        self, step: str, *, approved: bool = True, by: str = "somebody", reason: str = ""
    ) -> None:
        """Answer the open question about a step, given by its key or its name; then `run` again.

        Raises
        ------
        LookupError
            There is no such question.
        """
        for question in await self.questions():
            if names(step, question.step_key):
                await self.store.decide(
                    self.run_id,
                    step_key=question.step_key,
                    digest=question.digest,
                    attempt=question.attempt,
                    decision=Decision.APPROVED if approved else Decision.DENIED,
                    by=by,
                    reason=reason,
                )
                return
        raise LookupError(f"there is no open question about {step!r}")

    # ------------------------------------------------------------ looking

    async def questions(self) -> list[Approval]:
        """Return what a person is asked now."""
        return await self.store.pending_approvals(self.run_id)

    @property
    def ends(self) -> list[Ended]:
        """How its attempts ended so far, the first one first."""
        finals = self.store.tables.finals.get(self.run_id, {})
        return [final for _, final in sorted(finals.items())]

    @property
    def final(self) -> Ended | None:
        """How the run ended; None while it has not."""
        return None if self.run_id in self.store.tables.live else self.ends[-1]

    @property
    def history(self) -> list[Event]:
        """All its events, by their number."""
        stored = self.store.tables.events.get(self.run_id, {})
        return [event for _, (event, _) in sorted(stored.items())]

    @property
    def steps(self) -> list[str]:
        """Keys of the steps that have finished, in the order in which they did."""
        return [x.key for x in self.history if x.kind is EventKind.STEP_DONE and x.key is not None]

    @property
    def takeovers(self) -> int:
        """How often it lost its worker."""
        live = self.store.tables.live.get(self.run_id)
        return live.takeovers if live else self.ends[-1].takeovers

    @property
    def result(self) -> Any:
        """What the agent returned, decoded from JSON.

        Raises
        ------
        AssertionError
            It has not ended, or not well.
        """
        final = self.final
        if final is None or final.status is not FinalStatus.SUCCEEDED or final.result is None:
            how = f"{final.status.name}: {final.reason}: {final.message}" if final else "not over"
            raise AssertionError(f"The run has no result, it is {how}.")
        return msgspec.json.decode(unpack(final.result))

    # ------------------------------------------------------------ one worker

    async def _bury(self) -> None:
        """Do what a supervisor does about workers that died."""
        await self.store.fence(self._lost, reason=FenceReason.WORKER_DIED)
        self._lost.clear()

    async def _serve(self, name: str, watch: Watch) -> None:
        """Be the processes of one worker: another one whenever the run must be, or was, alone."""
        while await self._wake():
            alone = self._alone()
            new = NewWorker(
                self.pool, f"{name}/0", name, 1, "test", _LEASE_SECONDS, quarantine=alone
            )
            [worker] = await self.store.register([new])
            self._lost.append(worker)
            await self._live(WatchedDesk(self.store, worker, self.pool, watch, alone), name)
            await self.store.leave(worker)
            self._lost.remove(worker)

    async def _live(self, desk: WatchedDesk, name: str) -> None:
        watch = desk.watch
        tally, board = Tally(), Board.create()
        board.accepted(time.monotonic_ns() + _SURE_NS)
        writer = Writer(clock=self.clock, tally=tally, on_fenced=lambda: None)
        agent = WatchedAgent(self.agent, watch, self.clock)
        around = Surroundings(
            name=name,
            writer=writer,
            trust=Trust(board, lease_seconds=_LEASE_SECONDS),
            board=board,
            tally=tally,
            clock=self.clock,
            load=lambda _: agent,
            executors=Threads(),
            max_result_bytes=_LARGEST_BODY,
            park_seconds=PARK_SECONDS,
        )
        free = asyncio.Event()
        runner = Runner(around, slots=1, on_free=lambda _: free.set())
        claimer = Claimer(
            desk,
            runner,
            lag=lambda: 0.0,
            clock=self.clock,
            tally=tally,
            on_fenced=lambda: None,
        )
        writing = asyncio.create_task(writer.run(WatchedSink(self.store, desk.worker, watch)))
        while await self._wake() and self._alone() is desk.quarantine:
            free.clear()
            report = await claimer.run_once()
            if not report.got:
                raise AssertionError(f"The run cannot be claimed: {self._stand()}.")
            await free.wait()
        writer.close()
        await writing
        board.close()

    async def _wake(self) -> bool:
        """Let the time pass that the run waits; return whether a worker may have it then."""
        live = self.store.tables.live.get(self.run_id)
        if live is None:
            return False
        if live.place in (Place.TIMER, Place.PARKED):
            if live.due_at is None:
                return False
            self.clock.advance(max(0.0, (live.due_at - self.store.tables.now()).total_seconds()))
            await self.store.wake_due()
            await self.store.wake_parked()
        return True

    def _alone(self) -> bool:
        """Tell whether only a process of quarantine may have the run."""
        live = self.store.tables.live.get(self.run_id)
        return live is not None and live.quarantined

    def _stand(self) -> str:
        live = self.store.tables.live.get(self.run_id)
        return f"it stands in {live.place}" if live else "it has ended"
