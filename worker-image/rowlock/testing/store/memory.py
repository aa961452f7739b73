"""`MemoryStore`: the store's methods, each done at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rowlock.clock import Clock
from rowlock.states import Decision, FenceReason
from rowlock.store.caps import Caps
from rowlock.store.types import (
    AgentId,
    Answer,
    Approval,
    Beat,
    Change,
    Claimed,
    Decided,
    Enqueued,
    Event,
    Fenced,
    Final,
    Flushed,
    NewRun,
    NewWorker,
    Parked,
    PoolDemand,
    PoolId,
    Reaped,
    Redriving,
    RevisionId,
    RunBody,
    RunId,
    RunSnapshot,
    Verdict,
    Wish,
    WorkerId,
)
from rowlock.testing.clock import StillClock
from rowlock.testing.store import (
    approvals,
    caps,
    changes,
    intake,
    parking,
    queue,
    redrive,
    work,
    workers,
)
from rowlock.testing.store.rows import storable_run
from rowlock.testing.store.tables import Agent, Tables


class MemoryStore:
    """`rowlock.store.contract.Store` in memory, the same for the same sequence of calls.

    Parameters
    ----------
    clock
        Leases, timers and deadlines are judged by it; by default one that stands still
        until `clock.advance` moves it.

    Attributes
    ----------
    tables
        All rows, to look at.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or StillClock()
        self.tables = Tables(self.clock)

    # ------------------------------------------------------------ what comes in

    async def ensure_pool(self, *, namespace: str, name: str) -> PoolId:
        """Return the id of a pool, made now if it is new."""
        return intake.ensure_pool(self.tables, namespace, name)

    async def ensure_agent(
        self,
        *,
        namespace: str,
        name: str,
        entrypoint: str,
        spec: bytes,
        digest: str,
        max_running: int | None = None,
        max_running_per_key: int | None = None,
        starts_per_minute_per_key: int | None = None,
    ) -> tuple[AgentId, RevisionId]:
        """Return the ids of an agent and of its revision, made now if they are new."""
        limits = Caps(max_running, max_running_per_key, starts_per_minute_per_key)
        agent = Agent(namespace, name, limits)
        return intake.ensure_agent(self.tables, agent, (digest, entrypoint, spec))

    async def enqueue(self, runs: Sequence[NewRun]) -> list[Enqueued]:
        """Accept runs, each once, and say for each what became of it."""
        for new in runs:
            storable_run(new)
        return intake.enqueue(self.tables, runs)

    async def request_cancel(
        self, run_ids: Sequence[RunId], *, by: str, reason: str | None = None
    ) -> list[RunId]:
        """Wish that runs end; return those that are final now."""
        return queue.request_cancel(self.tables, run_ids, by, reason)

    # ------------------------------------------------------------ what nobody holds

    async def cancel_waiting(self) -> list[RunId]:
        """Carry out the wishes to cancel runs that no worker holds; return those that ended."""
        return queue.cancel_waiting(self.tables)

    async def expire_queued(self) -> list[RunId]:
        """Fail the runs that no worker took before their queue deadline; return them."""
        return queue.expire_queued(self.tables)

    async def wake_due(self, limit: int = 500) -> int:
        """Put up to `limit` runs whose timer is due back into the queue; return how many."""
        return queue.wake_due(self.tables, limit)

    async def alone_waiting(self, pool: PoolId, /) -> tuple[int, int]:
        """Return how many quarantined runs wait, and how many processes are free for them."""
        return queue.alone_waiting(self.tables, pool)

    async def set_caps(self, agent: AgentId, caps_: Caps, /) -> None:
        """Give an agent these caps."""
        caps.set_caps(self.tables, agent, caps_)

    async def promote(self, agent: AgentId) -> int:
        """Promote all runs of an agent that may start; return how many."""
        return caps.promote(self.tables, agent)

    async def promote_waiting(self) -> int:
        """Promote what may start of every agent; return how many runs."""
        return caps.promote_waiting(self.tables)

    # ------------------------------------------------------------ what a worker does with runs

    async def claim(
        self, *, worker: WorkerId, pool: PoolId, token: int, limit: int
    ) -> list[Claimed] | None:
        """Lease up to `limit` runs, the most urgent first; None if this worker is fenced."""
        return work.claim(self.tables, worker, pool, token, limit)

    async def claim_alone(
        self, *, worker: WorkerId, pool: PoolId, token: int
    ) -> list[Claimed] | None:
        """Lease one quarantined run to a process of quarantine that holds none; else as `claim`."""
        return work.claim_alone(self.tables, worker, pool, token)

    async def adopt(
        self, *, worker: WorkerId, token: int, known: Collection[RunId]
    ) -> list[Claimed] | None:
        """Return the leases that a claim without an answer may have left; None if fenced."""
        return work.adopt(self.tables, worker, token, known)

    async def bodies(self, run_ids: Collection[RunId]) -> dict[RunId, RunBody]:
        """Read input and options of runs."""
        runs = self.tables.runs
        return {
            run: RunBody(run, runs[run].new.input, runs[run].new.options)
            for run in run_ids
            if run in runs
        }

    async def history(self, run_id: RunId) -> list[Event]:
        """Read all events of a run, by their number."""
        return work.history(self.tables, run_id)

    async def revision(self, revision_id: RevisionId) -> tuple[str, bytes, str, str] | None:
        """Return entry point, spec, agent's name and digest of a revision."""
        found = self.tables.revisions.get(revision_id)
        if found is None:
            return None
        name = self.tables.agents[found.agent_id].name
        return (found.entrypoint, found.spec, name, found.digest)

    async def append(self, *, worker: WorkerId, events: Sequence[Event]) -> Flushed:
        """Write events; those of lost runs are left out and named."""
        return work.append(self.tables, worker, events)

    async def finish(
        self, *, worker: WorkerId, events: Sequence[Event], finals: Sequence[Final]
    ) -> Flushed:
        """Write events and ends of attempts together: for each run all of it, or nothing."""
        return work.finish(self.tables, worker, events, finals)

    async def release(
        self, *, worker: WorkerId, runs: Sequence[tuple[RunId, int, int]]
    ) -> dict[RunId, Verdict]:
        """Give runs back to the queue, each a (run, epoch, milliseconds active in all)."""
        return work.release(self.tables, worker, runs)

    async def park(self, *, worker: WorkerId, runs: Sequence[Parked]) -> dict[RunId, Verdict]:
        """Let runs wait without a worker, and ask their questions."""
        return parking.park(self.tables, worker, runs)

    # ------------------------------------------------------------ what waits, and for whom

    async def wake_parked(self, limit: int = 500) -> int:
        """Put up to `limit` runs whose wait is over back into the queue; return how many."""
        return parking.wake_parked(self.tables, limit)

    async def request_suspend(
        self, run_ids: Sequence[RunId], *, by: str, reason: str | None = None
    ) -> list[RunId]:
        """Wish that runs wait until somebody continues them; return those that do by now."""
        return parking.request_suspend(self.tables, run_ids, by, reason)

    async def suspend_waiting(self) -> list[RunId]:
        """Carry out the wishes to suspend of runs that no worker holds; return these runs."""
        return parking.suspend_waiting(self.tables)

    async def request_continue(
        self, run_ids: Sequence[RunId], *, asked_by: str | None = None
    ) -> list[RunId]:
        """Take the wish to suspend runs back; return those that were suspended or about to be."""
        return parking.request_continue(self.tables, run_ids, asked_by)

    async def decide(
        self,
        run_id: RunId,
        *,
        step_key: str,
        digest: str,
        attempt: int,
        decision: Decision,
        by: str,
        reason: str = "",
    ) -> Decided:
        """Answer an open question; the first answer stands."""
        given = Answer(step_key, digest, attempt, decision, by, reason)
        return approvals.decide(self.tables, run_id, given)

    async def expire_approvals(self, limit: int = 500) -> list[RunId]:
        """Answer up to `limit` questions whose time is over; return their runs."""
        return approvals.expire(self.tables, limit)

    async def pending_approvals(
        self, run_id: RunId | None = None, *, limit: int = 1000
    ) -> list[Approval]:
        """Return up to `limit` open questions of a run, or of all runs, the oldest first."""
        return approvals.pending(self.tables, run_id, limit)

    async def answers(self, run_id: RunId) -> list[Answer]:
        """Return all answers to a run's questions, those of earlier attempts first."""
        return approvals.answers(self.tables, run_id)

    async def redrive(self, run_id: RunId, *, by: str, attempt: int | None = None) -> Redriving:
        """Queue the attempt after a run's last one."""
        return redrive.redrive(self.tables, run_id, by, attempt)

    async def redrive_once(self, run_id: RunId, *, by: str) -> Redriving:
        """Do what `redrive` does, unless `by` has asked for an attempt of this run before."""
        return redrive.redrive_once(self.tables, run_id, by)

    # ------------------------------------------------------------ workers

    async def register(self, workers_: Sequence[NewWorker], /) -> list[WorkerId]:
        """Register processes and return their ids in the same order."""
        return workers.register(self.tables, workers_)

    async def beat(self, beats: Sequence[Beat]) -> set[WorkerId]:
        """Renew leases; a worker missing in the answer is fenced or unknown."""
        return workers.beat(self.tables, beats)

    async def wishes(self, workers_: Collection[WorkerId], /) -> list[Wish]:
        """Return what was asked of the runs that these workers hold."""
        return workers.wishes(self.tables, workers_)

    async def fence(
        self,
        workers_: Collection[WorkerId],
        /,
        *,
        reason: FenceReason,
        on_loop: Mapping[WorkerId, RunId] | None = None,
    ) -> Fenced:
        """Fence workers that are known to be dead, and move their runs.

        `on_loop` tells whose code each one's event loop executed, where that is known.
        """
        return workers.fence(self.tables, workers_, reason, on_loop or {})

    async def fence_instance(
        self, *, instance: str, except_ids: Collection[WorkerId] = ()
    ) -> Fenced:
        """Fence the earlier boots of a container or laptop worker."""
        return workers.fence_instance(self.tables, instance, except_ids)

    async def fence_pods(self, pod_uids: Collection[str], *, reason: FenceReason) -> Fenced:
        """Fence all workers of these pods."""
        return workers.fence_pods(self.tables, pod_uids, reason)

    async def leave(self, worker: WorkerId) -> Fenced:
        """End a worker gracefully: what it still holds is handed over."""
        return workers.fence(self.tables, [worker], FenceReason.LEFT)

    async def reap(self, *, gap_seconds: float) -> Reaped:
        """Fence the workers that were silent for longer than their lease."""
        return workers.reap(self.tables, gap_seconds)

    # ------------------------------------------------------------ what others are shown

    async def unshown(self, *, limit: int, after: int = 0) -> list[Change]:
        """Return up to `limit` changes that nobody has shown, by their number."""
        return changes.unshown(self.tables, limit, after)

    async def shown(self, seqs: Sequence[int]) -> None:
        """Forget exactly these changes."""
        changes.shown(self.tables, seqs)

    async def snapshots(self, run_ids: Collection[RunId]) -> dict[RunId, RunSnapshot]:
        """Return all that a status shows of each of these runs that is linked."""
        return changes.snapshots(self.tables, run_ids)

    async def pool_demand(self) -> list[PoolDemand]:
        """Return what every pool has to do and who does it."""
        return changes.pool_demand(self.tables)
