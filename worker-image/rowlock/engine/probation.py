"""Ends the time of a suspect alone: one that has not killed its process goes back to the others.

Else a few unlucky deaths would leave long runs waiting for each other, one behind the other.
The process leaves with it, which hands the run over at its next step boundary;
that it may be among others again is decided in the database, by the same time.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.store.types import Claimed, RunId


class Probation:
    """Remembers since when this process has the runs that are on probation."""

    def __init__(self) -> None:
        self._since: dict[tuple[RunId, int], float] = {}

    def over(self, held: Iterable[Claimed], now: float) -> bool:
        """Has a run been here for its time? `now` is monotonic seconds."""
        on_probation = {
            (run.run_id, run.epoch): run.probation_seconds
            for run in held
            if run.probation_seconds is not None
        }
        self._since = {lease: self._since.get(lease, now) for lease in on_probation}
        return any(now - self._since[lease] >= wait for lease, wait in on_probation.items())
