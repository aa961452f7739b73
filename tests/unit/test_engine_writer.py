"""The writer: batching by back-pressure, order, and whose problem an error is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from rowlock import metrics
from rowlock.engine.lane import Lane, Leave, Release
from rowlock.engine.writer import MAX_ROWS, Writer
from rowlock.errors import RowRejected, StoreUnavailable
from rowlock.metrics import Tally
from rowlock.states import EventKind, FinalStatus
from rowlock.store.types import Event, Final, Flushed, RunId, Verdict


class QuickClock:
    """Counts what would have been waited."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Stand still but for sleeps."""
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        """Give others a turn."""
        self.slept.append(seconds)
        await asyncio.sleep(0)


@dataclass
class ScriptedSink:
    """Answers as the test says, in the middle of a statement if it holds the gate closed."""

    answers: list[Exception | Flushed] = field(default_factory=list)
    refuses: Callable[[Event | Final], str | None] = lambda _: None
    sent: list[list[Event | Final | Release | Leave]] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def append(self, events: Sequence[Event]) -> Flushed:
        """Store history."""
        return await self._answer(list(events))

    async def finish(self, events: Sequence[Event], finals: Sequence[Final]) -> Flushed:
        """Store history and ends."""
        answer = await self._answer([*events, *finals])
        if answer.fenced or answer.finals:
            return answer
        ended = {final.run_id: Verdict.DONE for final in finals}
        return Flushed(fenced=False, lost=answer.lost, finals=ended)

    async def release(self, releases: Sequence[Release]) -> dict[RunId, Verdict]:
        """Give runs back."""
        await self._answer(list(releases))
        return {row.run_id: Verdict.DONE for row in releases}

    async def park(self, leaves: Sequence[Leave]) -> dict[RunId, Verdict]:
        """Let runs wait."""
        await self._answer(list(leaves))
        return {row.run_id: Verdict.DONE for row in leaves}

    async def _answer(self, rows: list[Event | Final | Release | Leave]) -> Flushed:
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else Flushed(fenced=False)
        if isinstance(answer, Exception):
            raise answer
        for row in rows:
            state = None if isinstance(row, Release | Leave) else self.refuses(row)
            if state:
                raise RowRejected("no", sqlstate=state)
        self.sent.append(rows)
        return answer


class Owner:
    """Hears what the writer says of one run."""

    def __init__(self) -> None:
        self.settlements: list[tuple[Final | Release, Verdict]] = []
        self.rejections: list[Event] = []
        self.losses = 0

    def settled(self, row: Final | Release, verdict: Verdict) -> None:
        """Remember."""
        self.settlements.append((row, verdict))

    def lost(self) -> None:
        """Remember."""
        self.losses += 1

    def rejected(self, row: Event, error: RowRejected) -> None:  # noqa: ARG002
        """Remember."""
        self.rejections.append(row)


class Desk:
    """A writer with its sinks running, and lanes to give rows to."""

    def __init__(self, *sinks: ScriptedSink) -> None:
        self.sinks = sinks
        self.clock = QuickClock()
        self.tally = Tally()
        self.fenced = 0
        self.writer = Writer(clock=self.clock, tally=self.tally, on_fenced=self._fence)
        self.tasks = [asyncio.create_task(self.writer.run(sink)) for sink in sinks]

    def _fence(self) -> None:
        self.fenced += 1

    def lane(self, run: int) -> tuple[Lane, Owner]:
        """Return a new run's lane and its owner."""
        owner = Owner()
        return Lane(RunId(run), epoch=1, attempt=1, next_seq=1, owner=owner), owner

    def give(self, lane: Lane, key: str = "step") -> asyncio.Future[None]:
        """Give a durable event."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writer.give(lane, lane.event(EventKind.STEP_DONE, key, b"1"), 1, waiter)
        return waiter

    async def close(self) -> None:
        """End the writer; a bug in it raises here."""
        self.writer.close()
        await asyncio.gather(*self.tasks)


def end(lane: Lane) -> Final:
    """Return the end of a lane's run."""
    return Final(lane.run_id, lane.epoch, FinalStatus.SUCCEEDED, result=b"1")


