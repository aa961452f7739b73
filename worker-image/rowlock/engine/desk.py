"""What a claimer asks of the store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from rowlock.engine.prepared import Revision
from rowlock.store.types import AgentId, Answer, Claimed, Event, RevisionId, RunBody, RunId


class Desk(Protocol):
    """The claimer's statements, on a connection of their own; None means fenced."""

    async def claim(self, *, token: int, limit: int) -> list[Claimed] | None:
        """Lease up to `limit` runs."""
        ...

    async def adopt(self, *, token: int, known: Collection[RunId]) -> list[Claimed] | None:
        """Return what is leased to this worker and not in `known`; void older tokens."""
        ...

    async def bodies(self, run_ids: Sequence[RunId]) -> dict[RunId, RunBody]:
        """Read inputs and options."""
        ...

    async def history(self, run_id: RunId) -> list[Event]:
        """Read all rows of a run."""
        ...

    async def answers(self, run_id: RunId) -> list[Answer]:
        """Read what people answered to a run's questions."""
        ...

    async def revision(self, revision_id: RevisionId) -> Revision:
        """Read an agent's revision."""
        ...

    async def build_lives(self, build: str) -> bool:
        """Tell whether a worker of that build may take a run."""
        ...

    async def promote(self, agent: AgentId) -> int:
        """Move the runs of a capped agent that may start now into the queue."""
        ...
