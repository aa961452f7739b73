"""What the words of a run's status mean, for the reference page; the words are `rowlock.states`'.

A word without a meaning here is an error of `verify`: whoever adds one explains it.
"""

from __future__ import annotations

from typing import Final

from rowlock.states import (
    ApprovalCondition,
    ApprovalPhase,
    ApprovalReason,
    BatchReason,
    BatchStop,
    ConditionReason,
    ConditionType,
    FailureReason,
    FenceReason,
    Outcome,
    Phase,
    WaitReason,
)

CONDITIONS: Final[dict[ConditionType, str]] = {
    ConditionType.ACCEPTED: "The run was written to the database. False: it was refused for good.",
    ConditionType.RUNNING: "A worker holds the run. False: the reason says what it waits for.",
    ConditionType.SUSPENDED: "The run is held until somebody continues it; the message says who.",
    ConditionType.AWAITING_APPROVAL: "The run waits for a person's decision.",
    ConditionType.RESUMED: (
        "Another worker went on with the run after one was lost. It stays True from the first "
        "takeover on, with the reason of the last; status.lastTakeover has its time."
    ),
    ConditionType.FINISHED: "The run has ended, well or not. Only a re-drive makes it False again.",
    ConditionType.SUCCEEDED: "The run ended with a result. Unknown until it has ended.",
}

PHASES: Final[dict[Phase, str]] = {
    Phase.PENDING: "The operator could not write the run to the database yet.",
    Phase.QUEUED: "It waits for a worker, or for what the reason names.",
    Phase.RUNNING: "A worker holds it, or it sleeps and goes on by itself.",
    Phase.AWAITING_APPROVAL: "It waits for a person's decision.",
    Phase.SUSPENDED: "It is held: desiredState is Suspend, or somebody called `rowlock suspend`.",
    Phase.RETRYING: "It waits for its next attempt, or for the backoff after a takeover.",
    Phase.SUCCEEDED: "It ended with a result.",
    Phase.FAILED: "It ended without a result, or was refused.",
    Phase.CANCELLED: "It was cancelled.",
}

WAIT_REASONS: Final[dict[WaitReason, str]] = {
    WaitReason.DATABASE_UNAVAILABLE: "PostgreSQL does not answer the operator.",
    WaitReason.AGENT_NOT_FOUND: "There is no Agent of that name yet.",
    WaitReason.POOL_NOT_FOUND: "There is no WorkerPool of that name yet.",
    WaitReason.INPUT_NOT_FOUND: "The ConfigMap, or its key, of spec.input is not there yet.",
    WaitReason.INTAKE_PAUSED: "The Agent's spec.intake is Paused.",
    WaitReason.WAITING_FOR_WORKER: "No worker of the pool has a free slot.",
    WaitReason.CONCURRENCY_LIMIT: "A limit of the Agent, in all or for the key, is reached.",
    WaitReason.RETRY_BACKOFF: "The last attempt failed; the next starts later.",
    WaitReason.TAKEOVER_BACKOFF: "Workers were lost with this run again and again.",
    WaitReason.QUARANTINED: "Processes died that it may have killed: it goes on alone.",
    WaitReason.AWAITING_APPROVAL: "A person must decide first.",
    WaitReason.SUSPENDED: "It is held until somebody continues it.",
    WaitReason.SLEEPING: "It sleeps until a time, or between two tries far apart.",
}

FAILURE_REASONS: Final[dict[FailureReason, str]] = {
    FailureReason.AGENT_ERROR: "The agent's code, or a step, failed in its last attempt.",
    FailureReason.AGENT_LOAD_ERROR: "The Agent's entrypoint cannot be imported by the worker.",
    FailureReason.INVALID_INPUT: "The input does not fit the type that the agent declares.",
    FailureReason.INVALID_OUTPUT: "The result does not fit the type that the agent declares.",
    FailureReason.INVALID_SPEC: (
        "The operator cannot carry out the spec, or the Agent's tools do not fit its code."
    ),
    FailureReason.NON_DETERMINISTIC: (
        "The code asked for another step than its history holds, "
        "and no worker of the build that wrote it lives."
    ),
    FailureReason.TOO_LARGE: "The input, a step's result or the result is larger than allowed.",
    FailureReason.TAKEOVER_LIMIT_REACHED: (
        "More losses of workers are put down to the run than maxTakeovers allows."
    ),
    FailureReason.QUEUE_DEADLINE_EXCEEDED: "It waited longer than queueDeadlineSeconds.",
    FailureReason.ACTIVE_DEADLINE_EXCEEDED: "It worked longer than activeDeadlineSeconds.",
    FailureReason.BUDGET_EXCEEDED: "It used more tokens or money than its budget.",
    FailureReason.DUPLICATE_IDEMPOTENCY_KEY: (
        "Another run of the Agent holds the idempotencyKey; the message names it."
    ),
    FailureReason.ROW_MISSING: (
        "The object says that it was accepted, but the database does not know it: it was restored "
        "from a backup, or the row outlived its retention. It is never started a second time."
    ),
    FailureReason.HISTORY_EXPIRED: (
        "A re-drive was asked for after the retention had taken the run's steps away; "
        "how it ended stands in Finished and Succeeded as before."
    ),
    FailureReason.CANCELLED: "It was cancelled.",
}

