"""Any sequence of statements leaves the store where a few lines of Python say it should be.

Races are elsewhere; here one statement follows the other, in every order Hypothesis comes up with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
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

from rowlock.states import Decision, EventKind, FenceReason, FinalStatus, Place
from rowlock.store import approvals, intake, parking, redrive, work, workers
from rowlock.store.types import (
    Claimed,
    Deciding,
    Event,
    Final,
    NewQuestion,
    Parked,
    Redriving,
    RunId,
    Verdict,
    WorkerId,
)
from tests.integration.store.world import World

T = TypeVar("T")


@dataclass
class Run:
    """What the model knows of one run."""

    number: int
    priority: int
    max_takeovers: int
    place: Place = Place.READY
    epoch: int = 0
    attempt: int = 1
    takeovers: int = 0
    holder: WorkerId | None = None
    wished: bool = False
    suspending: bool = False
    #: What it parked for last, and its open question with the attempt that asks.
    waits_for: str = ""
    question: tuple[str, int] | None = None
    events: int = 0
    ended: dict[int, FinalStatus] = field(default_factory=dict)
    #: Its place in the shared queue, and in the backlog.
    line: float = 0
    wait: float = 0

    @property
    def urgency(self) -> tuple[int, float, int]:
        return (-self.priority, self.line, self.number)

    @property
    def turn(self) -> tuple[int, float, int]:
        return (-self.priority, self.wait, self.number)


@dataclass(frozen=True)
class Hold:
    """What a worker believes to hold; the belief may be out of date."""

    worker: WorkerId
    run: RunId
    epoch: int
    attempt: int


class StoreMachine(RuleBasedStateMachine):
    """The store beside its model."""

    dsn: str
    empty: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.world = self.do(World.create(self.dsn))
        self.runs: dict[RunId, Run] = {}
        self.fenced: set[WorkerId] = set()
        self.token = 0
        self.cap: int | None = None
        self.places = 0

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(call)

    def teardown(self) -> None:
        self.do(self.world.sound())
        self.do(self.world.sql("SELECT 1"))
        self.do(self._clean())
        self.loop.close()

    async def _clean(self) -> None:
        from tests.integration.store.world import raw_of

        await raw_of(self.world.store).execute(self.empty)
        await self.world.close()

    worker_ids = Bundle("worker_ids")
    run_ids = Bundle("run_ids")
    holds = Bundle("holds")

    # ---------------------------------------------------------------- rules

    @initialize(target=worker_ids)
    def first_worker(self) -> WorkerId:
        return self.do(self.world.worker())

    @rule(target=worker_ids)
    def register(self) -> WorkerId:
        return self.do(self.world.worker())

    @rule(
        target=run_ids,
        count=st.integers(1, 3),
        linked=st.booleans(),
        priority=st.integers(0, 1),
        limit=st.integers(0, 2),
    )
    def enqueue(self, count: int, linked: bool, priority: int, limit: int) -> Any:
        made = self.do(
            self.world.enqueue(count, linked=linked, priority=priority, max_takeovers=limit)
        )
        for run in made:
            self.runs[run] = model = Run(len(self.runs), priority, limit)
            self._queue(model)
        if self.cap is not None:
            self._promote()
        return multiple(*made)

    @rule(limit=st.sampled_from([None, 1, 2, 4]))
    def set_cap(self, limit: int | None) -> None:
        self.do(self.world.cap(**({} if limit is None else {"max_running": limit})))
        before, self.cap = self.cap, limit
        if limit is not None and (before is None or limit < before):
            # From the last to the first: each goes in front of what waits already.
            for model in sorted(self._in(Place.READY), key=lambda run: run.urgency, reverse=True):
                model.place, self.places = Place.BACKLOG, self.places + 1
                model.wait = float("-inf") if model.epoch else -self.places
        if limit != before:
            self._promote()

    @rule()
    def promote(self) -> None:
        assert self.do(self.world.promote()) == self._promote()

    @rule(target=holds, worker=worker_ids, limit=st.integers(1, 3))
    def claim(self, worker: WorkerId, limit: int) -> Any:
        self.token += 1
        claimed = self.do(
            work.claim(
                self.world.store, worker=worker, pool=self.world.pool, token=self.token, limit=limit
            )
        )
        assert (claimed is None) == (worker in self.fenced)
        ready = sorted(
            (run for run in self.runs if self.runs[run].place is Place.READY),
            key=lambda run: self.runs[run].urgency,
        )
        expected = [] if claimed is None else ready[:limit]
        assert {run.run_id for run in claimed or []} == set(expected)
        return multiple(*(self._lease(run, worker) for run in claimed or []))

    @rule(target=holds, worker=worker_ids)
    def adopt(self, worker: WorkerId) -> Any:
        self.token += 1
        adopted = self.do(work.adopt(self.world.store, worker=worker, token=self.token, known=[]))
        assert (adopted is None) == (worker in self.fenced)
        held = {run for run, model in self.runs.items() if model.holder == worker}
        assert {run.run_id for run in adopted or []} == held
        return multiple(*(Hold(worker, r.run_id, r.epoch, r.attempt) for r in adopted or []))

    @rule(hold=holds, count=st.integers(1, 3), again=st.booleans())
    def append(self, hold: Hold, count: int, again: bool) -> None:
        model = self.runs[hold.run]
        events = [self._event(hold, model.events + n + 1) for n in range(count)]
        for _ in range(2 if again else 1):
            flushed = self.do(work.append(self.world.store, worker=hold.worker, events=events))
            assert flushed.fenced == (hold.worker in self.fenced)
            if not flushed.fenced:
                assert flushed.lost == (frozenset() if self._holds(hold) else {hold.run})
        if self._holds(hold):
            model.events += count

    @rule(
        hold=holds,
        status=st.sampled_from(FinalStatus),
        retry=st.booleans(),
        again=st.booleans(),
    )
    def finish(self, hold: Hold, status: FinalStatus, retry: bool, again: bool) -> None:
        model, held = self.runs[hold.run], self._holds(hold)
        final = Final(
            hold.run, hold.epoch, status, reason="r", retry_in_seconds=3600 if retry else None
        )
        events = [self._event(hold, model.events + 1)]
        for turn in range(2 if again else 1):
            flushed = self.do(
                work.finish(self.world.store, worker=hold.worker, events=events, finals=[final])
            )
            assert flushed.fenced == (hold.worker in self.fenced)
            if flushed.fenced:
                continue
            if held and turn == 0:
                assert flushed.finals == {hold.run: Verdict.DONE}
            elif not held:
                assert flushed.finals[hold.run] is not Verdict.DONE
            else:
                assert flushed.finals == {hold.run: Verdict.ALREADY_DONE}
                assert flushed.lost == frozenset()
        if held:
            model.events += 1
            self._end_attempt(model, status, retry)

    @rule(hold=holds, again=st.booleans())
    def release(self, hold: Hold, again: bool) -> None:
        held = self._holds(hold)
        runs = [(hold.run, hold.epoch, 0)]
        verdict = self.do(work.release(self.world.store, worker=hold.worker, runs=runs))[hold.run]
        assert (verdict is Verdict.DONE) == held
        if not held:
            return
        model = self.runs[hold.run]
        model.holder = None
        self._queue(model)
        if model.wished:
            self._final(model, FinalStatus.CANCELLED)
        if again:
            repeated = self.do(work.release(self.world.store, worker=hold.worker, runs=runs))
            assert repeated == {hold.run: Verdict.ALREADY_DONE}

    @rule(hold=holds, waits=st.sampled_from(["", "sleep", "approval"]), again=st.booleans())
    def park(self, hold: Hold, waits: str, again: bool) -> None:
        model, held = self.runs[hold.run], self._holds(hold)
        seq, wake_in = model.events + 1, 3600.0 if waits == "sleep" else None
        asked = (NewQuestion(f"q{seq}", "d", "t", b"{}"),) if waits == "approval" else ()
        reasons = (waits,) if waits else ()
        row = Parked(hold.run, hold.epoch, seq, 0, reasons, wake_in, b"{}", asked)
        call = {"worker": hold.worker, "runs": [row]}
        verdict = self.do(parking.park(self.world.store, **call))[hold.run]
        assert (verdict is Verdict.DONE) == held
        if not held:
            return
        if model.wished:
            self._final(model, FinalStatus.CANCELLED)
        else:
            model.events += 1
            self._leave_lease(model, Place.PARKED)
            model.waits_for = waits
            if asked:
                model.question = (asked[0].step_key, model.attempt)
            if not (waits or model.suspending):
                self._queue(model)
        if again:
            repeated = self.do(parking.park(self.world.store, **call))
            assert repeated == {hold.run: Verdict.ALREADY_DONE}

    @rule(run=run_ids, decision=st.sampled_from([Decision.APPROVED, Decision.DENIED]))
    def decide(self, run: RunId, decision: Decision) -> None:
        model = self.runs[run]
        if model.question is None:
            return
        key, attempt = model.question
        decided = self.do(
            approvals.decide(
                self.world.store, run, step_key=key, digest="d", attempt=attempt,
                decision=decision, by="ada",
            )
        )  # fmt: skip
        open_ = model.place is not Place.FINAL and model.attempt == attempt
        assert (decided.outcome is Deciding.DECIDED) == open_
        if open_:
            model.question = None
            waits = model.waits_for == "approval" and model.place is Place.PARKED
            if waits and not model.suspending:
                self._queue(model)

    @rule(run=run_ids)
    def request_suspend(self, run: RunId) -> None:
        suspended = self.do(parking.request_suspend(self.world.store, [run], by="ada"))
        model = self.runs[run]
        if model.place is Place.FINAL:
            assert suspended == []
            return
        model.suspending = True
        assert suspended == ([] if model.place is Place.LEASE else [run])
        if model.place is not Place.LEASE:
            model.place = Place.PARKED

    @rule(run=run_ids)
    def request_continue(self, run: RunId) -> None:
        continued = self.do(parking.request_continue(self.world.store, [run]))
        model = self.runs[run]
        assert continued == ([run] if model.suspending else [])
        if model.suspending and model.place is Place.PARKED:
            self._queue(model)
        model.suspending = False

    @rule(run=run_ids)
    def redrive(self, run: RunId) -> None:
        model = self.runs[run]
        outcome = self.do(redrive.redrive(self.world.store, run, by="ada"))
        assert (outcome is Redriving.QUEUED) == (model.place is Place.FINAL)
        if outcome is Redriving.QUEUED:
            model.takeovers, model.attempt = 0, model.attempt + 1
            self._queue(model, last=True)

    @rule(worker=worker_ids, reason=st.sampled_from(FenceReason))
    def fence(self, worker: WorkerId, reason: FenceReason) -> None:
        fenced = self.do(workers.fence(self.world.store, [worker], reason=reason))
        assert fenced.workers == (() if worker in self.fenced else (worker,))
        self.fenced.add(worker)
        moved = {*fenced.requeued, *fenced.delayed, *fenced.failed, *fenced.cancelled}
        assert moved == {run for run, model in self.runs.items() if model.holder == worker}
        for run in moved:
            self._lose(self.runs[run], counted=reason is not FenceReason.LEFT)

    @rule(run=run_ids)
    def request_cancel(self, run: RunId) -> None:
        ended = self.do(intake.request_cancel(self.world.store, [run], by="ada"))
        model = self.runs[run]
        if model.place is Place.LEASE:
            model.wished = True
            assert ended == []
            return
        if model.place is not Place.FINAL:
            self._final(model, FinalStatus.CANCELLED)
        assert ended == [run]

    @rule()
    def wake_all(self) -> None:
        self.do(self.world.sql("UPDATE rowlock.run_timer SET due_at = rowlock.now()"))
        woken = self.do(intake.wake_due(self.world.store))
        sleeping = [model for model in self.runs.values() if model.place is Place.TIMER]
        assert woken == len(sleeping)
        for model in sleeping:
            self._queue(model)
        self.do(
            self.world.sql(
                "UPDATE rowlock.run_parked SET wake_at = rowlock.now() WHERE wake_at IS NOT NULL"
            )
        )
        parked = [m for m in self._in(Place.PARKED) if m.waits_for == "sleep" and not m.suspending]
        assert self.do(parking.wake_parked(self.world.store)) == len(parked)
        for model in parked:
            self._queue(model)

    @rule()
    def sweep(self) -> None:
        assert self.do(intake.cancel_waiting(self.world.store)) == []
        assert self.do(intake.expire_queued(self.world.store)) == []
        moved = [m for m in self.runs.values() if self._to_be_suspended(m)]
        assert len(self.do(parking.suspend_waiting(self.world.store))) == len(moved)
        for model in moved:
            model.place = Place.PARKED

    def _to_be_suspended(self, model: Run) -> bool:
        return model.suspending and model.place in (Place.READY, Place.BACKLOG, Place.TIMER)

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def places_and_counters_agree(self) -> None:
        rows = self.do(
            self.world.sql(
                "SELECT run_id, place, epoch, attempt, takeovers, worker_id FROM rowlock.run_live"
            )
        )
        live = {row["run_id"]: tuple(row)[1:] for row in rows}
        expected = {
            run: (m.place, m.epoch, m.attempt, m.takeovers, m.holder)
            for run, m in self.runs.items()
            if m.place is not Place.FINAL
        }
        assert live == expected

    @invariant()
    def history_agrees(self) -> None:
        ended = self.do(self.world.sql("SELECT run_id, attempt, status FROM rowlock.run_final"))
        assert {(r["run_id"], r["attempt"]): r["status"] for r in ended} == {
            (run, attempt): status
            for run, model in self.runs.items()
            for attempt, status in model.ended.items()
        }
        counted = self.do(
            self.world.sql(
                "SELECT run_id, count(*) AS n, max(seq) AS last FROM rowlock.run_event GROUP BY 1"
            )
        )
        assert {row["run_id"]: (row["n"], row["last"]) for row in counted} == {
            run: (model.events, model.events) for run, model in self.runs.items() if model.events
        }

    @invariant()
    def wishes_are_kept_until_they_are_done(self) -> None:
        wished = {
            (row["run_id"], row["kind"])
            for row in self.do(self.world.sql("SELECT run_id, kind FROM rowlock.wish"))
        }
        assert wished == {(run, 1) for run, m in self.runs.items() if m.wished} | {
            (run, 2) for run, m in self.runs.items() if m.suspending
        }

    # ---------------------------------------------------------------- the model's moves

    def _holds(self, hold: Hold) -> bool:
        model = self.runs[hold.run]
        return model.holder == hold.worker and model.epoch == hold.epoch

    def _lease(self, claimed: Claimed, worker: WorkerId) -> Hold:
        model = self.runs[claimed.run_id]
        model.place, model.holder, model.epoch = Place.LEASE, worker, model.epoch + 1
        assert (claimed.epoch, claimed.attempt) == (model.epoch, model.attempt)
        assert claimed.cancelled == model.wished
        return Hold(worker, claimed.run_id, claimed.epoch, claimed.attempt)

    def _event(self, hold: Hold, seq: int) -> Event:
        return Event(hold.run, seq, hold.epoch, hold.attempt, EventKind.STEP_DONE, "k", 1, 1, b"1")

    def _leave_lease(self, model: Run, place: Place) -> None:
        model.holder, model.place = None, place

    def _final(self, model: Run, status: FinalStatus) -> None:
        self._leave_lease(model, Place.FINAL)
        model.ended[model.attempt] = status
        model.wished = model.suspending = False

    def _end_attempt(self, model: Run, status: FinalStatus, retry: bool) -> None:
        if retry and not model.wished:
            suspending = model.suspending
            self._final(model, status)
            model.suspending = suspending
            model.place, model.attempt = Place.TIMER, model.attempt + 1
        else:
            self._final(model, FinalStatus.CANCELLED if retry else status)

    def _lose(self, model: Run, *, counted: bool) -> None:
        model.takeovers += counted
        if model.wished:
            self._final(model, FinalStatus.CANCELLED)
        elif model.takeovers > model.max_takeovers:
            self._final(model, FinalStatus.FAILED)
        elif counted and model.takeovers > 1:
            self._leave_lease(model, Place.TIMER)
        else:
            model.holder = None
            self._queue(model)

    def _in(self, place: Place) -> list[Run]:
        return [model for model in self.runs.values() if model.place is place]

    def _queue(self, model: Run, *, last: bool = False) -> None:
        self.places += 1
        if self.cap is not None:
            model.place, model.wait = Place.BACKLOG, float("-inf") if model.epoch else self.places
            return
        model.place = Place.READY
        if last or not model.epoch:
            model.line = self.places

    def _promote(self) -> int:
        held = len(self._in(Place.READY)) + len(self._in(Place.LEASE))
        room = len(self.runs) if self.cap is None else max(0, self.cap - held)
        promoted = sorted(self._in(Place.BACKLOG), key=lambda run: run.turn)[:room]
        for model in promoted:
            self.places += 1
            model.place, model.line = Place.READY, float("-inf") if model.epoch else self.places
        return len(promoted)


def test_store_follows_its_model(shared_dsn: str) -> None:
    from tests.integration.store.conftest import EMPTY

    class Machine(StoreMachine):
        dsn = shared_dsn
        empty = EMPTY

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
