"""What the store holds, and the few looks at it that several statements share."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rowlock.clock import Clock
from rowlock.states import FIRST_LIFECYCLE_KIND, ChangeKind, EventKind, FinalStatus, Place, WishKind
from rowlock.store.caps import Caps
from rowlock.store.types import (
    AgentId,
    Answer,
    Beat,
    Carry,
    Change,
    Event,
    NewQuestion,
    NewRun,
    NewWorker,
    PoolId,
    RevisionId,
    RunId,
    WorkerId,
)

#: The day on which the clock of a store begins.
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
#: The place in its line of a run that ran before: it is the first.
FIRST = float("-inf")
#: What a run is shown as again, where it is not just in the queue.
_AGAIN = {
    Place.LEASE: ChangeKind.CLAIMED,
    Place.TIMER: ChangeKind.RETRYING,
    Place.PARKED: ChangeKind.PARKED,
}


@dataclass(slots=True)
class Agent:
    """An agent and what limits it; `turns` is how far its backlog has come, by priority."""

    namespace: str
    name: str
    caps: Caps = field(default_factory=Caps)
    turns: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Revision:
    """What an agent was when a run was accepted."""

    agent_id: AgentId
    digest: str
    entrypoint: str
    spec: bytes


@dataclass(slots=True)
class Run:
    """A run that was accepted; the input's hash only with an idempotency key."""

    new: NewRun
    created_at: datetime
    input_sha: bytes | None


@dataclass(slots=True)
class Live:
    """A run that has not ended, in the one place where it stands."""

    run_id: RunId
    pool_id: PoolId
    agent_id: AgentId
    revision_id: RevisionId
    key: str | None
    priority: int
    max_takeovers: int
    linked: bool
    place: Place
    vft: float
    ready_at: datetime
    epoch: int = 0
    attempt: int = 1
    takeovers: int = 0
    #: How many takeovers are put down to it, and how many processes it may have killed.
    blamed: int = 0
    suspected: int = 0
    quarantined: bool = False
    #: The only build that may go on with it; a pinned run gets that of its first worker.
    build: str | None = None
    pinned: bool = False
    active_ms: int = 0
    revision: int = 0
    queue_deadline: datetime | None = None
    started_at: datetime | None = None
    carry: tuple[Carry, ...] | None = None
    due_at: datetime | None = None
    timer_reason: int | None = None
    worker_id: WorkerId | None = None
    claimed_at: datetime | None = None
    #: What it is parked for; `due_at` is when its first wait is over.
    reasons: tuple[str, ...] = ()

    @property
    def turn(self) -> tuple[int, float, int]:
        """Its place among those that wait where it waits."""
        return (-self.priority, self.vft, self.run_id)

    def stand(self, place: Place, now: datetime) -> None:
        """Move without a worker to where it waits from `now` on."""
        self.place, self.ready_at = place, now
        self.worker_id = self.claimed_at = self.due_at = self.timer_reason = None
        self.reasons = ()


@dataclass(slots=True)
class Ended:
    """The final row of an attempt."""

    run_id: RunId
    attempt: int
    epoch: int
    status: FinalStatus
    takeovers: int
    finished_at: datetime
    reason: str | None = None
    message: str | None = None
    outcome: str | None = None
    step: int | None = None
    worker_id: WorkerId | None = None
    worker: str | None = None
    started_at: datetime | None = None
    claimed_at: datetime | None = None
    active_ms: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    revision: int = 0
    result: bytes | None = None
    carry: tuple[Carry, ...] | None = None


@dataclass(slots=True)
class Worker:
    """One boot of one process."""

    worker_id: WorkerId
    new: NewWorker
    beat_at: datetime
    claim_floor: int = 0
    slots: int = 0
    draining: bool = False
    fenced_at: datetime | None = None
    fence_reason: str | None = None
    #: The run whose code was on its event loop when it ended, where that is known.
    run_on_loop: RunId | None = None

    @property
    def pod(self) -> str:
        """What dies as a whole."""
        return self.new.pod_uid or self.new.instance.split("/")[0]

    def hear(self, beat: Beat, now: datetime) -> None:
        """Renew its lease."""
        self.beat_at, self.slots, self.draining = now, beat.slots, beat.draining


