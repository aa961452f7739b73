"""Writes accepted AgentRuns to the database, many with one statement."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock import options as run_options
from rowlock.errors import RowRejected
from rowlock.store import intake as store
from rowlock.store.connection import Connection
from rowlock.store.expiry import TimeToLive
from rowlock.store.types import Enqueued, NewRun, Submission
from rowlock_operator.intake.resolver import Accepted
from rowlock_operator.intake.revisions import Revisions
from rowlock_operator.intake.seen import Seen

#: What the database said of one run: accepted or known before, or that it can never be stored.
Answer = Enqueued | RowRejected


class Enqueuer:
    """Turns accepted AgentRuns into rows.

    Parameters
    ----------
    cluster
        Uid of the namespace kube-system: several clusters may share a database.
    """

    def __init__(self, connection: Connection, *, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self._revisions = Revisions(connection)

    async def enqueue(self, accepted: Sequence[tuple[Seen, Accepted]]) -> list[tuple[Seen, Answer]]:
        """Write the runs and return what became of each; safe to repeat."""
        return await self._write([(seen, await self._row(seen, it)) for seen, it in accepted])

    async def _write(self, runs: Sequence[tuple[Seen, NewRun]]) -> list[tuple[Seen, Answer]]:
        """Write runs; one that can never be stored is found by halving and refused alone."""
        if not runs:
            return []
        try:
            answers = await store.enqueue(self._connection, [run for _, run in runs])
        except RowRejected as error:
            if len(runs) == 1:
                return [(runs[0][0], error)]
            middle = len(runs) // 2
            return await self._write(runs[:middle]) + await self._write(runs[middle:])
        return [(seen, answer) for (seen, _), answer in zip(runs, answers, strict=True)]

    async def _row(self, seen: Seen, it: Accepted) -> NewRun:
        agent_id, revision_id = await self._revisions.of_agent(it.agent)
        return NewRun(
            agent_id=agent_id,
            revision_id=revision_id,
            pool_id=await self._revisions.of_pool(seen.key.namespace, it.pool),
            input=it.body,
            options=run_options.encode(it.options),
            key=it.concurrency_key,
            priority=it.priority,
            max_takeovers=it.max_takeovers,
            queue_deadline_seconds=it.queue_deadline_seconds,
            idempotency_key=it.idempotency_key,
            cluster=self._cluster,
            uid=seen.key.uid,
            namespace=seen.key.namespace,
            name=seen.key.name,
            generation=seen.generation,
            pinned=it.agent.pinned,
        )


def ttls_of_new(
    accepted: Sequence[tuple[Seen, Accepted]], answers: Sequence[tuple[Seen, Answer]]
) -> list[TimeToLive]:
    """Return the times to live of the runs that were accepted, of those that have one."""
    other = {seen.key.uid: it.other_ttl for seen, it in accepted}
    return [
        TimeToLive(answer.run_id, seen.ttl, other[seen.key.uid])
        for seen, answer in answers
        if isinstance(answer, Enqueued)
        and answer.outcome is not Submission.DUPLICATE_KEY
        and (seen.ttl is not None or other[seen.key.uid] is not None)
    ]
