"""PostgreSQL and the store in memory answer any sequence of calls alike, and end up alike.

Races are elsewhere; here one call follows the other, in every order Hypothesis comes up with.
The store in memory is the model: a few plain loops, where PostgreSQL has statements and indexes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from rowlock.states import Decision, EventKind, FenceReason, FinalStatus
from rowlock.store.types import (
    Claimed,
    Event,
    Fenced,
    Final,
    Flushed,
    NewQuestion,
    Parked,
    RunId,
    Verdict,
    WorkerId,
)
from tests.integration.store.conformance.subjects import MemorySubject, PostgresSubject, Subject
from tests.integration.store.world import World

T = TypeVar("T")

#: Time passes in steps far longer than a test takes; nothing is due close to one of them.
STEP_SECONDS = 1000.0
RETRY_SECONDS = 3400.0
DEADLINE_SECONDS = 1500.0
LEASE_SECONDS = 2500.0

#: Sequences of calls: as many as take half a minute, or as many as somebody has time for.
EXAMPLES = int(os.environ.get("ROWLOCK_MODEL_EXAMPLES", "80"))
STEPS = 50

#: Which of a worker's runs was on its loop when it ended: None if nobody saw that.
SEEN = st.one_of(st.none(), st.integers(0, 3))
#: Which of the leases that there are a worker writes for, or of those that it may have lost.
WHICH = st.integers(-2, 3)


@dataclass
class Side:
    """One store; runs and workers are known by their number here, which is the same for both."""

    subject: Subject
    runs: list[RunId] = field(default_factory=list)
    workers: list[WorkerId] = field(default_factory=list)

    def know(self, run: RunId) -> int:
        """Return the number of a run, which may be new."""
        if run not in self.runs:
            self.runs.append(run)
        return self.runs.index(run)

    def numbers(self, runs: Any) -> set[int]:
        return {self.runs.index(run) for run in runs}

    def worker(self, worker: WorkerId | None) -> int | None:
        return None if worker is None else self.workers.index(worker)


@dataclass(frozen=True)
class Hold:
    """What a worker believes to hold; the belief may be out of date."""

    worker: int
    run: int
    epoch: int
    attempt: int


class StoreMachine(RuleBasedStateMachine):
    """Both stores, side by side."""

    dsn: str
    empty: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.world = self.do(World.create(self.dsn))
        self.sides = (Side(PostgresSubject(self.world)), Side(MemorySubject()))
        for side in self.sides:
            self.do(side.subject.prepare())
        self.seqs: dict[int, int] = {}
        self.quarantine: set[int] = set()
        self.holds: list[Hold] = []

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(call)

    def both(self, call: Callable[[Side], Awaitable[T]]) -> T:
        """Make the call on both sides and return the answer, which must be the same."""

        async def ask(side: Side) -> T:
            return await call(side)

        real, memory = (self.do(ask(side)) for side in self.sides)
        assert real == memory
        return memory

    def teardown(self) -> None:
        for side in self.sides:
            self.do(side.subject.sound())
        self.do(self._clean())
        self.loop.close()

    async def _clean(self) -> None:
        await self.world.close()
        cleaner = await asyncpg.connect(self.dsn)
        await cleaner.execute(self.empty)
        await cleaner.close()

    worker_ids = Bundle("worker_ids")
    run_ids = Bundle("run_ids")

    # ---------------------------------------------------------------- what comes in

    @initialize(target=worker_ids)
    def first_worker(self) -> int:
        return self._register(None)

    @initialize(target=worker_ids)
    def first_process_of_quarantine(self) -> int:
        return self._register(None, quarantine=True)

    @initialize(target=run_ids, lost=st.sampled_from([0, 2]))
    def first_runs(self, lost: int) -> Any:
        """Begin with runs that wait or, every other time, with two that are to be alone."""
        runs = self._enqueue(lambda side: side.subject.new(2, max_takeovers=2))
        for _ in range(lost):
            self.claim_and_die(3, None)
        return runs

    @rule(target=worker_ids, pod=st.sampled_from([None, "a", "b"]), quarantine=st.booleans())
    def register(self, pod: str | None, quarantine: bool) -> int:
        return self._register(pod, quarantine=quarantine)

    def _register(self, pod: str | None, *, quarantine: bool = False) -> int:
        async def call(side: Side) -> int:
            side.workers.append(
                await side.subject.worker(pod=pod, lease=LEASE_SECONDS, quarantine=quarantine)
            )
            return len(side.workers) - 1

        worker = self.both(call)
        if quarantine:
            self.quarantine.add(worker)
        return worker

    @rule(
        target=run_ids,
        count=st.integers(1, 2),
        linked=st.booleans(),
        priority=st.integers(0, 1),
        limit=st.integers(0, 2),
        key=st.sampled_from([None, "a", "b"]),
        deadline=st.sampled_from([None, DEADLINE_SECONDS]),
    )
    def enqueue(self, count: int, deadline: float | None, **fields: Any) -> Any:
        fields["max_takeovers"] = fields.pop("limit")
        fields["queue_deadline_seconds"] = deadline
        return self._enqueue(lambda side: side.subject.new(count, **fields))

    @rule(
        target=run_ids,
        linked=st.booleans(),
        name=st.sampled_from(["x", "y"]),
        said=st.sampled_from([b"1", b"2"]),
    )
    def enqueue_by_key(self, linked: bool, name: str, said: bytes) -> Any:
        def new(side: Side) -> Any:
            made = side.subject.new(2, linked=linked, idempotency_key=name, input=said)
            return [*made, made[0]]

        return self._enqueue(new)

    def _enqueue(self, new: Callable[[Side], Any]) -> Any:
        async def call(side: Side) -> Any:
            answers = await side.subject.store.enqueue(new(side))
            return [(side.know(a.run_id), a.outcome, a.holder) for a in answers]

        return multiple(*(run for run, _, _ in self.both(call)))

    @rule(run=run_ids, reason=st.sampled_from([None, "why"]))
    def request_cancel(self, run: int, reason: str | None) -> None:
        async def call(side: Side) -> Any:
            asked = [side.runs[run]]
            return side.numbers(
                await side.subject.store.request_cancel(asked, by="ada", reason=reason)
            )

        self.both(call)

    @rule(
        most=st.sampled_from([None, 1, 2, 4]),
        of_key=st.sampled_from([None, None, 1, 2]),
        rate=st.sampled_from([None, None, 1, 2]),
    )
    def set_caps(self, most: int | None, of_key: int | None, rate: int | None) -> None:
        limits = {
            "max_running": most,
            "max_running_per_key": of_key,
            "starts_per_minute_per_key": rate,
        }
        for side in self.sides:
            self.do(side.subject.cap(**{n: v for n, v in limits.items() if v is not None}))

    # ---------------------------------------------------------------- what workers do

    @rule(worker=worker_ids, limit=st.integers(1, 3))
    def claim(self, worker: int, limit: int) -> None:
        """Do what the engine does: a process of quarantine never claims but alone."""
        self._claim(worker, None if worker in self.quarantine else limit)

    @rule(worker=worker_ids)
    def claim_alone(self, worker: int) -> None:
        self._claim(worker, None)

    def _claim(self, worker: int, limit: int | None) -> None:
        """Claim up to `limit` runs, or one that is to be alone."""

        async def call(side: Side) -> Any:
            store, pool = side.subject.store, side.subject.pool
            me, token = side.workers[worker], side.subject.token()
            if limit is None:
                claimed = await store.claim_alone(worker=me, pool=pool, token=token)
            else:
                claimed = await store.claim(worker=me, pool=pool, token=token, limit=limit)
            return self._known(side, claimed)

        self._remember(worker, self.both(call))

    @rule(worker=worker_ids)
    def adopt(self, worker: int) -> None:
        async def call(side: Side) -> Any:
            token = side.subject.token()
            return self._known(
                side,
                await side.subject.store.adopt(
                    worker=side.workers[worker], token=token, known=side.runs[::2]
                ),
            )

        self._remember(worker, self.both(call))

    @staticmethod
    def _known(side: Side, claimed: list[Claimed] | None) -> Any:
        """Return what was claimed in terms that both sides share, times left out."""
        return claimed and {
            side.runs.index(c.run_id): (
                c.epoch, c.attempt, c.key, c.takeovers, c.max_takeovers, c.linked, c.cancelled,
                c.blamed, c.suspected, c.probation_seconds, plain(c.carry),
            )
            for c in claimed
        }  # fmt: skip

    def _remember(self, worker: int, claimed: Any) -> None:
        self.holds += [Hold(worker, run, row[0], row[1]) for run, row in (claimed or {}).items()]

    @rule(
        which=WHICH,
        kinds=st.lists(
            st.sampled_from([EventKind.STEP_DONE, EventKind.TAKEN_OVER, EventKind.HANDED_OVER]),
            min_size=1,
            max_size=3,
        ),
        again=st.booleans(),
    )
    def append(self, which: int, kinds: list[EventKind], again: bool) -> None:
        hold = self._hold(which)
        if hold is None:
            return

        async def call(side: Side) -> Any:
            events = self._events(side, hold, kinds)
            return [
                self._flushed(side, await side.subject.store.append(
                    worker=side.workers[hold.worker], events=events
                ))
                for _ in range(2 if again else 1)
            ]  # fmt: skip

        fenced, lost, _ = self.both(call)[0]
        if not fenced and not lost:
            self.seqs[hold.run] = self.seqs.get(hold.run, 0) + len(kinds)

    @rule(
        which=WHICH,
        status=st.sampled_from(FinalStatus),
        retry=st.booleans(),
        again=st.booleans(),
    )
    def finish(self, which: int, status: FinalStatus, retry: bool, again: bool) -> None:
        hold = self._hold(which)
        if hold is None:
            return
        wait = RETRY_SECONDS if retry else None

        async def call(side: Side) -> Any:
            final = Final(side.runs[hold.run], hold.epoch, status, "r", retry_in_seconds=wait)
            events = self._events(side, hold, [EventKind.STEP_DONE])
            return [
                self._flushed(side, await side.subject.store.finish(
                    worker=side.workers[hold.worker], events=events, finals=[final]
                ))
                for _ in range(2 if again else 1)
            ]  # fmt: skip

        fenced, _, finals = self.both(call)[0]
        if not fenced and finals[hold.run] is Verdict.DONE:
            self.seqs[hold.run] = self.seqs.get(hold.run, 0) + 1

    def _hold(self, which: int, *, stayed: bool = False) -> Hold | None:
        """Return a lease that there is, where none is a new one, or one that was there before.

        With `stayed` its run was with its worker for as long as a suspect must be alone.
        """
        if which < 0:
            return self.holds[which] if len(self.holds) >= -which else None
        leases = self._leases() or self._new_leases(1 + which)
        if stayed:
            self.later()
        return leases[which % len(leases)] if leases else None

    def _new_leases(self, limit: int) -> list[Hold]:
        alone, _ = self.both(lambda side: side.subject.store.alone_waiting(side.subject.pool))
        worker = self._register(None, quarantine=alone > 0)
        self._claim(worker, None if alone else limit)
        return self._leases()

    def _leases(self) -> list[Hold]:
        memory = self.sides[1]
        stands = sorted(self.do(memory.subject.stands()).items())
        return [
            Hold(memory.workers.index(x.holder), memory.runs.index(run), x.epoch, x.attempt)
            for run, x in stands
            if x.holder is not None
        ]

    def _events(self, side: Side, hold: Hold, kinds: list[EventKind]) -> list[Event]:
        last = self.seqs.get(hold.run, 0)
        return [
            Event(
                side.runs[hold.run], last + n, hold.epoch, hold.attempt, kind, "k", 1, 1, b"1"
            )
            for n, kind in enumerate(kinds, 1)
        ]  # fmt: skip

    @staticmethod
    def _flushed(side: Side, flushed: Flushed) -> Any:
        finals = {side.runs.index(run): verdict for run, verdict in flushed.finals.items()}
        return flushed.fenced, side.numbers(flushed.lost), finals

    @rule(which=WHICH, stayed=st.booleans(), again=st.booleans())
    def release(self, which: int, stayed: bool, again: bool) -> None:
        hold = self._hold(which, stayed=stayed)
        if hold is None:
            return

        async def call(side: Side) -> Any:
            runs = [(side.runs[hold.run], hold.epoch, 7)]
            return [
                list((await side.subject.store.release(
                    worker=side.workers[hold.worker], runs=runs
                )).values())
                for _ in range(2 if again else 1)
            ]  # fmt: skip

        self.both(call)

    # ---------------------------------------------------------------- how runs wait

    @rule(
        which=WHICH,
        reasons=st.sampled_from([(), ("sleep",), ("approval",), ("sleep", "approval")]),
        digest=st.sampled_from(["d", "e"]),
        stayed=st.booleans(),
        again=st.booleans(),
    )
    def park(
        self, which: int, reasons: tuple[str, ...], digest: str, stayed: bool, again: bool
    ) -> None:
        hold = self._hold(which, stayed=stayed)
        if hold is None:
            return
        wake_in = RETRY_SECONDS if "sleep" in reasons else None
        asked = NewQuestion("k", digest, "tool", b"{}", DEADLINE_SECONDS)
        questions = (asked,) if "approval" in reasons else ()
        seq = self.seqs.get(hold.run, 0) + 1

        async def call(side: Side) -> Any:
            run = side.runs[hold.run]
            row = Parked(run, hold.epoch, seq, 7, reasons, wake_in, b"{}", questions)
            store, worker = side.subject.store, side.workers[hold.worker]
            return [
                list((await store.park(worker=worker, runs=[row])).values())
                for _ in range(2 if again else 1)
            ]

        async def noted(side: Side) -> Any:
            return len(await side.subject.store.history(side.runs[hold.run]))

        self.both(call)
        self.seqs[hold.run] = self.both(noted)

    @rule(run=run_ids, by=st.sampled_from(["ada", "eve"]))
    def request_suspend(self, run: int, by: str) -> None:
        async def call(side: Side) -> Any:
            asked = [side.runs[run]]
            return side.numbers(await side.subject.store.request_suspend(asked, by=by))

        self.both(call)

    @rule(run=run_ids, by=st.sampled_from([None, "ada"]))
    def request_continue(self, run: int, by: str | None) -> None:
        async def call(side: Side) -> Any:
            asked = [side.runs[run]]
            return side.numbers(await side.subject.store.request_continue(asked, asked_by=by))

        self.both(call)

    @rule(
        run=run_ids,
        digest=st.sampled_from(["d", "e"]),
        attempt=st.integers(1, 2),
        decision=st.sampled_from([Decision.APPROVED, Decision.DENIED]),
    )
    def decide(self, run: int, digest: str, attempt: int, decision: Decision) -> None:
        async def call(side: Side) -> Any:
            return await side.subject.store.decide(
                side.runs[run],
                step_key="k",
                digest=digest,
                attempt=attempt,
                decision=decision,
                by="ada",
            )

        self.both(call)

    @rule(run=run_ids, attempt=st.sampled_from([None, 2]))
    def redrive(self, run: int, attempt: int | None) -> None:
        self.both(
            lambda side: side.subject.store.redrive(side.runs[run], by="ada", attempt=attempt)
        )

    # ---------------------------------------------------------------- how workers go

    @rule(worker=worker_ids, reason=st.sampled_from(FenceReason), seen=SEEN)
    def fence(self, worker: int, reason: FenceReason, seen: int | None) -> None:
        self._fence(worker, reason, seen)

    @rule(limit=st.integers(1, 3), seen=SEEN)
    def claim_and_die(self, limit: int, seen: int | None) -> None:
        """Let an ordinary process die at once with what it took: that makes suspects."""
        worker = self._register(None)
        self._claim(worker, limit)
        self._fence(worker, FenceReason.WORKER_DIED, seen)

    def _fence(self, worker: int, reason: FenceReason, seen: int | None) -> None:
        on_loop = None if seen is None else self._seen(worker, seen)

        async def call(side: Side) -> Any:
            one = side.workers[worker]
            shown = {} if on_loop is None else {one: side.runs[on_loop]}
            store = side.subject.store
            return self._moved(side, await store.fence([one], reason=reason, on_loop=shown))

        self.both(call)

    def _seen(self, worker: int, nth: int) -> int | None:
        """Return the nth run of a worker or, if it has not so many, one that is not there."""
        memory = self.sides[1]
        stands = self.do(memory.subject.stands())
        runs = sorted(stands, key=lambda run: (stands[run].holder != memory.workers[worker], run))
        return memory.runs.index(runs[nth]) if nth < len(runs) else None

    @rule(pod=st.sampled_from(["a", "b"]))
    def fence_pod(self, pod: str) -> None:
        async def call(side: Side) -> Any:
            reason = FenceReason.WORKER_DELETED
            return self._moved(side, await side.subject.store.fence_pods([pod], reason=reason))

        self.both(call)

    @rule(worker=worker_ids)
    def beat(self, worker: int) -> None:
        async def call(side: Side) -> Any:
            return {side.worker(one) for one in await side.subject.beat(side.workers[worker])}

        self.both(call)

    @rule(gap=st.sampled_from([STEP_SECONDS / 2, 1e9]))
    def reap(self, gap: float) -> None:
        async def call(side: Side) -> Any:
            reaped = await side.subject.store.reap(gap_seconds=gap)
            return reaped.skipped, self._moved(side, reaped.fenced)

        self.both(call)

    @staticmethod
    def _moved(side: Side, fenced: Fenced) -> Any:
        moved = (
            fenced.requeued, fenced.delayed, fenced.failed, fenced.cancelled,
            fenced.blamed, fenced.displaced, fenced.suspected, fenced.quarantined,
        )  # fmt: skip
        workers = {side.worker(worker) for worker in fenced.workers}
        return workers, [side.numbers(runs) for runs in moved]

    # ---------------------------------------------------------------- what time does

    @rule()
    def later(self) -> None:
        for side in self.sides:
            self.do(side.subject.later(STEP_SECONDS))

    @rule()
    def wake(self) -> None:
        self.both(lambda side: side.subject.store.wake_due())
        self.both(lambda side: side.subject.store.wake_parked())

    @rule()
    def sweep(self) -> None:
        async def call(side: Side) -> Any:
            store = side.subject.store
            swept = [
                await store.cancel_waiting(),
                await store.expire_queued(),
                await store.suspend_waiting(),
                await store.expire_approvals(),
            ]
            return [side.numbers(runs) for runs in swept], await store.promote_waiting()

        self.both(call)

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def everything_stands_where_it_should(self) -> None:
        async def call(side: Side) -> Any:
            stands = await side.subject.stands()
            ends = await side.subject.all_ends()
            carried = await side.subject.carried()
            return (
                {side.runs.index(run): replace(x, holder=None) for run, x in stands.items()},
                {side.runs.index(run): side.worker(x.holder) for run, x in stands.items()},
                {side.runs.index(run): x for run, x in ends.items()},
                {side.runs.index(run): plain(x) for run, x in carried.items()},
            )

        self.both(call)

    @invariant()
    def everything_is_said_that_should_be(self) -> None:
        async def call(side: Side) -> Any:
            changes = await side.subject.store.unshown(limit=10_000)
            wished = await side.subject.wished()
            asked = await side.subject.store.wishes(side.workers)
            return (
                [(side.runs.index(c.run_id), c.kind, c.epoch) for c in by_run(changes)],
                {(side.runs.index(run), kind) for run, kind in wished},
                {(side.runs.index(w.run_id), side.worker(w.worker_id), w.kind) for w in asked},
            )

        self.both(call)

    @invariant()
    def questions_and_answers_are_the_same(self) -> None:
        async def call(side: Side) -> Any:
            store = side.subject.store
            pending = await store.pending_approvals()
            return (
                {(side.runs.index(x.run_id), x.step_key, x.digest, x.attempt) for x in pending},
                [set(await store.answers(run)) for run in side.runs[-4:]],
            )

        self.both(call)

    @invariant()
    def history_is_the_same(self) -> None:
        async def call(side: Side) -> Any:
            return [
                [tuple(event)[1:9] for event in await side.subject.store.history(run)]
                for run in side.runs[-6:]
            ]

        self.both(call)

    @invariant()
    def snapshots_and_demand_are_the_same(self) -> None:
        async def call(side: Side) -> Any:
            shown = await side.subject.store.snapshots(side.runs)
            pools = await side.subject.store.pool_demand()
            [demand] = [pool for pool in pools if pool.pool_id == side.subject.pool]
            return (
                {
                    side.runs.index(run): (
                        x.place, x.epoch, x.attempt, x.takeovers, x.max_takeovers, x.worker,
                        x.blamed, x.quarantined,
                        x.timer_reason, x.parked_for, x.suspend_asked, x.cancel_asked,
                        x.status, x.reason, x.message,
                        plain(x.carry), [(e.seq, e.epoch, e.kind) for e in x.lifecycle],
                        x.started_at is None, x.claimed_at is None, x.due_at is None,
                    )
                    for run, x in shown.items()
                },
                (demand.running, demand.claimable, demand.waiting, demand.workers, demand.slots),
                (demand.quarantined, await side.subject.store.alone_waiting(demand.pool_id)),
            )  # fmt: skip

        self.both(call)


def plain(carry: Any) -> Any:
    """Return what is carried, times left out."""
    return [(x.event, x.epoch, x.attempt, x.worker, x.reason, x.message, x.blame) for x in carry]


def by_run(changes: Any) -> Any:
    """Return changes by run: PostgreSQL numbers those of one statement in any order."""
    return sorted(changes, key=lambda change: (change.run_id, change.seq))


# A call that fails is looked for in shorter and shorter sequences, for five minutes at most.
@pytest.mark.timeout(600 + 3 * EXAMPLES)
def test_both_stores_answer_alike(shared_dsn: str) -> None:
    from tests.integration.store.conftest import EMPTY

    class Machine(StoreMachine):
        dsn = shared_dsn
        empty = EMPTY

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=list(HealthCheck),
        ),
    )
