"""Questions to people, asked by a stub worker: when a run asks, its test decides."""

from __future__ import annotations

import json

from rowlock.states import ParkReason
from rowlock.store import parking
from rowlock.store.types import Claimed, NewQuestion, Parked
from tests.operators import Stage, StubWorker

DIGEST = "0123456789abcdef"


def question(
    step: str = "refund:1.0",
    *,
    digest: str = DIGEST,
    cents: int = 100,
    expires_in: float | None = None,
) -> NewQuestion:
    """Return a question about a refund."""
    shown = json.dumps({"tool": "refund", "arguments": {"cents": cents}}).encode()
    return NewQuestion(step, digest, "refund", shown, expires_in)


async def ask(stage: Stage, worker: StubWorker, run: Claimed, *asked: NewQuestion) -> None:
    """Park a run with questions."""
    seq = 1 + await stage.count(f"rowlock.run_event WHERE run_id = {run.run_id}")
    reasons = (ParkReason.APPROVAL.value,)
    row = Parked(run.run_id, run.epoch, seq, 0, reasons, None, b"{}", asked)
    await parking.park(stage.store, worker=worker.worker_id, runs=[row])
