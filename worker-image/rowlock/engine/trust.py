"""Whether this process may begin something that the world will notice.

It may while PostgreSQL accepted a beat that was *sent* less than `lease - margin` ago:
until then nobody can have taken its runs over for silence.
Past that it waits, and goes on when beats are accepted again.

What this cannot do: an external call already under way when the process is frozen may still
happen once, after another worker has taken the run over. Only its own idempotency key helps there.
"""

from __future__ import annotations

import asyncio
import time

from rowlock.engine.board import BEAT_NS, Board

#: Part of the lease at whose end no effect is begun any more.
_MARGIN = 0.2


class Trust:
    """The lease of this process, judged by its own monotonic clock; and whether it drains."""

    __slots__ = ("_cells", "_limit_ns", "_waiters", "draining")

    def __init__(self, board: Board, *, lease_seconds: float) -> None:
        self._cells = board.cells
        self._limit_ns = int(lease_seconds * (1 - _MARGIN) * 1e9)
        self._waiters: list[asyncio.Future[None]] = []
        self.draining = False

    def sure(self) -> bool:
        """Is the lease beyond doubt at this instant?

        Asked before each effect and not once a tick: after SIGCONT the first thing to run
        may be an agent's next step, before any timer.
        """
        return time.monotonic_ns() - self._cells[BEAT_NS] < self._limit_ns

    async def changed(self) -> None:
        """Wait until the lease is sure again or a drain begins."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def drain(self) -> None:
        """No effect begins any more."""
        self.draining = True
        self._wake()

    def tick(self) -> None:
        """Let those who wait go on if they may; called by the pulse."""
        if self._waiters and self.sure():
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
