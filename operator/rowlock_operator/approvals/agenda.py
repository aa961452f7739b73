"""Which runs' questions have to be looked at, and when; no clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

_FIRST_RETRY, _LAST_RETRY = 0.5, 30.0


class Agenda:
    """Runs by the uid of their AgentRun; one that fails is put off and holds up no other."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def mark(self, uids: Iterable[str]) -> None:
        """Have runs looked at soon, also those that were put off, or that somebody looks at now."""
        for uid in uids:
            self._due[uid] = float("-inf")
        self.wake()

    def wake(self) -> None:
        """End a wait."""
        self._something.set()

    def take(self, *, now: float, limit: int) -> list[str]:
        """Take up to `limit` runs that are due off the agenda."""
        self._something.clear()
        taken = [uid for uid, due in self._due.items() if due <= now][:limit]
        for uid in taken:
            del self._due[uid]
        return taken

    def done(self, uid: str) -> None:
        """Note that a run needs no further look, unless it was marked meanwhile."""
        self._failures.pop(uid, None)

    def again(self, uid: str, *, now: float) -> float:
        """Put a run off, for longer each time, and return for how long."""
        failures = self._failures.get(uid, 0)
        wait = min(_LAST_RETRY, _FIRST_RETRY * 2.0**failures)
        self._failures[uid] = min(failures + 1, 10)
        self._due.setdefault(uid, now + wait)
        return wait

    async def wait(self, *, now: float, at_most: float) -> None:
        """Return when something is new, or due, or after `at_most` seconds."""
        due = min(self._due.values(), default=now + at_most)
        try:
            async with asyncio.timeout(max(0.0, min(due - now, at_most))):
                await self._something.wait()
        except TimeoutError:
            return
