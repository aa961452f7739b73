"""A few numbers that a loop process and its supervisor share, without a call on either side.

A loop that is blocked cannot answer a question, so the supervisor reads what it wrote before:
that it still ticks, and which run was on the loop.
The other way round the supervisor writes when it sent the last beat that PostgreSQL accepted,
so that a loop knows, without asking, whether its lease is sure.

Behind these stand the process groups of its executors: if the loop dies, its supervisor ends them,
for the kernel ends the executors themselves and not what their tools have started.

Each number is one aligned 64-bit cell of a shared memory file and has one writer:
on the machines that we run on, such a store is seen whole or not at all.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Self

#: Cells written by the loop.
TICK, RUN, LAG_US, RUNNING, SLOTS, DRAINING, TRIES, REFUSED = range(8)
#: Cell written by the supervisor: CLOCK_MONOTONIC, in ns, at the send of the last accepted beat.
BEAT_NS = 8
#: One more cell written by the loop.
COMMIT_MS = 9

#: First cell of the executors' process groups; 0 where there is none.
_GROUPS = 16
#: Most executors of a loop process.
MOST_EXECUTORS = 64

_CELLS = _GROUPS + MOST_EXECUTORS


class Board:
    """The cells of one loop process.

    Parameters
    ----------
    fd
        A memory file of at least `Board.SIZE` bytes, inherited by the loop.
    """

    SIZE = _CELLS * 8

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, self.SIZE)
        #: Hot paths index this directly with the names above.
        self.cells = memoryview(self._map).cast("q")

    @classmethod
    def create(cls) -> Self:
        """Return a new board, all zero; pass its `fd` to the loop process."""
        fd = os.memfd_create("rowlock-board")
        os.ftruncate(fd, cls.SIZE)
        return cls(fd)

    def close(self) -> None:
        """Give the memory back; the board must not be used any more."""
        self.cells.release()
        self._map.close()
        os.close(self.fd)

    def groups(self) -> list[int]:
        """Return the process groups of the loop's executors."""
        return [group for group in map(self.cells.__getitem__, range(_GROUPS, _CELLS)) if group]

    def accepted(self, sent_ns: int) -> None:
        """Say that PostgreSQL accepted the beat sent at `sent_ns` (CLOCK_MONOTONIC)."""
        self.cells[BEAT_NS] = sent_ns

    def beat_age(self) -> float:
        """Return the seconds since the last accepted beat was sent."""
        return (time.monotonic_ns() - self.cells[BEAT_NS]) / 1e9


class Groups:
    """The process groups of a loop's executors, written by the loop."""

    def __init__(self, board: Board) -> None:
        self._cells = board.cells

    def add(self, group: int) -> None:
        """Show a group."""
        self._replace(0, group)

    def discard(self, group: int) -> None:
        """It is gone."""
        self._replace(group, 0)

    def _replace(self, old: int, new: int) -> None:
        for index in range(_GROUPS, _CELLS):
            if self._cells[index] == old:
                self._cells[index] = new
                return
