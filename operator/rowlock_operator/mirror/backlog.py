"""Which runs have something new to show, and when: changes of one run share one status write.

Ends and takeovers are due at once; other changes wait a moment for more of their run.
No I/O and no clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rowlock.states import ChangeKind
from rowlock.store.types import Change, RunId

URGENT = frozenset({ChangeKind.ENDED, ChangeKind.TAKEN_OVER, ChangeKind.HANDED_OVER})
_FIRST_RETRY, _LAST_RETRY = 0.5, 30.0


@dataclass(slots=True)
class Entry:
    """One run with changes that are not shown yet."""

    run_id: RunId
    due_at: float
    changes: dict[int, Change] = field(default_factory=dict)
    failures: int = 0


class Backlog:
    """Changes that were read and not shown yet, by run, and those that only wait for an Event.

    Parameters
    ----------
    delay
        Seconds that a change which is not urgent waits.
    """

    def __init__(self, *, delay: float) -> None:
        self._delay = delay
        self._entries: dict[RunId, Entry] = {}
        self._seqs: set[int] = set()
        self._kept: set[int] = set()

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def runs(self) -> int:
        """Number of runs that have something to show."""
        return len(self._entries)

    def __contains__(self, run_id: RunId) -> bool:
        return run_id in self._entries

    def add(self, changes: Iterable[Change], *, now: float) -> int:
        """Take changes as read, known ones too, and return how many were new."""
        new = [
            change
            for change in changes
            if change.seq not in self._seqs and change.seq not in self._kept
        ]
        for change in new:
            self._seqs.add(change.seq)
            urgent = change.kind in URGENT
            due_at = now if urgent else now + self._delay
            entry = self._entries.setdefault(change.run_id, Entry(change.run_id, due_at))
            entry.changes[change.seq] = change
            if not entry.failures:
                entry.due_at = min(entry.due_at, due_at)
        return len(new)

    def due(self, *, now: float, limit: int) -> list[Entry]:
        """Return the runs to show now, the longest due first."""
        due = [entry for entry in self._entries.values() if entry.due_at <= now]
        due.sort(key=lambda entry: entry.due_at)
        return due[:limit]

    def done(self, run_id: RunId, seqs: Iterable[int]) -> None:
        """Forget changes that were shown; those that came in meanwhile stay."""
        entry = self._entries.get(run_id)
        for seq in seqs:
            self._seqs.discard(seq)
            if entry:
                entry.changes.pop(seq, None)
        if entry and not entry.changes:
            del self._entries[run_id]
        elif entry:
            entry.failures = 0

    def keep(self, seqs: Iterable[int]) -> None:
        """Know changes that were shown, and that stay in the database until they are let go."""
        self._kept.update(seqs)

    def let_go(self, seqs: Iterable[int]) -> None:
        """Forget changes that are not in the database any more."""
        self._kept.difference_update(seqs)

    def retry(self, run_id: RunId, *, now: float, floor: float = 0.0) -> float:
        """Put a run off after a failure, for longer each time, and return for how long."""
        entry = self._entries.get(run_id)
        if entry is None:
            return 0.0
        wait = max(floor, min(_LAST_RETRY, _FIRST_RETRY * 2.0**entry.failures))
        entry.failures = min(entry.failures + 1, 10)
        entry.due_at = now + wait
        return wait

    def oldest(self) -> Change | None:
        """Return the oldest change that waits."""
        return min(
            (change for entry in self._entries.values() for change in entry.changes.values()),
            key=lambda change: change.at,
            default=None,
        )
