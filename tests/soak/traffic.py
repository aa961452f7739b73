"""What people ask of the workers during a soak: runs over time, and what may become of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import msgspec

from rowlock.errors import StoreError
from rowlock.options import RunOptions, encode
from rowlock.states import Decision
from rowlock.store import approvals, intake, parking
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock.store.types import Approval, Decided, NewRun, RunId

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """One agent of the soak.

    Parameters
    ----------
    share
        How many of a hundred runs are its.
    pause
        Shortest and longest pause of a step, in seconds.
    keys
        How many keys its runs are spread over.
    """

    name: str
    entrypoint: str
    share: int
    pause: tuple[float, float]
    limits: Caps = field(default_factory=Caps)
    keys: int = 0
    options: RunOptions = field(default_factory=RunOptions)


_RETRY = RunOptions(max_attempts=3, retry_backoff_seconds=0.5)

#: What runs, and under which caps; every promise has an agent that would show its breach.
KINDS = (
    Kind("desk", "desk", 40, (0.02, 0.3)),
    Kind("capped", "desk", 12, (0.01, 0.1), Caps(max_running=6)),
    Kind("keyed", "desk", 12, (0.01, 0.1), Caps(max_running_per_key=2), keys=5),
    Kind("rated", "desk", 1, (0.01, 0.05), Caps(starts_per_minute_per_key=30), keys=3),
    Kind("print", "printer", 10, (0.01, 0.15)),
    Kind("wire", "wire", 15, (0.01, 0.2)),
    Kind("hog", "hog", 2, (0.05, 0.6)),
    Kind("wobbly", "wobbly", 8, (0.01, 0.1), options=_RETRY),
    Kind("nap", "napper", 6, (0.3, 3.0)),
    Kind("naps-of-keys", "napper", 4, (0.3, 1.0), Caps(max_running_per_key=1), keys=3),
    Kind("ask", "asker", 6, (0.01, 0.1)),
)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until PostgreSQL answers; what is asked must be safe to repeat."""
    while True:
        try:
            return await ask()
        except StoreError:
            await asyncio.sleep(0.1)


class Traffic:
    """Enqueues, cancels, suspends, continues and approves, and remembers what it did.

    Attributes
    ----------
    runs
        Each accepted run and the name of its agent.
    cancelled
        Runs that somebody wished to end.
    suspended
        Runs that somebody wished to wait.
    """

    def __init__(self, connection: Connection, chance: random.Random) -> None:
        self._connection = connection
        self._chance = chance
        self._agents: dict[str, NewRun] = {}
        self._number = 0
        self.runs: dict[RunId, str] = {}
        self.cancelled: set[RunId] = set()
        self.suspended: set[RunId] = set()

    async def declare(self) -> None:
        """Make the agents with their caps."""
        pool = await intake.ensure_pool(self._connection, namespace="", name="default")
        for kind in KINDS:
            agent, revision = await intake.ensure_agent(
                self._connection,
                namespace="",
                name=kind.name,
                entrypoint=f"tests.soak.agents:{kind.entrypoint}",
                spec=b"{}",
                digest="1",
                max_running=kind.limits.max_running,
                max_running_per_key=kind.limits.max_running_per_key,
                starts_per_minute_per_key=kind.limits.starts_per_minute_per_key,
            )
            options = encode(kind.options)
            self._agents[kind.name] = NewRun(
                agent, revision, pool, b"", options, max_takeovers=1000
            )

    async def enqueue(self, count: int) -> None:
        """Accept `count` more runs; the idempotency keys make an unknown commit harmless."""
        kinds = self._chance.choices(KINDS, [kind.share for kind in KINDS], k=count)
        new = [self._new(kind) for kind in kinds]
        answers = await patiently(lambda: intake.enqueue(self._connection, new))
        self.runs |= {answer.run_id: kind.name for answer, kind in zip(answers, kinds, strict=True)}

    def _new(self, kind: Kind) -> NewRun:
        self._number += 1
        case = {"number": self._number, "pause": round(self._chance.uniform(*kind.pause), 3)}
        return replace(
            self._agents[kind.name],
            input=msgspec.json.encode(case),
            key=f"key-{self._chance.randrange(kind.keys)}" if kind.keys else None,
            idempotency_key=f"case-{self._number}",
        )

    async def cancel_some(self, most: int) -> int:
        """Wish that some of the latest runs end; return how many."""
        chosen = self._some(most)
        self.cancelled.update(chosen)
        await patiently(lambda: intake.request_cancel(self._connection, chosen, by="soak"))
        return len(chosen)

    async def suspend_some(self, most: int) -> int:
        """Wish that some of the latest runs wait; return how many."""
        chosen = self._some(most)
        self.suspended.update(chosen)
        await patiently(lambda: parking.request_suspend(self._connection, chosen, by="soak"))
        return len(chosen)

    async def continue_some(self, most: int | None = None) -> int:
        """Let some runs that were to wait go on, or all of them; return how many."""
        waiting = sorted(self.suspended)
        chosen = waiting if most is None else self._chance.sample(waiting, min(len(waiting), most))
        await patiently(lambda: parking.request_continue(self._connection, chosen))
        self.suspended.difference_update(chosen)
        return len(chosen)

    async def approve(self) -> int:
        """Say yes to all that is asked now; return how often."""
        asked = await patiently(lambda: approvals.pending_approvals(self._connection))
        for one in asked:
            await patiently(partial(self._say_yes, one))
        return len(asked)

    async def _say_yes(self, one: Approval) -> Decided:
        return await approvals.decide(
            self._connection,
            one.run_id,
            step_key=one.step_key,
            digest=one.digest,
            attempt=one.attempt,
            decision=Decision.APPROVED,
            by="soak",
        )

    def _some(self, most: int) -> list[RunId]:
        latest = list(self.runs)[-400:]
        return self._chance.sample(latest, min(len(latest), self._chance.randint(1, most)))
