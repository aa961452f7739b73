"""What goes into and comes out of the store: frozen rows, no behaviour.

Times are aware datetimes of the database's clock; durations carry their unit in the name.
Bodies are bytes (JSON, zstd-compressed above 2 KB: see `bodies`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, unique
from typing import NamedTuple, NewType

from rowlock.states import ChangeKind, Decision, EventKind, FinalStatus, Place, WishKind

RunId = NewType("RunId", int)
WorkerId = NewType("WorkerId", int)
PoolId = NewType("PoolId", int)
AgentId = NewType("AgentId", int)
RevisionId = NewType("RevisionId", int)


@dataclass(frozen=True, slots=True)
class Carry:
    """One entry that others left for the run's next owner to write into history.

    Parameters
    ----------
    event
        `EventKind.TAKEN_OVER`, `HANDED_OVER` or `ATTEMPT_FAILED`.
    epoch
        The lease that ended; an entry whose epoch and event are in history already is skipped.
    worker
        Name of the worker that held it.
    reason
        A `FenceReason`, `Drained`, `OtherBuild`, or a `FailureReason`.
    message
        The failure's, for `ATTEMPT_FAILED`; why another build goes on, for `OtherBuild`.
    blame
        A `Blame`, for `TAKEN_OVER`.
    build
        What that worker was running.
    """

    event: EventKind
    epoch: int
    attempt: int
    worker: str
    reason: str
    claimed_at: datetime
    at: datetime
    message: str = ""
    blame: str = ""
    build: str = ""


@dataclass(frozen=True, slots=True)
class NewRun:
    """One run to enqueue.

    Parameters
    ----------
    options
        What was resolved for this run, as JSON (`rowlock.options.RunOptions`).
    queue_deadline_seconds
        Seconds in the queue after which it fails; None for no limit.
    idempotency_key
        Unique per agent while the first run exists.
    cluster, uid, namespace, name, generation
        The custom resource it belongs to; `cluster` and `uid` are None for a run without one.
    pinned
        Only workers of the build that takes it first go on with it.
    """

    agent_id: AgentId
    revision_id: RevisionId
    pool_id: PoolId
    input: bytes
    options: bytes = b"{}"
    key: str | None = None
    priority: int = 0
    max_takeovers: int = 5
    queue_deadline_seconds: float | None = None
    idempotency_key: str | None = None
    cluster: str | None = None
    uid: str | None = None
    namespace: str = ""
    name: str = ""
    generation: int = 0
    pinned: bool = False


@unique
class Submission(Enum):
    """What became of one `NewRun`."""

    CREATED = "created"
    #: The same custom resource, or the same idempotency key and input, was enqueued before.
    EXISTS = "exists"
    #: The idempotency key belongs to a run with another input, or to another custom resource.
    DUPLICATE_KEY = "duplicate_key"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer for one `NewRun`, in the order asked; a duplicate gets the first run's id."""

    run_id: RunId
    outcome: Submission
    #: namespace/name of the custom resource that holds the key, where there is one.
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One run leased to this worker.

    Parameters
    ----------
    blamed
        How many of its takeovers count towards `max_takeovers`.
    suspected
        How many processes died that it may have killed.
    probation_seconds
        Of a quarantined run: how long it must live alone until it may be among others again.
    """

    run_id: RunId
    epoch: int
    attempt: int
    agent_id: AgentId
    revision_id: RevisionId
    key: str | None
    takeovers: int
    max_takeovers: int
    active_ms: int
    linked: bool
    claimed_at: datetime
    carry: tuple[Carry, ...] = ()
    cancelled: bool = False
    blamed: int = 0
    suspected: int = 0
    probation_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why only another build can go on with a run.

    Parameters
    ----------
    build
        The one that wrote its history.
    message
        Which step does not match.
    """

    build: str
    message: str


@dataclass(frozen=True, slots=True)
class RunBody:
    """What a claimed run needs beside its lease."""

    run_id: RunId
    input: bytes
    options: bytes


