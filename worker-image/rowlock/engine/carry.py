"""What others left for a run's next owner: it writes that into history before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import structlog

from rowlock import metrics
from rowlock.metrics import Tally
from rowlock.states import FIRST_LIFECYCLE_KIND, EventKind
from rowlock.store.types import Carry, Claimed, Event

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """One entry to write: kind, key and JSON body."""

    kind: EventKind
    key: str
    body: bytes


def fresh(claimed: Claimed, history: Sequence[Event]) -> list[Carry]:
    """Return the carried entries that history does not hold yet, oldest first.

    A worker that wrote them and was lost before anything else leaves them in both places.
    """
    known = {event.key for event in history if event.kind >= FIRST_LIFECYCLE_KIND}
    return [carry for carry in claimed.carry if _key(carry) not in known]


def _key(carry: Carry) -> str:
    return f"{int(carry.event)}:{carry.epoch}"


def lifecycle(carry: Carry, claimed: Claimed, *, to: str, steps: int) -> Lifecycle:
    """Return `carry` as this owner writes it."""
    body = {
        "from": carry.worker,
        "to": to,
        "reason": carry.reason,
        "epoch": carry.epoch,
        "claimed_at": carry.claimed_at.isoformat(),
        "at": carry.at.isoformat(),
        "step": steps,
        "takeovers": claimed.takeovers,
        "max_takeovers": claimed.max_takeovers,
        "counted": claimed.blamed,
        "blame": carry.blame,
        "message": carry.message,
        "build": carry.build,
    }
    return Lifecycle(EventKind(carry.event), _key(carry), msgspec.json.encode(body))


def announce(
    carry: Carry, claimed: Claimed, *, agent: str, to: str, steps: int, tally: Tally
) -> None:
    """Log and count `carry` where a person should know."""
    if carry.event is not EventKind.TAKEN_OVER:
        return
    tally.add(metrics.TAKEOVERS, carry.reason)
    log.warning(
        "Run taken over from a worker that stopped responding",
        run=str(claimed.run_id),
        agent=agent,
        count=claimed.takeovers,
        counted=claimed.blamed,
        blame=carry.blame,
        reason=carry.reason,
        step=steps,
        to=to,
        **{"from": carry.worker},
    )


def finished_steps(history: Sequence[Event]) -> int:
    """Return how many steps history holds as finished."""
    return len({event.key for event in history if event.kind is EventKind.STEP_DONE})