async def turns(count: int = 10) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_rows_given_in_one_turn_of_the_loop_share_a_batch() -> None:
    sink = ScriptedSink()
    desk = Desk(sink, ScriptedSink(), ScriptedSink())
    await turns()
    waiters = [desk.give(desk.lane(run)[0]) for run in range(5)]
    await asyncio.gather(*waiters)
    assert [len(batch) for batch in sink.sent] == [5]
    await desk.close()


async def test_a_batch_leaves_at_once_while_a_connection_is_free_and_grows_while_none_is() -> None:
    gate = asyncio.Event()
    sinks = [ScriptedSink(gate=gate) for _ in range(3)]
    desk = Desk(*sinks)
    for run in range(3):
        desk.give(desk.lane(run)[0])
        await turns()
    waiters = [desk.give(desk.lane(run)[0]) for run in range(10, 30)]
    await turns()
    assert desk.writer.state().waiting_rows == 23
    gate.set()
    await asyncio.gather(*waiters)
    assert sorted(len(batch) for sink in sinks for batch in sink.sent) == [1, 1, 1, 20]
    await desk.close()


async def test_a_run_never_has_two_batches_in_flight() -> None:
    gate = asyncio.Event()
    sinks = [ScriptedSink(gate=gate) for _ in range(3)]
    desk = Desk(*sinks)
    lane, _ = desk.lane(1)
    waiters = []
    for number in range(6):
        waiters.append(desk.give(lane, f"step-{number}"))
        await turns()
    gate.set()
    await asyncio.gather(*waiters)
    batches = [batch for sink in sinks for batch in sink.sent]
    assert [[row.seq for row in batch if isinstance(row, Event)] for batch in batches] == [
        [1],
        [2, 3, 4, 5, 6],
    ]
    await desk.close()


async def test_no_batch_is_larger_than_its_ceilings() -> None:
    sink = ScriptedSink()
    desk = Desk(sink)
    lane, _ = desk.lane(1)
    waiters = [desk.give(lane, f"step-{number}") for number in range(MAX_ROWS + 20)]
    big = desk.lane(2)[0]
    for _ in range(3):
        desk.writer.give(big, big.event(EventKind.PROGRESS, "p", b"x"), 700_000)
    await asyncio.gather(*waiters)
    await turns()
    # A run with many rows goes behind the others for its next batch.
    assert [len(batch) for batch in sink.sent] == [MAX_ROWS, 2, 21]
    assert desk.writer.empty
    await desk.close()


async def test_an_end_goes_with_the_events_before_it_in_one_statement() -> None:
    sink = ScriptedSink()
    desk = Desk(sink)
    lane, owner = desk.lane(1)
    desk.writer.give(lane, lane.event(EventKind.PROGRESS, "p", b"1"), 1)
    desk.writer.give(lane, end(lane))
    await turns()
    assert len(sink.sent) == 1
    assert [verdict for _, verdict in owner.settlements] == [Verdict.DONE]
    await desk.close()


async def test_a_release_goes_after_all_that_its_run_wrote() -> None:
    sink = ScriptedSink()
    desk = Desk(sink)
    lane, owner = desk.lane(1)
    desk.writer.give(lane, lane.event(EventKind.PROGRESS, "p", b"1"), 1)
    desk.writer.give(lane, Release(lane.run_id, 1, 20))
    await turns()
    assert [type(batch[0]) for batch in sink.sent] == [Event, Release]
    assert [verdict for _, verdict in owner.settlements] == [Verdict.DONE]
    await desk.close()


async def test_a_release_that_an_earlier_try_had_done_is_not_a_lost_run() -> None:
    sink = ScriptedSink(answers=[Flushed(fenced=False, lost=frozenset({RunId(1)}))])
    desk = Desk(sink)
    lane, owner = desk.lane(1)
    desk.writer.give(lane, lane.event(EventKind.PROGRESS, "p", b"1"), 1)
    desk.writer.give(lane, Release(lane.run_id, 1, 20))
    await turns()
    assert owner.losses == 0
    await desk.close()


async def test_an_absent_database_gets_the_same_batch_until_it_takes_it() -> None:
    sink = ScriptedSink(answers=[StoreUnavailable("away")] * 4)
    desk = Desk(sink)
    waiter = desk.give(desk.lane(1)[0])
    await waiter
    assert [len(batch) for batch in sink.sent] == [1]
    assert len(desk.clock.slept) == 4
    assert max(desk.clock.slept) <= 1.5
    assert (("rowlock_writer_retries_total",), 4) in desk.tally.take()
    await desk.close()


