"""Questions to people, and their answers: facts, each written once."""

from __future__ import annotations

from typing import Any

from rowlock.states import Decision, ParkReason, Place
from rowlock.store.approvals import refused
from rowlock.store.types import Answer, Approval, Decided, Deciding, RunId
from rowlock.testing.store import parking
from rowlock.testing.store.tables import Question, QuestionKey, Tables


def decide(tables: Tables, run_id: RunId, given: Answer) -> Decided:
    """Answer an open question; the first answer stands."""
    key = (run_id, given.step_key, given.digest, given.attempt)
    question = tables.questions.get(key)
    if question is None or not _open(tables, key, question):
        return refused(given, _newest(tables, run_id, given.step_key))
    question.answer, question.decided_at = given, tables.now()
    _wake(tables, run_id)
    return Decided(Deciding.DECIDED, given)


def expire(tables: Tables, limit: int) -> list[RunId]:
    """Answer up to `limit` questions whose time is over, and wake their runs; return these."""
    late = [
        (key, question) for key, question in tables.questions.items()
        if question.decided_at is None and _late(tables, question)
    ]  # fmt: skip
    late.sort(key=lambda one: one[1].expires_at or tables.now())
    for (_, step, digest, attempt), question in late[:limit]:
        question.answer = Answer(
            step, digest, attempt, Decision.EXPIRED, "expiry", "nobody answered in time"
        )
        question.decided_at = tables.now()
    runs = sorted({key[0] for key, _ in late[:limit]})
    for run_id in runs:
        _wake(tables, run_id)
    return runs


def pending(tables: Tables, run_id: RunId | None, limit: int) -> list[Approval]:
    """Return up to `limit` open questions of a run, or of all runs, the oldest first."""
    found = [
        Approval(
            *key, question.asked.tool, question.asked.question, question.asked_at,
            question.expires_at,
        )
        for key, question in tables.questions.items()
        if run_id in (None, key[0]) and _open(tables, key, question)
    ]  # fmt: skip
    return sorted(found, key=lambda x: (x.asked_at, x.run_id, x.step_key))[:limit]


def answers(tables: Tables, run_id: RunId) -> list[Answer]:
    """Return all answers to a run's questions, those of earlier attempts first."""
    found = [x.answer for key, x in tables.questions.items() if key[0] == run_id]
    return sorted((x for x in found if x is not None), key=lambda answer: answer.attempt)


def _open(tables: Tables, key: QuestionKey, question: Question) -> bool:
    return question.decided_at is None and not _late(tables, question) and _live(tables, key)


def _late(tables: Tables, question: Question) -> bool:
    return question.expires_at is not None and question.expires_at <= tables.now()


def _live(tables: Tables, key: QuestionKey) -> bool:
    run = tables.live.get(key[0])
    return run is not None and run.attempt == key[3]


def _newest(tables: Tables, run_id: RunId, step_key: str) -> list[dict[str, Any]]:
    """Return the questions about a step as `refused` reads them, the newest first."""
    found = [(key, x) for key, x in tables.questions.items() if key[:2] == (run_id, step_key)]
    found.sort(key=lambda one: (one[0][3], one[1].asked_at), reverse=True)
    return [
        {
            "digest": key[2],
            "attempt": key[3],
            "decision": x.answer.decision if x.answer else None,
            "decided_by": x.answer.by if x.answer else None,
            "reason": x.answer.reason if x.answer else None,
            "late": _late(tables, x),
            "live": _live(tables, key),
        }
        for key, x in found
    ]


def _wake(tables: Tables, run_id: RunId) -> None:
    """Put a run that waits for an answer back into the queue, unless it is suspended."""
    run = tables.live.get(run_id)
    if run is None:
        return
    held = run.place is not Place.PARKED or ParkReason.SUSPENDED in run.reasons
    if held or ParkReason.APPROVAL not in run.reasons:
        tables.show_again(run)
    else:
        parking.wake(tables, run)
