"""What is kept of each AgentRunBatch: all but its items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rowlock.store.batches import BatchId
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.conditions import holds
from rowlock_operator.kube.resources import ObjectKey

_PERCENT = 100


@dataclass(slots=True)
class KnownBatch:
    """One AgentRunBatch.

    Parameters
    ----------
    template
        `spec.runTemplate`, which never changes.
    source
        The whole object, until it is in the database.
    status
        As it stands on the API server, as far as is known.
    number
        Of its row; None until that is known.
    dirty
        Its spec has to be looked at.
    again_at
        Monotonic time before which a batch that waits is not looked at again.
    shown_at
        Monotonic time of the last status write.
    done
        Its status says that it has ended.
    """

    key: ObjectKey
    generation: int
    parallelism: int | None
    max_failed_percent: int
    desired: str
    ttl: int | None
    template: Mapping[str, Any] = field(repr=False)
    source: Seen | None = field(repr=False)
    status: Mapping[str, Any] = field(repr=False)
    number: BatchId | None = None
    dirty: bool = True
    again_at: float = float("-inf")
    shown_at: float = float("-inf")
    done: bool = False

    @property
    def observed(self) -> int:
        """Return the generation that its status answers."""
        return int(self.status.get("observedGeneration") or 0)

    def update(self, seen: Seen) -> None:
        """Take over a newer state of the object."""
        newer = known_batch(seen)
        self.generation, self.desired, self.ttl = newer.generation, newer.desired, newer.ttl
        self.parallelism, self.max_failed_percent = newer.parallelism, newer.max_failed_percent
        self.source = seen if self.number is None else None
        self.dirty, self.again_at = True, float("-inf")

    def expired(self, now: datetime) -> bool:
        """Tell whether its time after the end is over."""
        ended = self.status.get("completionTime")
        if self.ttl is None or not self.done or not ended:
            return False
        return now >= datetime.fromisoformat(ended) + timedelta(seconds=self.ttl)


def known_batch(seen: Seen) -> KnownBatch:
    """Return what to keep of an object."""
    spec = seen.spec
    percent = spec.get("maxFailedPercent")
    return KnownBatch(
        key=seen.key,
        generation=seen.generation,
        parallelism=spec.get("parallelism"),
        max_failed_percent=_PERCENT if percent is None else percent,
        desired=spec.get("desiredState") or "Run",
        ttl=spec.get("ttlSecondsAfterFinished"),
        template=spec.get("runTemplate") or {},
        source=seen,
        status=seen.status,
        done=holds(seen.status, "Finished") and _answers(seen),
    )


def _answers(seen: Seen) -> bool:
    return seen.observed >= seen.generation