class Event(NamedTuple):
    """One row of history; the lease holder numbers them from 1 without a gap.

    A tuple in the order of the statements' columns, then `age`:
    the one object that each step makes here.
    """

    run_id: RunId
    seq: int
    epoch: int
    attempt: int
    kind: EventKind
    key: str | None
    attempt_try: int
    dur_ms: int | None
    body: bytes | None
    #: Seconds since it was written when it was read, of those that a wait counts from.
    age: float | None = None


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """Something that a person must decide before a step may go on.

    Parameters
    ----------
    step_key, digest
        What may go on: the step, and a digest of its tool and arguments.
    question
        What a person is shown, as JSON.
    expires_in_seconds
        None for a question that stays open.
    """

    step_key: str
    digest: str
    tool: str
    question: bytes
    expires_in_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """A run that leaves its worker to wait.

    Parameters
    ----------
    seq
        Number of the event that says so.
    active_ms
        Of the whole run so far.
    reasons
        What wakes it: `ParkReason`s; none if it leaves only because somebody suspends it.
    wake_in_seconds
        When its first wait is over; None to wait for people alone.
    body
        Of the event, as JSON.
    """

    run_id: RunId
    epoch: int
    seq: int
    active_ms: int
    reasons: tuple[str, ...]
    wake_in_seconds: float | None
    body: bytes
    questions: tuple[NewQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """An open question, as people see it."""

    run_id: RunId
    step_key: str
    digest: str
    attempt: int
    tool: str
    question: bytes
    asked_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Answer:
    """How a person, or the clock, answered a question."""

    step_key: str
    digest: str
    attempt: int
    decision: Decision
    by: str
    reason: str


@unique
class Deciding(Enum):
    """What became of somebody's answer."""

    DECIDED = "decided"
    #: The same person had given the same answer: an earlier try whose answer got lost.
    ALREADY_DECIDED = "already_decided"
    #: Another answer was there first, and stands.
    TAKEN = "taken"
    EXPIRED = "expired"
    #: The question is about other arguments.
    OTHER_DIGEST = "other_digest"
    #: The run has ended, or began another attempt.
    OVER = "over"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to an answer; `answer` is the one that stands, where there is one."""

    outcome: Deciding
    answer: Answer | None = None


@unique
class Redriving(Enum):
    """What became of the wish for a further attempt."""

    QUEUED = "queued"
    #: Somebody had asked for the same attempt.
    ALREADY_ASKED = "already_asked"
    NOT_FINISHED = "not_finished"
    HISTORY_EXPIRED = "history_expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Final:
    """The end of an attempt.

    Parameters
    ----------
    retry_in_seconds
        None ends the run; a number ends this attempt and starts another after so many seconds.
    step
        Number of finished steps.
    """

    run_id: RunId
    epoch: int
    status: FinalStatus
    reason: str | None = None
    message: str | None = None
    outcome: str | None = None
    step: int = 0
    #: Of the whole run so far: what it was claimed with, and this lease's time on top.
    active_ms: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    result: bytes | None = None
    retry_in_seconds: float | None = None


@unique
class Verdict(Enum):
    """What a fenced statement did for one run."""

    DONE = "done"
    #: An earlier try of the same statement, whose answer got lost, had done it.
    ALREADY_DONE = "already_done"
    #: This worker no longer holds the run at that epoch: stop it, write nothing more.
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Flushed:
    """The answer to a batch of events and finals.

    Parameters
    ----------
    fenced
        This worker is fenced: it must leave. Nothing of the batch was written.
    lost
        Runs of the batch that this worker no longer holds.
    finals
        One verdict for each final, by run.
    """

    fenced: bool
    lost: frozenset[RunId] = frozenset()
    finals: dict[RunId, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewWorker:
    """One process that asks to be registered.

    Parameters
    ----------
    instance
        Same over restarts of one container (pod uid/container/process index) or laptop worker.
    name
        What people see: the pod's name, or host-pid.
    quarantine
        It claims only runs that are to be alone, one at a time.
    cluster
        Of its pod; the operator of that cluster fences it once the pod is gone.
    reserved
        It claims only runs that no other build may go on with: it rests for ever.
    """

    pool_id: PoolId
    instance: str
    name: str
    pid: int
    build: str
    lease_seconds: float
    pod_uid: str | None = None
    node: str | None = None
    quarantine: bool = False
    cluster: str | None = None
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """What a supervisor says of one of its processes.

    Parameters
    ----------
    tries, refused
        Tries of steps in the last half minute, and those that were told to come again later.
    commit_ms
        How long a batch of history takes of late.
    cpu_percent
        How full the CPU of the whole worker is; 0 where nobody knows.
    """

    worker_id: WorkerId
    slots: int
    running: int
    lag_ms: int
    draining: bool
    tries: int = 0
    refused: int = 0
    commit_ms: int = 0
    cpu_percent: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """Something asked of a run that one of these workers holds."""

    run_id: RunId
    worker_id: WorkerId
    kind: WishKind
    reason: str | None


@dataclass(frozen=True, slots=True)
class Fenced:
    """What fencing moved: each run by what became of it, and again by what is put down to it.

    Parameters
    ----------
    blamed, displaced, suspected
        By `rowlock.states.Blame`; none of a hand-over.
    quarantined
        Those that are claimed alone from now on, or still.
    """

    workers: tuple[WorkerId, ...] = ()
    requeued: tuple[RunId, ...] = ()
    delayed: tuple[RunId, ...] = ()
    failed: tuple[RunId, ...] = ()
    cancelled: tuple[RunId, ...] = ()
    blamed: tuple[RunId, ...] = ()
    displaced: tuple[RunId, ...] = ()
    suspected: tuple[RunId, ...] = ()
    quarantined: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one round of the reaper did.

    Parameters
    ----------
    skipped
        Nobody was judged: another process has the turn, the reaper itself was away,
        or most pods look dead at once and get one more lease.
    """

    skipped: bool
    fenced: Fenced = field(default_factory=Fenced)


class LinkedRun(NamedTuple):
    """A run that belongs to a custom resource, as the sweep compares it."""

    uid: str
    run_id: RunId
    namespace: str
    name: str
    generation: int
    revision: int
    finished: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """A visible transition that was not shown yet.

    Parameters
    ----------
    again
        Nothing happened: it was made to have the run shown again as it stands.
    """

    seq: int
    run_id: RunId
    kind: ChangeKind
    epoch: int
    at: datetime
    again: bool = False


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """An event of kind 64 and above, as stored (`body` decoded by the reader)."""

    seq: int
    epoch: int
    attempt: int
    kind: EventKind
    at: datetime
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a status shows of an open question."""

    step_key: str
    digest: str
    tool: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """All that a status shows of one run, read in one snapshot.

    Parameters
    ----------
    place
        Where it stands; `Place.FINAL` only when the current attempt is final.
    revision
        Number of the newest change in it.
    blamed
        How many of the takeovers count towards `max_takeovers`.
    quarantined
        It is claimed alone, for processes died that it may have killed.
    build
        The only build of a worker that may go on with it; None for any.
    worker
        Name of the worker that holds it, or held it last (final).
    pod_uid
        Of that worker's pod, if it is one and its row is still there.
    started_at
        First claim of the run; None before.
    due_at, timer_reason
        For `Place.TIMER`; the first also for `Place.PARKED`, where it waits for a time.
    parked_for
        `ParkReason`s, for `Place.PARKED`.
    questions
        Open ones of its attempt, the oldest first.
    suspend_asked
        Who wishes it suspended, and why.
    redrives
        The newest `spec.redrive` of its custom resource that led to an attempt; 0 for none.
    result, result_size
        The stored body, None above 64 KiB, and its size in bytes.
    max_takeovers
        0 once the attempt is final.
    """

    run_id: RunId
    cluster: str
    uid: str
    namespace: str
    name: str
    generation: int
    place: Place
    revision: int
    epoch: int
    attempt: int
    takeovers: int
    max_takeovers: int
    created_at: datetime
    agent_revision: str
    blamed: int = 0
    quarantined: bool = False
    build: str | None = None
    ready_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    due_at: datetime | None = None
    timer_reason: int | None = None
    worker: str | None = None
    pod_uid: str | None = None
    cancel_asked: bool = False
    parked_for: tuple[str, ...] = ()
    questions: tuple[Asked, ...] = ()
    suspend_asked: str | None = None
    redrives: int = 0
    carry: tuple[Carry, ...] = ()
    lifecycle: tuple[LifecycleEvent, ...] = ()
    status: FinalStatus | None = None
    reason: str | None = None
    message: str | None = None
    outcome: str | None = None
    step: int | None = None
    finished_at: datetime | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    result: bytes | None = None
    result_size: int | None = None


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What one pool has to do and who does it: the scaler, the metric and KEDA read the same.

    Parameters
    ----------
    quarantined
        Of `claimable`, those that take no slot but a process of their own.
    """

    pool_id: PoolId
    namespace: str
    name: str
    running: int
    claimable: int
    waiting: int
    oldest_ready_at: datetime | None
    workers: int
    slots: int
    quarantined: int = 0
