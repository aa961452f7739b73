"""Every state, transition, reason and Kubernetes event of a run, each in one table.

SQL, code, status, docs and tests all take their words from here.
The numbers are stored in PostgreSQL and never change their meaning.
`docs/reference/` is generated from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum, unique


@unique
class Place(StrEnum):
    """The one place where a run's current attempt stands: a live table, or its final row."""

    READY = "ready"
    BACKLOG = "backlog"
    TIMER = "timer"
    PARKED = "parked"
    LEASE = "lease"
    FINAL = "final"


#: Which moves between places exist, and the statement (store/queries) that makes each.
TRANSITIONS: dict[tuple[Place | None, Place], tuple[str, ...]] = {
    (None, Place.READY): ("enqueue",),
    (None, Place.BACKLOG): ("enqueue",),
    (Place.BACKLOG, Place.READY): ("promote",),
    (Place.READY, Place.BACKLOG): ("hold_back",),
    (Place.READY, Place.LEASE): ("claim", "claim_alone"),
    (Place.TIMER, Place.READY): ("wake_due",),
    (Place.TIMER, Place.BACKLOG): ("wake_due",),
    (Place.LEASE, Place.READY): ("move_leases", "release", "park"),
    (Place.LEASE, Place.BACKLOG): ("move_leases", "release", "park"),
    (Place.LEASE, Place.TIMER): ("move_leases", "finish"),
    (Place.LEASE, Place.PARKED): ("park",),
    (Place.LEASE, Place.FINAL): ("finish", "move_leases", "release", "park"),
    (Place.READY, Place.PARKED): ("suspend_waiting",),
    (Place.BACKLOG, Place.PARKED): ("suspend_waiting",),
    (Place.TIMER, Place.PARKED): ("suspend_waiting",),
    (Place.PARKED, Place.READY): ("wake_parked", "wake_decided", "continue_suspended"),
    (Place.PARKED, Place.BACKLOG): ("wake_parked", "wake_decided", "continue_suspended"),
    (Place.FINAL, Place.READY): ("redrive",),
    (Place.FINAL, Place.BACKLOG): ("redrive",),
    (Place.READY, Place.FINAL): ("cancel_waiting", "expire_queued"),
    (Place.BACKLOG, Place.FINAL): ("cancel_waiting", "expire_queued"),
    (Place.TIMER, Place.FINAL): ("cancel_waiting", "expire_queued"),
    (Place.PARKED, Place.FINAL): ("cancel_waiting",),
}


@unique
class FinalStatus(IntEnum):
    """How an attempt ended (`run_final.status`)."""

    SUCCEEDED = 1
    FAILED = 2
    CANCELLED = 3


@unique
class EventKind(IntEnum):
    """What a row of history says (`run_event.kind`); 64 and above concern the whole run."""

    STEP_INTENT = 1
    STEP_DONE = 2
    STEP_FAILED = 3
    PROGRESS = 4
    SLEEP = 5
    DECIDED = 6
    TAKEN_OVER = 64
    HANDED_OVER = 65
    ATTEMPT_FAILED = 66
    PARKED = 67


#: From this number on an event concerns the whole run and is shown in its status.
FIRST_LIFECYCLE_KIND = 64


@unique
class ChangeKind(IntEnum):
    """Why a run's status must be shown again (`run_change.kind`)."""

    QUEUED = 1
    CLAIMED = 2
    WORKER_LOST = 3
    TAKEN_OVER = 4
    RELEASED = 5
    HANDED_OVER = 6
    RETRYING = 7
    WOKEN = 8
    ENDED = 9
    PARKED = 10
    SUSPENDED = 11
    CONTINUED = 12
    PROMOTED = 13
    HELD_BACK = 14


@unique
class TimerReason(IntEnum):
    """What a run in `run_timer` waits for."""

    TAKEOVER_BACKOFF = 1
    RETRY_BACKOFF = 2


@unique
class WishKind(IntEnum):
    """What somebody asked of a run (`wish.kind`)."""

    CANCEL = 1
    #: Stands for as long as the run is to be suspended; to continue it is to take the wish back.
    SUSPEND = 2


@unique
class ParkReason(StrEnum):
    """What a parked run waits for (`run_parked.reasons`); any one but `SUSPENDED` wakes it."""

    SLEEP = "sleep"
    RETRY = "retry"
    APPROVAL = "approval"
    #: Wakes nothing, and keeps the others from waking the run until somebody continues it.
    SUSPENDED = "suspended"


@unique
class Decision(IntEnum):
    """How a question to a person was answered (`approval.decision`)."""

    APPROVED = 1
    DENIED = 2
    EXPIRED = 3


@unique
class ApprovalPhase(StrEnum):
    """`status.phase` of an AgentRunApproval: a display string, never a base for decisions."""

    PENDING = "Pending"
    APPROVED = "Approved"
    DENIED = "Denied"
    EXPIRED = "Expired"
    WITHDRAWN = "Withdrawn"


