"""Questions to people as their custom resources show them: every question of a run, and its end.

All of it is read-only and may be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.states import Decision
from rowlock.store.connection import Connection
from rowlock.store.types import RunId


@dataclass(frozen=True, slots=True)
class Question:
    """One question, open or not.

    Parameters
    ----------
    uid, namespace, name
        Of the custom resource of the run that asks.
    question
        Tool, arguments and note, as stored.
    by, reason
        Who answered, and why; empty while it is open.
    live_attempt
        The run's attempt that is under way; None once the run is final.
    options
        The run's options, as stored.
    newer
        The run asked about the same step again, but about other arguments.
    """

    uid: str
    namespace: str
    name: str
    run_id: RunId
    step_key: str
    digest: str
    attempt: int
    tool: str
    question: bytes
    asked_at: datetime
    expires_at: datetime | None
    decided_at: datetime | None
    decision: Decision | None
    by: str
    reason: str
    live_attempt: int | None
    options: bytes
    newer: bool

    @property
    def open(self) -> bool:
        """Tell whether an answer would count."""
        return self.decision is None and self.live_attempt == self.attempt and not self.newer


async def questions_of(
    conn: Connection, *, cluster: str, uids: Collection[str]
) -> dict[str, list[Question]]:
    """Return all questions of runs by the uid of their custom resource, the oldest first."""
    found: dict[str, list[Question]] = {}
    for row in await conn.fetch("questions_of", cluster, list(uids)):
        found.setdefault(row["uid"], []).append(_question(row))
    return found


async def asking(
    conn: Connection,
    *,
    cluster: str,
    namespaces: Sequence[str] | None,
    after_uid: str = "",
    limit: int = 1000,
) -> list[str]:
    """Return the uids of up to `limit` custom resources whose runs have open questions.

    Parameters
    ----------
    namespaces
        Only these; None for all.
    """
    wanted = None if namespaces is None else list(namespaces)
    return [row["uid"] for row in await conn.fetch("asking", cluster, wanted, after_uid, limit)]


def _question(row: Any) -> Question:
    fields: dict[str, Any] = dict(row)
    if fields["decision"] is not None:
        fields["decision"] = Decision(fields["decision"])
    return Question(**fields)
