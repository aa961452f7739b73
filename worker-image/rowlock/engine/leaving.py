"""The row by which a run leaves its worker to wait."""

from __future__ import annotations

import msgspec

from rowlock.agents.protocol import Question
from rowlock.engine.endings import Park
from rowlock.engine.lane import Lane, Leave
from rowlock.engine.waits import first_due
from rowlock.options import RunOptions
from rowlock.store.bodies import pack
from rowlock.store.types import Claimed, NewQuestion, Parked


def leave(
    park: Park,
    lane: Lane,
    *,
    claimed: Claimed,
    options: RunOptions,
    active_ms: int,
    worker: str,
    build: str,
) -> Leave:
    """Return the last row of `lane`, which takes its next number.

    Parameters
    ----------
    worker
        The process that lets go of the run, as people see it.
    build
        What that process runs.
    """
    questions = tuple(_new(wait.question, options) for wait in park.waits if wait.question)
    reasons = tuple(dict.fromkeys(wait.reason.value for wait in park.waits))
    body = {
        "from": worker,
        "reason": "Parked",
        "build": build,
        "epoch": lane.epoch,
        "claimed_at": claimed.claimed_at.isoformat(),
        "waits_for": reasons,
        "questions": [{"step": one.step_key, "tool": one.tool} for one in questions],
    }
    seq = lane.next_seq
    lane.next_seq = seq + 1
    parked = Parked(
        run_id=lane.run_id,
        epoch=lane.epoch,
        seq=seq,
        active_ms=active_ms,
        reasons=reasons,
        wake_in_seconds=None,
        body=pack(msgspec.json.encode(body)),
        questions=questions,
    )
    return Leave(parked, first_due(park.waits))


def _new(question: Question, options: RunOptions) -> NewQuestion:
    return NewQuestion(
        question.key,
        question.digest,
        question.tool,
        pack(question.shown),
        options.expires_in(question.expires_in),
    )
