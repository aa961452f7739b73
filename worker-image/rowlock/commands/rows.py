"""What rows of the database say, in the shapes that commands show; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from rowlock.client.happenings import RunEvent
from rowlock.client.wishes import PendingApproval
from rowlock.commands.shapes import PoolShape, QuestionShape, RunShape, Usage, WaitShape
from rowlock.store.lines import Waiting
from rowlock.store.reading import RunInfo
from rowlock.store.types import PoolDemand
from rowlock.waiting import wait_reason


def of_info(info: RunInfo, *, namespace: str | None = None) -> RunShape:
    """Return how a run of the database stands."""
    return RunShape(
        run=info.id,
        id=info.id,
        namespace=namespace,
        agent=info.agent,
        key=info.key,
        priority=info.priority,
        phase=info.phase.value,
        attempt=info.attempt,
        takeovers=info.takeovers,
        worker=info.worker,
        created_at=info.created_at,
        started_at=info.started_at,
        due_at=info.due_at,
        finished_at=info.finished_at,
        reason=info.reason,
        message=info.message,
        outcome=info.outcome,
        tokens_in=info.tokens_in,
        tokens_out=info.tokens_out,
        cost_micro=info.cost_micro,
    )


def used(info: RunInfo, happenings: Iterable[RunEvent]) -> Usage:
    """Return what a run has used: as its end says, or by now as its steps do."""
    if info.finished_at is not None:
        return Usage(info.tokens_in, info.tokens_out, info.cost_micro)
    counts = [event.data["usage"] for event in happenings if event.data and "usage" in event.data]
    return Usage(*(sum(one) for one in zip(*counts, strict=True)))


def wait_shape(one: Waiting) -> WaitShape:
    """Return why a run waits."""
    reason = wait_reason(
        one.place,
        parked_for=one.parked_for,
        timer_reason=one.timer_reason,
        quarantined=one.quarantined,
    )
    return WaitShape(
        run=one.run_id,
        namespace=one.namespace,
        pool=one.pool,
        agent=one.agent,
        key=one.key,
        priority=one.priority,
        attempt=one.attempt,
        reason=reason.value,
        place=one.nth,
        since=one.since,
        due_at=one.due_at,
    )


def pool_shape(one: PoolDemand) -> PoolShape:
    """Return what a pool has to do."""
    return PoolShape(
        namespace=one.namespace,
        name=one.name,
        workers=one.workers,
        desired=None,
        slots=one.slots,
        running=one.running,
        claimable=one.claimable,
        quarantined=one.quarantined,
        waiting=one.waiting,
        oldest_ready_at=one.oldest_ready_at,
        available=None,
    )


def question_shape(one: PendingApproval) -> QuestionShape:
    """Return what waits for a person."""
    shown = asdict(one)
    return QuestionShape(run=shown.pop("run_id"), name=None, **shown)
