"""What a worker and a client need of the store, whichever it is.

Two stores keep this contract: `rowlock.store.postgres.PostgresStore`, which is the real one,
and `rowlock.testing.MemoryStore`, for tests. One suite (tests/integration/store/conformance)
holds both to it, for calls that follow each other; how calls race is PostgreSQL's own matter.

Each method does what the function of its name in `rowlock.store` says, where also the errors stand:
`intake` and `queue`, `caps`, `work`, `parking`, `approvals`, `redrive`, `workers`, `changes`.
Each may be repeated after an unknown commit: the answer then says what the first try had done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

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


class Store(Protocol):
    """Queue, leases, history and results of runs."""

    # ------------------------------------------------------------ what comes in

    async def ensure_pool(self, *, namespace: str, name: str) -> PoolId:
        """Return the id of a pool, made now if it is new."""
        ...

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
        ...

    async def enqueue(self, runs: Sequence[NewRun]) -> list[Enqueued]:
        """Accept runs, each once, and say for each what became of it."""
        ...

    async def request_cancel(
        self, run_ids: Sequence[RunId], *, by: str, reason: str | None = None
    ) -> list[RunId]:
        """Wish that runs end; return those that are final now."""
        ...

    # ------------------------------------------------------------ what nobody holds

    async def cancel_waiting(self) -> list[RunId]:
        """Carry out the wishes to cancel runs that no worker holds; return those that ended."""
        ...

    async def expire_queued(self) -> list[RunId]:
        """Fail the runs that no worker took before their queue deadline; return them."""
        ...

    async def wake_due(self, limit: int = 500) -> int:
        """Put up to `limit` runs whose timer is due back into the queue; return how many."""
        ...

    async def alone_waiting(self, pool: PoolId, /) -> tuple[int, int]:
        """Return how many quarantined runs wait, and how many processes are free for them."""
        ...

    async def set_caps(self, agent: AgentId, caps: Caps, /) -> None:
        """Give an agent these caps."""
        ...

    async def promote(self, agent: AgentId) -> int:
        """Promote all runs of an agent that may start; return how many."""
        ...

    async def promote_waiting(self) -> int:
        """Promote what may start of every agent; return how many runs."""
        ...

    # ------------------------------------------------------------ what a worker does with runs

    async def claim(
        self, *, worker: WorkerId, pool: PoolId, token: int, limit: int
    ) -> list[Claimed] | None:
        """Lease up to `limit` runs, the most urgent first; None if this worker is fenced."""
        ...

    async def claim_alone(
        self, *, worker: WorkerId, pool: PoolId, token: int
    ) -> list[Claimed] | None:
        """Lease one quarantined run to a process of quarantine that holds none; else as `claim`."""
        ...

    async def adopt(
        self, *, worker: WorkerId, token: int, known: Collection[RunId]
    ) -> list[Claimed] | None:
        """Return the leases that a claim without an answer may have left; None if fenced."""
        ...

    async def bodies(self, run_ids: Collection[RunId]) -> dict[RunId, RunBody]:
        """Read input and options of runs."""
        ...

    async def history(self, run_id: RunId) -> list[Event]:
        """Read all events of a run, by their number."""
        ...

    async def revision(self, revision_id: RevisionId) -> tuple[str, bytes, str, str] | None:
        """Return entry point, spec, agent's name and digest of a revision."""
        ...

    async def append(self, *, worker: WorkerId, events: Sequence[Event]) -> Flushed:
        """Write events; those of lost runs are left out and named."""
        ...

    async def finish(
        self, *, worker: WorkerId, events: Sequence[Event], finals: Sequence[Final]
    ) -> Flushed:
        """Write events and ends of attempts together: for each run all of it, or nothing."""
        ...

    async def release(
        self, *, worker: WorkerId, runs: Sequence[tuple[RunId, int, int]]
    ) -> dict[RunId, Verdict]:
        """Give runs back to the queue, each a (run, epoch, milliseconds active in all)."""
        ...

    async def park(self, *, worker: WorkerId, runs: Sequence[Parked]) -> dict[RunId, Verdict]:
        """Let runs wait without a worker, and ask their questions."""
        ...

    # ------------------------------------------------------------ what waits, and for whom

    async def wake_parked(self, limit: int = 500) -> int:
        """Put up to `limit` runs whose wait is over back into the queue; return how many."""
        ...

    async def request_suspend(
        self, run_ids: Sequence[RunId], *, by: str, reason: str | None = None
    ) -> list[RunId]:
        """Wish that runs wait until somebody continues them; return those that do by now."""
        ...

    async def suspend_waiting(self) -> list[RunId]:
        """Carry out the wishes to suspend of runs that no worker holds; return these runs."""
        ...

    async def request_continue(
        self, run_ids: Sequence[RunId], *, asked_by: str | None = None
    ) -> list[RunId]:
        """Take the wish to suspend runs back; return those that were suspended or about to be."""
        ...

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
        ...

    async def expire_approvals(self, limit: int = 500) -> list[RunId]:
        """Answer up to `limit` questions whose time is over; return their runs."""
        ...

    async def pending_approvals(
        self, run_id: RunId | None = None, *, limit: int = 1000
    ) -> list[Approval]:
        """Return up to `limit` open questions of a run, or of all runs, the oldest first."""
        ...

    async def answers(self, run_id: RunId) -> list[Answer]:
        """Return all answers to a run's questions, those of earlier attempts first."""
        ...

    async def redrive(self, run_id: RunId, *, by: str, attempt: int | None = None) -> Redriving:
        """Queue the attempt after a run's last one."""
        ...

    async def redrive_once(self, run_id: RunId, *, by: str) -> Redriving:
        """Do what `redrive` does, unless `by` has asked for an attempt of this run before."""
        ...

    # ------------------------------------------------------------ workers

    async def register(self, workers: Sequence[NewWorker], /) -> list[WorkerId]:
        """Register processes and return their ids in the same order."""
        ...

    async def beat(self, beats: Sequence[Beat]) -> set[WorkerId]:
        """Renew leases; a worker missing in the answer is fenced or unknown."""
        ...

    async def wishes(self, workers: Collection[WorkerId], /) -> list[Wish]:
        """Return what was asked of the runs that these workers hold."""
        ...

    async def fence(
        self,
        workers: Collection[WorkerId],
        /,
        *,
        reason: FenceReason,
        on_loop: Mapping[WorkerId, RunId] | None = None,
    ) -> Fenced:
        """Fence workers that are known to be dead, and move their runs.

        `on_loop` tells whose code each one's event loop executed, where that is known.
        """
        ...

    async def fence_instance(
        self, *, instance: str, except_ids: Collection[WorkerId] = ()
    ) -> Fenced:
        """Fence the earlier boots of a container or laptop worker."""
        ...

    async def fence_pods(self, pod_uids: Collection[str], *, reason: FenceReason) -> Fenced:
        """Fence all workers of these pods."""
        ...

    async def leave(self, worker: WorkerId) -> Fenced:
        """End a worker gracefully: what it still holds is handed over."""
        ...

    async def reap(self, *, gap_seconds: float) -> Reaped:
        """Fence the workers that were silent for longer than their lease."""
        ...

    # ------------------------------------------------------------ what others are shown

    async def unshown(self, *, limit: int, after: int = 0) -> list[Change]:
        """Return up to `limit` changes that nobody has shown, by their number."""
        ...

    async def shown(self, seqs: Sequence[int]) -> None:
        """Forget exactly these changes."""
        ...

    async def snapshots(self, run_ids: Collection[RunId]) -> dict[RunId, RunSnapshot]:
        """Return all that a status shows of each of these runs that is linked."""
        ...

    async def pool_demand(self) -> list[PoolDemand]:
        """Return what every pool has to do and who does it."""
        ...
