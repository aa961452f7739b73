"""What commands answer, whichever way they asked: the keys of `-o json` and `-o yaml`.

A key that a way cannot tell is null there: the database knows no conditions and no Kubernetes
events, and the cluster no steps and no places in line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rowlock.commands.timeline import Line

#: What commands take as RUN: the number in the database, or the AgentRun's name.
Name = int | str


@dataclass(frozen=True, slots=True)
class RunShape:
    """How a run stands.

    Parameters
    ----------
    run
        What commands take.
    id
        Its number in the database; None before the operator has written it there.
    namespace
        Of its agent.
    agent
        Its agent's name.
    key
        Its concurrency key.
    priority
        Higher goes first.
    phase
        Where it stands, in one word.
    attempt
        Number of the attempt that is under way or that ended it.
    takeovers
        How often a worker was lost under it.
    worker
        Who holds it, or held it last.
    created_at
        When it was accepted; through the cluster when its AgentRun was created.
    started_at
        When a worker first claimed it.
    due_at
        When it goes on, for one that waits for a time.
    finished_at
        When it ended.
    reason, message
        Why it failed or was cancelled, what is degraded; through the cluster why it waits, too.
    outcome
        `ok` or `degraded`, for one that succeeded.
    tokens_in, tokens_out
        That models have read and written, as far as its end tells.
    cost_micro
        In millionths of a US dollar.
    """

    run: Name
    id: int | None
    namespace: str | None
    agent: str
    key: str | None
    priority: int
    phase: str
    attempt: int
    takeovers: int
    worker: str | None
    created_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    message: str | None
    outcome: str | None
    tokens_in: int
    tokens_out: int
    cost_micro: int


@dataclass(frozen=True, slots=True)
class WaitShape:
    """Why a run waits.

    Parameters
    ----------
    run
        What commands take.
    namespace
        Of its pool.
    pool
        Whose workers it waits for; None where only the operator knows.
    agent
        Its agent's name.
    key
        Its concurrency key.
    priority
        Higher goes first.
    attempt
        Number of the attempt that waits.
    reason
        A word of the table of waits, or Pending before the operator has seen it.
    place
        In line, 1 for the next; None where it waits in no line, or nobody counted.
    since
        Of waiting there.
    due_at
        When it goes on by itself.
    """

    run: Name
    namespace: str | None
    pool: str | None
    agent: str
    key: str | None
    priority: int
    attempt: int
    reason: str
    place: int | None
    since: datetime | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class PoolShape:
    """What a pool has to do, and who does it.

    Parameters
    ----------
    namespace, name
        Of the pool.
    workers
        That are there.
    desired
        Workers that there should be; through the cluster.
    slots
        Runs that its workers have room for.
    running
        Runs that they hold.
    claimable
        Runs that a worker could claim now.
    quarantined
        Of those, runs that take a process of their own.
    waiting
        Runs that wait for something else.
    oldest_ready_at
        Since when the oldest of the claimable runs has waited.
    available
        Reason of the condition Available, where it is not True; through the cluster.
    """

    namespace: str
    name: str
    workers: int
    desired: int | None
    slots: int
    running: int | None
    claimable: int | None
    quarantined: int | None
    waiting: int | None
    oldest_ready_at: datetime | None
    available: str | None


@dataclass(frozen=True, slots=True)
class QuestionShape:
    """A tool call that waits for a person.

    Parameters
    ----------
    run
        What commands take.
    name
        Of the AgentRunApproval; through the cluster.
    step
        What `approve` and `deny` take as STEP.
    tool
        That would be called.
    arguments
        What the tool would be called with; through the cluster None, and `note` describes it.
    note
        What the tool says about it.
    digest
        Of tool and arguments: an answer holds for no others.
    attempt
        Of the run.
    asked_at
        Since when it waits.
    expires_at
        When it counts as denied; None for never.
    """

    run: Name
    name: str | None
    step: str
    tool: str
    arguments: Any
    note: str
    digest: str
    attempt: int | None
    asked_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has used."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0

    def __str__(self) -> str:
        if self == Usage():
            return ""
        cost = f", ${self.cost_micro / 1e6:.6f}" if self.cost_micro else ""
        return f"{self.tokens_in:,} tokens in, {self.tokens_out:,} out{cost}"


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened to a run.

    Parameters
    ----------
    seq
        Its number; `events --after` goes on behind it.
    kind
        As `rowlock.RunEvent` has it; through the cluster the reason of a Kubernetes event, such
        as taken_over for RunTakenOver. The last one is `state`: where the run stands.
    at
        When.
    attempt
        Of the run.
    epoch
        How many leases the run has had.
    step
        That it is about.
    tries
        Of the step.
    duration_ms
        Of the step.
    data
        What it says; None where that is over 64 KiB.
    """

    seq: int
    kind: str
    at: datetime | None
    attempt: int | None = None
    epoch: int | None = None
    step: str | None = None
    tries: int = 1
    duration_ms: int | None = None
    data: dict[str, Any] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of what a run has said.

    Parameters
    ----------
    at
        When.
    level
        debug, info, warning, error or critical.
    source
        The logger of a worker's line; of what the database keeps the kind of event.
    message
        What it says.
    worker
        Whose line it is.
    data
        What else stands in it.
    """

    at: datetime | None
    level: str
    source: str
    message: str
    worker: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """All that there is to tell of a run.

    Parameters
    ----------
    result
        Of one that succeeded.
    preview
        The beginning of a result that is not all there.
    timeline
        Its steps and losses.
    conditions, leases, events
        As the AgentRun and its Kubernetes events show them.
    """

    info: RunShape
    used: Usage = Usage()
    waits: WaitShape | None = None
    questions: list[QuestionShape] = field(default_factory=list)
    result: Any = None
    preview: str | None = None
    timeline: list[Line] | None = None
    conditions: list[dict[str, Any]] | None = None
    leases: list[dict[str, Any]] | None = None
    events: list[Happening] | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a wish.

    Parameters
    ----------
    run
        What commands take.
    asked
        The command.
    done
        It is so by now; else it is under way.
    said
        For a person.
    attempt
        That `retry` has queued.
    step, digest
        That were approved or denied.
    """

    run: Name
    asked: str
    done: bool
    said: str
    attempt: int | None = None
    step: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was started, or was there before.

    Parameters
    ----------
    run
        What commands take.
    agent
        As it was typed.
    created
        False for one that was there before, by its idempotency key.
    """

    run: Name
    agent: str
    created: bool