@unique
class ApprovalCondition(StrEnum):
    """The conditions of an AgentRunApproval, both present from the first status write."""

    DECIDED = "Decided"
    DECISION_ACCEPTED = "DecisionAccepted"


@unique
class ApprovalReason(StrEnum):
    """Why an AgentRunApproval stands as it does, or why its decision does not count."""

    OPEN = "OpenQuestion"
    APPROVED = "Approved"
    DENIED = "Denied"
    EXPIRED = "Expired"
    RUN_FINISHED = "RunFinished"
    NEW_ATTEMPT = "NewAttempt"
    STALE_DIGEST = "StaleDigest"
    NOT_ASKED = "NotAsked"
    NO_DECISION = "NoDecision"
    COUNTED = "Counted"
    ALREADY_DECIDED = "AlreadyDecided"


@unique
class FenceReason(StrEnum):
    """Why a worker may no longer write (`worker.fence_reason`)."""

    LEASE_EXPIRED = "LeaseExpired"
    WORKER_DIED = "WorkerDied"
    WORKER_DELETED = "WorkerDeleted"
    WORKER_EVICTED = "WorkerEvicted"
    NODE_LOST = "NodeLost"
    STALLED = "Stalled"
    LEFT = "Left"


@unique
class Blame(StrEnum):
    """What is put down to a run whose worker was lost (0006_pre_blame.sql judges)."""

    #: The loss counts towards maxTakeovers.
    BLAMED = "blamed"
    #: Another run did it.
    DISPLACED = "displaced"
    #: It or another one: after two such deaths it is claimed alone.
    SUSPECTED = "suspected"


@unique
class Outcome(StrEnum):
    """How good a succeeded run's result is."""

    OK = "ok"
    DEGRADED = "degraded"


@unique
class FailureReason(StrEnum):
    """Why a run failed or was refused: a closed set, also a metric's label."""

    AGENT_ERROR = "AgentError"
    AGENT_LOAD_ERROR = "AgentLoadError"
    INVALID_INPUT = "InvalidInput"
    INVALID_OUTPUT = "InvalidOutput"
    INVALID_SPEC = "InvalidSpec"
    NON_DETERMINISTIC = "NonDeterministic"
    TOO_LARGE = "TooLarge"
    TAKEOVER_LIMIT_REACHED = "TakeoverLimitReached"
    QUEUE_DEADLINE_EXCEEDED = "QueueDeadlineExceeded"
    ACTIVE_DEADLINE_EXCEEDED = "ActiveDeadlineExceeded"
    BUDGET_EXCEEDED = "BudgetExceeded"
    DUPLICATE_IDEMPOTENCY_KEY = "DuplicateIdempotencyKey"
    ROW_MISSING = "RowMissing"
    HISTORY_EXPIRED = "HistoryExpired"
    CANCELLED = "Cancelled"


@unique
class BatchStop(StrEnum):
    """Why a batch starts nothing more (`batch.stopped`)."""

    CANCELLED = "Cancelled"
    DELETED = "Deleted"
    TOO_MANY_FAILED = "MaxFailedPercentReached"
    INVALID_ITEMS = "InvalidItems"
    ITEMS_UNREADABLE = "ItemsUnreadable"


@unique
class BatchReason(StrEnum):
    """Further reasons in the conditions of a batch."""

    ACCEPTED = "Accepted"
    READING_ITEMS = "ReadingItems"
    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"


@unique
class Materialize(IntEnum):
    """Which items of a batch become AgentRuns (`batch.materialize`)."""

    NONE = 0
    FAILED = 1
    ALL = 2


@unique
class Phase(StrEnum):
    """`status.phase`: a display string derived from the conditions, never a base for decisions."""

    PENDING = "Pending"
    QUEUED = "Queued"
    RUNNING = "Running"
    AWAITING_APPROVAL = "AwaitingApproval"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


@unique
class ConditionType(StrEnum):
    """The conditions of an AgentRun, all present from the first status write."""

    ACCEPTED = "Accepted"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    AWAITING_APPROVAL = "AwaitingApproval"
    RESUMED = "Resumed"
    FINISHED = "Finished"
    SUCCEEDED = "Succeeded"


@unique
class WaitReason(StrEnum):
    """Why a run that is not finished does not run now (condition Running=False)."""

    DATABASE_UNAVAILABLE = "DatabaseUnavailable"
    AGENT_NOT_FOUND = "AgentNotFound"
    POOL_NOT_FOUND = "PoolNotFound"
    INPUT_NOT_FOUND = "InputNotFound"
    INTAKE_PAUSED = "IntakePaused"
    WAITING_FOR_WORKER = "WaitingForWorker"
    CONCURRENCY_LIMIT = "ConcurrencyLimit"
    RETRY_BACKOFF = "RetryBackoff"
    TAKEOVER_BACKOFF = "TakeoverBackoff"
    QUARANTINED = "Quarantined"
    AWAITING_APPROVAL = "AwaitingApproval"
    SUSPENDED = "Suspended"
    SLEEPING = "Sleeping"