TAKEOVER_REASONS: Final[dict[FenceReason, str]] = {
    FenceReason.LEASE_EXPIRED: "The worker gave no sign of life for the lease's duration.",
    FenceReason.WORKER_DIED: "The worker's process ended.",
    FenceReason.WORKER_DELETED: "The worker's Pod is gone.",
    FenceReason.WORKER_EVICTED: "The worker's Pod was evicted, preempted or shut down by its node.",
    FenceReason.NODE_LOST: "The worker's node is lost, and the worker silent.",
    FenceReason.STALLED: "The worker's process was blocked for longer than stallCeilingSeconds.",
    FenceReason.LEFT: "The worker left before its runs had ended.",
}

CONDITION_REASONS: Final[dict[ConditionReason, str]] = {
    ConditionReason.ENQUEUED: "Accepted=True: the message names the row.",
    ConditionReason.LEASE_HELD: "Running=True: the message names the worker and the lease.",
    ConditionReason.RESUMED: "status.reason of a run that another worker has just gone on with.",
    ConditionReason.CANCELLING: "Running=True: its end was asked for, and its worker told.",
    ConditionReason.NOT_STARTED: "Running=False: it ended before it was taken in.",
    ConditionReason.FINISHED: "Running=False: it has ended.",
    ConditionReason.NOT_SUSPENDED: "Suspended=False.",
    ConditionReason.SUSPENDING: "Suspended=False: it will be held at its next step.",
    ConditionReason.OPEN_QUESTION: "AwaitingApproval=True.",
    ConditionReason.NO_OPEN_QUESTION: "AwaitingApproval=False.",
    ConditionReason.NOT_TAKEN_OVER: "Resumed=False; a hand-over leaves it so.",
    ConditionReason.TAKEN_OVER: "Resumed=True: the history does not say how the worker was lost.",
    ConditionReason.IN_PROGRESS: "Finished=False, Succeeded=Unknown: it has not ended.",
    ConditionReason.COMPLETED: "Finished=True, Succeeded=True: it ended with a result.",
    ConditionReason.DEGRADED: "The same, with a result that is worse by the agent's own word.",
}

OUTCOMES: Final[dict[Outcome, str]] = {
    Outcome.OK: "The agent is content with its result.",
    Outcome.DEGRADED: "The agent says that its result is worse than it should be, and why.",
}

APPROVAL_CONDITIONS: Final[dict[ApprovalCondition, str]] = {
    ApprovalCondition.DECIDED: (
        "The question has its answer, from whomever it came. False: it is open, or withdrawn."
    ),
    ApprovalCondition.DECISION_ACCEPTED: (
        "spec.decision is that answer. False: it changed nothing, and the reason says why. "
        "Unknown: there is no decision in the spec."
    ),
}

APPROVAL_PHASES: Final[dict[ApprovalPhase, str]] = {
    ApprovalPhase.PENDING: "The question is open.",
    ApprovalPhase.APPROVED: "Somebody said yes: the call happens.",
    ApprovalPhase.DENIED: "Somebody said no: the call does not happen.",
    ApprovalPhase.EXPIRED: "Nobody decided in time; what follows is the Agent's onTimeout.",
    ApprovalPhase.WITHDRAWN: "Nobody need decide any more.",
}

APPROVAL_REASONS: Final[dict[ApprovalReason, str]] = {
    ApprovalReason.OPEN: "The question waits for a decision.",
    ApprovalReason.APPROVED: "Somebody said yes; the message says who, and why.",
    ApprovalReason.DENIED: "Somebody said no; the message says who, and why.",
    ApprovalReason.EXPIRED: "Nobody decided in time, or the decision came too late.",
    ApprovalReason.RUN_FINISHED: "The run ended before anybody decided, as by a cancel.",
    ApprovalReason.NEW_ATTEMPT: (
        "The run began another attempt, by itself or by a re-drive, which asks anew if it must."
    ),
    ApprovalReason.STALE_DIGEST: (
        "The run asks about other arguments by now; another AgentRunApproval shows these."
    ),
    ApprovalReason.NOT_ASKED: (
        "No run asked this question: the object was made or named by somebody else, "
        "or its run is gone from the database. It decides nothing; delete it."
    ),
    ApprovalReason.NO_DECISION: "Nobody has written a decision into the spec.",
    ApprovalReason.COUNTED: "The decision of the spec is the answer that stands.",
    ApprovalReason.ALREADY_DECIDED: "Another answer was there first; the message says whose.",
}

BATCH_STOPS: Final[dict[BatchStop, str]] = {
    BatchStop.CANCELLED: "Its desiredState is Cancel.",
    BatchStop.DELETED: "The object was deleted.",
    BatchStop.TOO_MANY_FAILED: "More of its items failed than maxFailedPercent allows.",
    BatchStop.INVALID_ITEMS: "An item is wrong; the message names its line and what is right.",
    BatchStop.ITEMS_UNREADABLE: "The items could not be read from where itemsFrom says.",
}

BATCH_REASONS: Final[dict[BatchReason, str]] = {
    BatchReason.ACCEPTED: "All items are known and right.",
    BatchReason.READING_ITEMS: "A worker reads the items; nothing starts before the last one.",
    BatchReason.IN_PROGRESS: "It has not ended.",
    BatchReason.STOPPING: "Nothing more is started, and what runs is about to end.",
    BatchReason.COMPLETED: "Every item has ended; the message says how many succeeded.",
    BatchReason.SUSPENDED: "Its desiredState is Suspend.",
    BatchReason.NOT_SUSPENDED: "It goes on.",
}