@dataclass(slots=True)
class Wished:
    """What somebody asked of a run; `settled` once it is suspended."""

    by: str
    reason: str | None
    settled: bool = False

    def __str__(self) -> str:
        """Return who asked for it, and why."""
        return self.by + ("" if self.reason is None else f": {self.reason}")


@dataclass(slots=True)
class Question:
    """Something that a person must decide, and what was decided."""

    asked: NewQuestion
    asked_at: datetime
    expires_at: datetime | None
    decided_at: datetime | None = None
    answer: Answer | None = None


#: Run, step, digest and attempt of a question.
QuestionKey = tuple[RunId, str, str, int]


@dataclass(slots=True)
class Start:
    """A start that a limit counts; None until it is known when it happened."""

    agent_id: AgentId
    key: str
    at: datetime | None = None


@dataclass(slots=True)
class Reaper:
    """What the rounds of the reaper remember."""

    tick_at: datetime
    granted_at: datetime
    mass_since: datetime | None = None


class Tables:
    """All rows.

    Parameters
    ----------
    clock
        Leases, timers and deadlines are judged by it alone.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
        self._moments = 0
        self.pools: dict[tuple[str, str], PoolId] = {}
        self.agents: dict[AgentId, Agent] = {}
        self.revisions: dict[RevisionId, Revision] = {}
        self.runs: dict[RunId, Run] = {}
        self.live: dict[RunId, Live] = {}
        self.finals: dict[RunId, dict[int, Ended]] = {}
        self.events: dict[RunId, dict[int, tuple[Event, datetime]]] = {}
        self.wishes: dict[tuple[RunId, WishKind], Wished] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.objects: dict[tuple[str, str], RunId] = {}
        self.keys: dict[tuple[AgentId, str], RunId] = {}
        self.starts: dict[RunId, Start] = {}
        self.questions: dict[QuestionKey, Question] = {}
        #: Who asked for a further attempt of a run.
        self.attempts: dict[tuple[RunId, int], str] = {}
        self.changes: dict[int, Change] = {}
        self.reaper = Reaper(self.now(), self.now())

    def now(self) -> datetime:
        """Return the time by which everything is judged."""
        return EPOCH + timedelta(seconds=self._clock.monotonic())

    def moment(self) -> float:
        """Return microseconds that rise by a thousand with each call, though the clock stands."""
        self._moments += 1000
        return (self.now() - EPOCH) / timedelta(microseconds=1) + self._moments

    def number(self, what: str) -> int:
        """Return the next number of a sequence."""
        return next(self._numbers[what])

    # ------------------------------------------------------------ runs

    def at(self, *places: Place) -> list[Live]:
        """Return the runs that stand in `places`, the most urgent first."""
        return sorted((x for x in self.live.values() if x.place in places), key=lambda x: x.turn)

    def held_by(self, workers: Collection[WorkerId]) -> list[Live]:
        """Return the runs that these workers hold."""
        return [run for run in self.at(Place.LEASE) if run.worker_id in workers]

    def lease(self, run_id: RunId, epoch: int, worker: WorkerId) -> Live | None:
        """Return the run if `worker` holds it at `epoch` and is not fenced."""
        run = self.live.get(run_id)
        if run is None or self.writer(worker) is None:
            return None
        return run if (run.worker_id, run.epoch) == (worker, epoch) else None

    def writer(self, worker: WorkerId) -> Worker | None:
        """Return a worker that may write: one that is known and not fenced."""
        found = self.workers.get(worker)
        return found if found is not None and found.fenced_at is None else None

    def newest_final(self, run_id: RunId) -> Ended | None:
        """Return how the last attempt that is over ended."""
        finals = self.finals.get(run_id)
        return finals[max(finals)] if finals else None

    def lifecycle(self, run_id: RunId) -> Iterator[tuple[Event, datetime]]:
        """Yield the events that concern the whole run, with their time, by their number."""
        for _, (event, at) in sorted(self.events.get(run_id, {}).items()):
            if event.kind >= FIRST_LIFECYCLE_KIND:
                yield event, at

    def wished(self, run_id: RunId) -> Wished | None:
        """Return who wished to cancel a run."""
        return self.wishes.get((run_id, WishKind.CANCEL))

    # ------------------------------------------------------------ moves that several share

    def end(self, run: Live, final: Ended) -> None:
        """End the attempt of a run for good."""
        self.finals.setdefault(run.run_id, {}).setdefault(final.attempt, final)
        self.live.pop(run.run_id, None)
        for kind in WishKind:
            self.wishes.pop((run.run_id, kind), None)
        self.change(run, ChangeKind.ENDED)
        final.revision = run.revision

    def change(self, run: Live, kind: ChangeKind) -> None:
        """Have a linked run shown again."""
        if run.linked:
            run.revision = self.number("revision")
            self.changes[run.revision] = Change(
                run.revision, run.run_id, kind, run.epoch, self.now()
            )

    def show_again(self, run: Live) -> None:
        """Have a linked run shown as it stands."""
        if run.linked:
            seq, kind = self.number("revision"), _AGAIN.get(run.place, ChangeKind.QUEUED)
            self.changes[seq] = Change(seq, run.run_id, kind, run.epoch, self.now())

    def unwritten(self, run: Live) -> tuple[Carry, ...]:
        """Return what the run's owner has not written into history yet.

        An owner writes all of it before anything else, each as one event of its own epoch.
        """
        carried = run.carry or ()
        written = sum(1 for event, _ in self.lifecycle(run.run_id) if event.epoch == run.epoch)
        return () if len(carried) <= written else carried

    def carry_on(self, run: Live, entry: Carry) -> tuple[Carry, ...]:
        """Return `entry` behind those that the run's owner has not written into history yet."""
        return (*self.unwritten(run), entry)

    def entry(self, run: Live, event: EventKind, **said: str) -> Carry:
        """Return what the next owner of a leased run must write into history.

        Parameters
        ----------
        said
            Worker, reason, and what else there is: message, blame.
        """
        now = self.now()
        return Carry(
            event, run.epoch, run.attempt, claimed_at=run.claimed_at or now, at=now, **said
        )

    def violations(self) -> list[str]:
        """Name what must never be: a bug of a statement, or of the worker that wrote."""
        return [*self._misplaced(), *self._misleased(), *self._unsound_history()]

    def _misplaced(self) -> Iterator[str]:
        for run_id in self.runs:
            live, final = self.live.get(run_id), self.newest_final(run_id)
            if live is None and final is None:
                yield f"run {run_id} stands nowhere and has no final"
            if live and final and (final.attempt >= live.attempt or final.epoch > live.epoch):
                yield f"run {run_id} stands in {live.place}, but its attempt has ended"
            if live and live.blamed > live.max_takeovers:
                yield f"run {run_id} is to blame for more losses than it may"

    def _misleased(self) -> Iterator[str]:
        for run in self.at(Place.LEASE):
            holder = None if run.worker_id is None else self.writer(run.worker_id)
            if holder is None:
                yield f"run {run.run_id} is leased to a worker that is fenced or unknown"
            elif run.quarantined and not holder.new.quarantine:
                yield f"run {run.run_id} is leased among others, but is to be alone"
            elif holder.new.quarantine and len(self.held_by([holder.worker_id])) > 1:
                yield f"run {run.run_id} shares a process of quarantine"

    def _unsound_history(self) -> Iterator[str]:
        for run_id, events in self.events.items():
            epochs = [event.epoch for _, (event, _) in sorted(events.items())]
            if sorted(events) != list(range(1, len(events) + 1)):
                yield f"run {run_id} has a gap in its history"
            if epochs != sorted(epochs):
                yield f"run {run_id} has an epoch that went back in its history"
