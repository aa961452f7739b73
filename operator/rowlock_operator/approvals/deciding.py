"""Gives what people wrote into specs to the database, which has the last word."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from rowlock.store import approvals
from rowlock.store.connection import Connection
from rowlock.store.questions import Question
from rowlock_operator import metrics as m
from rowlock_operator.approvals.standing import Given, Step, given, next_step
from rowlock_operator.intake.seen import Seen

log = structlog.get_logger(__name__)


async def carry_out(
    connection: Connection, metrics: m.Metrics, asked: Iterable[tuple[Question, Seen | None]]
) -> int:
    """Give the database the decisions about open questions; return how many there were.

    It may be repeated: the database knows an answer that it has.
    """
    decisions = 0
    for question, seen in asked:
        said = given(seen) if seen is not None else None
        if said is not None and next_step(question, seen) is Step.DECIDE:
            await _decide(connection, metrics, question, said)
            decisions += 1
    return decisions


async def _decide(
    connection: Connection, metrics: m.Metrics, question: Question, said: Given
) -> None:
    decided = await approvals.decide(
        connection,
        question.run_id,
        step_key=question.step_key,
        digest=question.digest,
        attempt=question.attempt,
        decision=said.decision,
        by=said.by,
        reason=said.reason,
    )
    metrics.add(m.APPROVAL_DECISIONS, decided.outcome.value)
    log.info(
        "A decision was carried out",
        run=f"{question.namespace}/{question.name}",
        step=question.step_key,
        by=said.by,
        decision=said.decision.name.lower(),
        outcome=decided.outcome.value,
    )
