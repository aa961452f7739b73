"""Brings what people asked of running runs to the processes that hold them.

A wish stays in its table until the run is final, so each poll repeats what was not carried out yet:
a lost message, or a run that was not read yet, needs no care.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rowlock.engine.messages import Cancel, Suspend
from rowlock.states import WishKind
from rowlock.store import workers
from rowlock.store.connection import Connection
from rowlock.store.types import WorkerId
from rowlock.supervisor.child import Child

POLL_SECONDS = 0.5


class WishPoller:
    """Reads the wishes for this worker's runs and passes them on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run_once(self, children: Sequence[Child]) -> int:
        """Pass on every wish; return how many."""
        if not children:
            return 0
        wishes = await workers.wishes(self._connection, [child.worker_id for child in children])
        cancels: dict[WorkerId, list[tuple[int, str | None]]] = defaultdict(list)
        suspends: dict[WorkerId, list[int]] = defaultdict(list)
        for wish in wishes:
            if wish.kind is WishKind.CANCEL:
                cancels[wish.worker_id].append((wish.run_id, wish.reason))
            else:
                suspends[wish.worker_id].append(wish.run_id)
        for child in children:
            if child.worker_id in cancels:
                child.send(Cancel(cancels[child.worker_id]))
            if child.worker_id in suspends:
                child.send(Suspend(suspends[child.worker_id]))
        return len(wishes)