@unique
class ConditionReason(StrEnum):
    """Reasons of conditions that no other table has: neither a wait, nor a loss, nor a failure."""

    ENQUEUED = "Enqueued"
    LEASE_HELD = "LeaseHeld"
    RESUMED = "Resumed"
    CANCELLING = "Cancelling"
    NOT_STARTED = "NotStarted"
    FINISHED = "Finished"
    NOT_SUSPENDED = "NotSuspended"
    SUSPENDING = "Suspending"
    OPEN_QUESTION = "OpenQuestion"
    NO_OPEN_QUESTION = "NoOpenQuestion"
    NOT_TAKEN_OVER = "NotTakenOver"
    TAKEN_OVER = "TakenOver"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    DEGRADED = "Degraded"


@dataclass(frozen=True, slots=True)
class KubernetesEvent:
    """One reason of an events.k8s.io/v1 Event.

    Parameters
    ----------
    type
        `Normal` or `Warning`.
    action
        What was done, in one CamelCase verb.
    meaning
        One sentence for the reference page.
    """

    type: str
    action: str
    meaning: str


#: Reason -> what is published. Names are API: adding is fine, a change of meaning is not.
KUBERNETES_EVENTS: dict[str, KubernetesEvent] = {
    "RunQueued": KubernetesEvent("Normal", "Enqueue", "The run was written to the database."),
    "RunStarted": KubernetesEvent(
        "Normal", "Claim", "A worker claimed the run for the first time."
    ),
    "RunTakenOver": KubernetesEvent(
        "Warning", "TakeOver", "Another worker took the run over from one that was lost."
    ),
    "RunHandedOver": KubernetesEvent(
        "Normal", "TakeOver", "Another worker took the run over from one that drained."
    ),
    "RunRetrying": KubernetesEvent(
        "Warning", "Retry", "An attempt failed by the agent's own error; another follows."
    ),
    "RunSuspended": KubernetesEvent(
        "Normal", "Suspend", "The run is held until somebody continues it."
    ),
    "RunContinued": KubernetesEvent("Normal", "Continue", "The run is not held any more."),
    "ApprovalRequested": KubernetesEvent(
        "Normal", "Ask", "A tool call waits for a person's decision."
    ),
    "ApprovalDecided": KubernetesEvent(
        "Normal", "Decide", "A person approved or denied a tool call; the note says who."
    ),
    "ApprovalExpired": KubernetesEvent(
        "Warning", "Expire", "Nobody decided about a tool call in time."
    ),
    "RunSucceeded": KubernetesEvent("Normal", "Finish", "The run ended with a result."),
    "RunFailed": KubernetesEvent("Warning", "Finish", "The run ended without a result."),
    "RunCancelled": KubernetesEvent("Normal", "Finish", "The run was cancelled."),
    "PoolScaled": KubernetesEvent("Normal", "Scale", "The pool has another number of workers."),
    "PoolScalingHeld": KubernetesEvent(
        "Warning",
        "Scale",
        "The pool does not follow its work: nobody knows it, or more workers would not help.",
    ),
    "PoolAtMaximum": KubernetesEvent(
        "Warning", "Scale", "The work asks for more workers than maxReplicas allows."
    ),
    "PoolUnhealthy": KubernetesEvent(
        "Warning", "Start", "Workers that are wanted cannot start; the note says why."
    ),
    "PoolKeepsBuild": KubernetesEvent(
        "Normal", "Keep", "Workers of an older build stay for runs that are pinned to it."
    ),
    "PoolLacksBuild": KubernetesEvent(
        "Warning", "Keep", "Runs are pinned to a build of which no workers can be made."
    ),
    "BatchAccepted": KubernetesEvent("Normal", "Accept", "The batch was written to the database."),
    "BatchRefused": KubernetesEvent(
        "Warning", "Accept", "The batch can never be carried out; nothing of it was started."
    ),
    "ItemRefused": KubernetesEvent(
        "Warning",
        "Create",
        "The API server refuses the AgentRun of an item of the batch; the note says why.",
    ),
    "BatchStopped": KubernetesEvent(
        "Warning", "Stop", "The batch starts nothing more because too many items failed."
    ),
    "BatchSucceeded": KubernetesEvent("Normal", "Finish", "All items of the batch have ended."),
    "BatchFailed": KubernetesEvent(
        "Warning", "Finish", "The batch ended before all of its items were done."
    ),
    "BatchCancelled": KubernetesEvent("Normal", "Finish", "The batch was cancelled."),
}