async def test_an_error_that_nobody_foresaw_is_treated_like_an_absent_database() -> None:
    sink = ScriptedSink(answers=[RuntimeError("a bug in the driver")])
    desk = Desk(sink)
    await desk.give(desk.lane(1)[0])
    await desk.close()


async def test_a_bad_row_is_found_by_halving_and_leaves_a_tombstone_at_its_number() -> None:
    sink = ScriptedSink(
        refuses=lambda row: "22021" if isinstance(row, Event) and row.key == "bad" else None
    )
    desk = Desk(sink)
    lanes = [desk.lane(run) for run in range(8)]
    good = [desk.give(lane) for lane, _ in lanes]
    bad = desk.give(lanes[3][0], "bad")
    after = desk.give(lanes[3][0], "after")
    await asyncio.gather(*good, after)
    assert not bad.done()
    assert [len(owner.rejections) for _, owner in lanes] == [0, 0, 0, 1, 0, 0, 0, 0]
    stored = [row for batch in sink.sent for row in batch if row.run_id == 3]
    assert [(row.seq, row.key) for row in stored if isinstance(row, Event)] == [
        (1, "step"),
        (2, None),
        (3, "after"),
    ]
    assert ((metrics.REJECTED_ROWS.name, "22021"), 1) in desk.tally.take()
    assert desk.writer.empty
    await desk.close()


@pytest.mark.parametrize(("sqlstate", "reason"), [("22021", "AgentError"), ("54000", "TooLarge")])
async def test_an_end_that_cannot_be_stored_is_replaced_by_a_plain_failure(
    sqlstate: str, reason: str
) -> None:
    sink = ScriptedSink(
        refuses=lambda row: sqlstate if isinstance(row, Final) and row.result else None
    )
    desk = Desk(sink)
    lane, owner = desk.lane(1)
    desk.writer.give(lane, end(lane))
    await turns()
    [[stored]] = sink.sent
    assert isinstance(stored, Final)
    assert (stored.status, stored.reason) == (FinalStatus.FAILED, reason)
    assert len(owner.settlements) == 1
    await desk.close()


async def test_an_end_that_is_refused_in_every_form_lets_its_run_go() -> None:
    sink = ScriptedSink(refuses=lambda row: "22000" if isinstance(row, Final) else None)
    desk = Desk(sink)
    lane, owner = desk.lane(1)
    desk.writer.give(lane, end(lane))
    other = desk.give(desk.lane(2)[0])
    await other
    await turns(30)
    assert owner.losses == 1
    await desk.close()


async def test_a_lost_run_is_told_so_and_its_rows_are_dropped() -> None:
    gate = asyncio.Event()
    sink = ScriptedSink(gate=gate, answers=[Flushed(fenced=False, lost=frozenset({RunId(1)}))])
    desk = Desk(sink)
    (lost, owner), (kept, _) = desk.lane(1), desk.lane(2)
    waiters = [desk.give(lost), desk.give(kept)]
    await turns()
    waiters.append(desk.give(lost, "later"))
    gate.set()
    await waiters[1]
    await turns()
    assert [waiter.done() for waiter in waiters] == [False, True, False]
    assert owner.losses == 1
    assert lost.closed
    assert desk.writer.empty
    await desk.close()


async def test_a_fenced_worker_writes_nothing_more() -> None:
    sink = ScriptedSink(answers=[Flushed(fenced=True)])
    desk = Desk(sink)
    waiter = desk.give(desk.lane(1)[0])
    await turns()
    desk.give(desk.lane(2)[0])
    await turns()
    assert desk.fenced == 1
    assert not waiter.done()
    assert len(sink.sent) == 1
    await asyncio.gather(*desk.tasks)


async def test_its_state_says_what_waits_and_for_how_long() -> None:
    sink = ScriptedSink(answers=[StoreUnavailable("away")] * 3)
    desk = Desk(sink)
    waiter = desk.give(desk.lane(1)[0])
    await turns(1)
    state = desk.writer.state()
    assert (state.waiting_rows, state.waiting_bytes) == (1, 1)
    await waiter
    state = desk.writer.state()
    assert state.slowest_batch == pytest.approx(sum(desk.clock.slept))
    assert desk.writer.state().slowest_batch == 0
    await desk.close()
