"""What a client may ask of a run beside its end, and what a run may ask of people."""

from __future__ import annotations

from typing import TypeAlias

from rowlock.client import wishes
from rowlock.client.connected import AnyRun, Connected
from rowlock.client.wishes import PendingApproval
from rowlock.states import Decision

#: In the class that has a method `list`, that name is no type.
Questions: TypeAlias = list[PendingApproval]


class Deciding(Connected):
    """A client that holds, ends and answers runs."""

    async def cancel(self, run: AnyRun, *, reason: str | None = None) -> bool:
        """Ask for the end of a run; return whether it has ended by now.

        The wish stands: a run that a worker holds ends within a second or so, one that nobody
        holds at once, and a result that was committed before is kept.

        Raises
        ------
        UnknownRun
            There is no such run.
        """
        run_id = (await self.get(run)).id
        return await wishes.cancel(self._store, run_id, by=self._by, reason=reason)

    async def suspend(self, run: AnyRun, *, reason: str | None = None) -> bool:
        """Ask for a run to wait until somebody continues it; return whether it does by now.

        The wish stands: a run that a worker holds leaves it at its next step boundary.

        Raises
        ------
        UnknownRun, WishRefused
            There is no such run, or it has ended.
        """
        run_id = (await self.get(run)).id
        return await wishes.suspend(self._store, run_id, by=self._by, reason=reason)

    async def continue_(self, run: AnyRun) -> bool:
        """Let a suspended run go on; return whether it was suspended, or about to be.

        Raises
        ------
        UnknownRun, WishRefused
            There is no such run, or it has ended.
        """
        return await wishes.continue_(self._store, (await self.get(run)).id)

    async def retry(self, run: AnyRun) -> int:
        """Start another attempt of a run that has ended, and return its number.

        Finished steps are read back; `wait` and `events` then wait for the new attempt.
        Of many who ask at once one wins, and all get the same number.

        Raises
        ------
        UnknownRun, WishRefused, HistoryExpired
            There is no such run, it has not ended, or its history may be gone.
        """
        return await wishes.retry(self._store, (await self.get(run)).id, by=self._by)

    async def approvals(self, run: AnyRun | None = None) -> Questions:
        """Return the tool calls that wait for a person, of one run or of all, the oldest first."""
        run_id = None if run is None else (await self.get(run)).id
        return await wishes.pending(self._store, run_id)

    async def approve(
        self,
        asked: PendingApproval | AnyRun,
        *,
        step: str | None = None,
        digest: str | None = None,
        reason: str = "",
    ) -> None:
        """Allow a tool call that waits for it.

        Parameters
        ----------
        asked
            The question, or its run.
        step, digest
            Of a run's questions the one about this step, if it has this digest.
        reason
            Kept with the answer.

        Raises
        ------
        WishRefused
            There is no such question, more than one, or another answer stands.
        """
        await self._decide(asked, step, digest, Decision.APPROVED, reason)

    async def deny(
        self,
        asked: PendingApproval | AnyRun,
        *,
        reason: str,
        step: str | None = None,
        digest: str | None = None,
    ) -> None:
        """Forbid a tool call that waits; its model is told why.

        Parameters
        ----------
        asked
            The question, or its run.
        step, digest
            Of a run's questions the one about this step, if it has this digest.

        Raises
        ------
        WishRefused
            There is no such question, more than one, or another answer stands.
        """
        await self._decide(asked, step, digest, Decision.DENIED, reason)

    async def _decide(
        self,
        asked: PendingApproval | AnyRun,
        step: str | None,
        digest: str | None,
        decision: Decision,
        reason: str,
    ) -> None:
        if not isinstance(asked, PendingApproval):
            run_id = (await self.get(asked)).id
            asked = await wishes.the_one(self._store, run_id, step=step, digest=digest)
        await wishes.decide(self._store, asked, decision, by=self._by, reason=reason)
