"""One run's journal: what it recalls, when an effect may begin, when a drain may end the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from rowlock.agents.performing import ThreadSeat
from rowlock.agents.protocol import Question
from rowlock.engine.answers import Answers
from rowlock.engine.board import Board
from rowlock.engine.journal import RunJournal
from rowlock.engine.lane import Lane, Leave, Release
from rowlock.engine.trust import Trust
from rowlock.engine.waits import Wait
from rowlock.engine.writer import Writer
from rowlock.errors import RowRejected, TooLarge
from rowlock.metrics import Tally
from rowlock.options import RunOptions
from rowlock.states import Decision, EventKind, ParkReason
from rowlock.store.bodies import pack
from rowlock.store.types import Answer, Event, Final, Flushed, RunId, Verdict

DONE, FAILED, INTENT = EventKind.STEP_DONE, EventKind.STEP_FAILED, EventKind.STEP_INTENT


class Notebook:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def append(self, events: Sequence[Event]) -> Flushed:
        """Keep."""
        self.events += events
        return Flushed(fenced=False)

    async def finish(self, events: Sequence[Event], finals: Sequence[Final]) -> Flushed:
        """No test ends a run."""
        raise NotImplementedError

    async def release(self, releases: Sequence[Release]) -> dict[RunId, Verdict]:
        """No test releases a run."""
        raise NotImplementedError

    async def park(self, leaves: Sequence[Leave]) -> dict[RunId, Verdict]:
        """No test lets a run leave."""
        raise NotImplementedError


class FastClock:
    """Real time; sleeps are short in these tests."""

    def monotonic(self) -> float:
        """Return the time."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Bed:
    """A journal on a running writer, and the run that owns it."""

    def __init__(self, history: Sequence[Event] = (), *, answers: Sequence[Answer] = ()) -> None:
        self.board = Board.create()
        self.board.accepted(time.monotonic_ns() + 10**12)
        self.trust = Trust(self.board, lease_seconds=10)
        self.sink = Notebook()
        self.writer = Writer(clock=FastClock(), tally=Tally(), on_fenced=lambda: None)
        self.writing = asyncio.create_task(self.writer.run(self.sink))
        self.lane = Lane(RunId(1), epoch=2, attempt=1, next_seq=len(history) + 1, owner=self)
        self.yields = 0
        self.free = asyncio.Event()
        self.journal = RunJournal(
            self.lane,
            RunOptions(),
            history=history,
            writer=self.writer,
            trust=self.trust,
            owner=self,
            max_body_bytes=100,
            seat=self.seat,
            answers=answers,
            park_seconds=5,
        )
        self.parks: list[list[Wait]] = []
        self.parked = asyncio.Event()

    def park(self, waits: Sequence[Wait]) -> None:
        """Keep."""
        self.parks.append(list(waits))
        self.parked.set()

    async def seat(self) -> ThreadSeat:
        """Wait until the test lets a blocking call have its place."""
        await self.free.wait()
        return ThreadSeat()

    def yield_now(self) -> None:
        """Count."""
        self.yields += 1

    def settled(self, row: Final | Release, verdict: Verdict) -> None:
        """No test ends a run."""

    def lost(self) -> None:
        """No test loses a run."""

    def rejected(self, row: Event, error: RowRejected) -> None:
        """No test writes a bad row."""

    def drain(self) -> None:
        """Do what the runner does."""
        self.trust.drain()
        self.journal.drain()


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


def event(seq: int, kind: EventKind, key: str | None, body: bytes = b"1") -> Event:
    """Return a row of an earlier owner."""
    return Event(RunId(1), seq, 1, 1, kind, key, 1, None, pack(body))


async def test_the_newest_entry_of_a_step_answers() -> None:
    bed = Bed(
        [event(1, INTENT, "a"), event(2, DONE, "a", b'"x"'), event(3, EventKind.TAKEN_OVER, "64:1")]
    )
    entry = bed.journal.recall("a")
    assert entry is not None
    assert (entry.kind, entry.key, entry.body) == (DONE, "a", b'"x"')
    assert bed.journal.recall("64:1") is None
    assert bed.journal.steps == 1
    await bed.journal.write(DONE, "b", b"2")
    assert [row.seq for row in bed.sink.events] == [4]


async def test_a_compressed_body_is_recalled_as_it_was_written() -> None:
    body = b'"' + b"x" * 5000 + b'"'
    entry = Bed([event(1, DONE, "a", body)]).journal.recall("a")
    assert entry is not None
    assert entry.body == body


async def test_what_was_written_is_recalled_only_after_its_commit() -> None:
    bed = Bed()
    writing = asyncio.create_task(bed.journal.write(DONE, "a", b"1"))
    await asyncio.sleep(0)
    assert bed.journal.recall("a") is None
    await writing
    assert bed.journal.recall("a") is not None


async def test_a_note_is_stored_before_the_next_write() -> None:
    bed = Bed()
    bed.journal.note(EventKind.PROGRESS, "p", b"1")
    await bed.journal.write(DONE, "a", b"1")
    assert [row.key for row in bed.sink.events] == ["p", "a"]


async def test_a_body_over_its_cap_is_refused() -> None:
    bed = Bed()
    with pytest.raises(TooLarge, match="101 bytes, at most 100"):
        await bed.journal.write(DONE, "a", b"x" * 101)
    bed.journal.note(EventKind.PROGRESS, "p", b"x" * 101)
    await bed.journal.write(DONE, "b", b"1")
    assert [(row.key, row.body) for row in bed.sink.events] == [("p", b"null"), ("b", b"1")]


async def test_numbers_too_large_for_their_columns_are_cut() -> None:
    bed = Bed()
    await bed.journal.write(DONE, "a", b"1", tries=10**6, dur_ms=10**12)
    assert (bed.sink.events[0].attempt_try, bed.sink.events[0].dur_ms) == (2**15 - 1, 2**31 - 1)


async def test_an_effect_waits_while_the_lease_is_in_doubt() -> None:
    bed = Bed()
    bed.board.accepted(0)
    beginning = asyncio.create_task(bed.journal.boundary())
    bed.trust.tick()
    await settle()
    assert not beginning.done()
    bed.board.accepted(time.monotonic_ns())
    bed.trust.tick()
    await beginning


async def test_a_drain_ends_the_run_at_its_next_boundary() -> None:
    bed = Bed()
    await bed.journal.boundary()
    bed.drain()
    assert bed.yields == 0  # an effect is under way
    await bed.journal.write(DONE, "a", b"1")
    waiting = asyncio.create_task(bed.journal.boundary())
    await settle()
    assert bed.yields == 1
    assert not waiting.done()
    waiting.cancel()


async def test_a_drain_does_not_wait_for_a_call_that_waits_for_an_executor() -> None:
    """It has not begun: its intent is written after that."""
    bed = Bed()
    waiting = asyncio.create_task(bed.journal.executor())
    await settle()
    bed.drain()
    assert bed.yields == 1
    waiting.cancel()


async def test_a_call_that_has_its_executor_holds_a_drain_up_only_once_it_begins() -> None:
    bed = Bed()
    bed.free.set()
    seat = await bed.journal.executor()
    await bed.journal.boundary()
    bed.drain()
    assert bed.yields == 0
    await bed.journal.write(DONE, "a", b"1")
    late = asyncio.create_task(bed.journal.executor())
    await settle()
    assert bed.yields == 1
    assert not late.done()
    late.cancel()
    seat.leave()


async def test_a_drain_waits_for_the_effects_of_other_branches() -> None:
    bed = Bed()
    await bed.journal.boundary()
    bed.drain()
    waiting = asyncio.create_task(bed.journal.boundary())
    await settle()
    assert bed.yields == 0
    await bed.journal.write(INTENT, "a", b"1")
    assert bed.yields == 0
    await bed.journal.write(FAILED, "a", b"1")
    assert bed.yields == 1
    waiting.cancel()


async def test_a_drain_ends_a_run_that_waits_between_two_tries() -> None:
    bed = Bed()
    await bed.journal.boundary()
    waiting = asyncio.create_task(bed.journal.pause(50))
    await settle()
    bed.drain()
    assert (bed.yields, bed.parks) == (1, [])
    waiting.cancel()


async def test_a_run_that_was_let_go_writes_nothing_more() -> None:
    bed = Bed()
    bed.lane.closed = True
    for call in (bed.journal.write(DONE, "a", b"1"), bed.journal.boundary()):
        with pytest.raises(asyncio.CancelledError):
            await call
    assert bed.sink.events == []


# -------------------------------------------------------------------- waits


async def parks(bed: Bed) -> list[list[Wait]]:
    """Wait until the run was parked."""
    async with asyncio.timeout(5):
        await bed.parked.wait()
    return bed.parks


def question(key: str = "pay:1", digest: str = "d") -> Question:
    return Question(key, digest, "pay", b"{}")


async def test_a_run_parks_when_its_only_branch_sleeps_for_long() -> None:
    bed = Bed()
    sleeping = asyncio.create_task(bed.journal.sleep(60))
    [[wait]] = await parks(bed)
    assert wait.reason is ParkReason.SLEEP
    assert wait.due is not None
    assert 55 < wait.due - time.monotonic() <= 60
    with pytest.raises(asyncio.CancelledError):
        await bed.journal.boundary()  # nothing begins any more
    sleeping.cancel()


async def test_a_short_sleep_and_a_short_pause_keep_the_run_here() -> None:
    bed = Bed()
    waiting = asyncio.create_task(bed.journal.sleep(60))
    short = asyncio.create_task(bed.journal.pause(0.1))
    await short
    assert bed.parks == []  # the second branch was on its way to another try
    await parks(bed)
    waiting.cancel()


async def test_a_run_does_not_park_while_a_branch_is_in_an_effect() -> None:
    bed = Bed()
    await bed.journal.boundary()
    waiting = asyncio.create_task(bed.journal.sleep(60))
    await settle()
    assert bed.journal._quiet is None  # it does not even consider it
    await bed.journal.write(DONE, "a", b"1")
    await parks(bed)
    waiting.cancel()


async def test_a_branch_that_goes_on_at_once_puts_the_park_off() -> None:
    bed = Bed()
    waiting = asyncio.create_task(bed.journal.sleep(60))
    for number in range(20):
        await bed.journal.boundary()
        await bed.journal.write(DONE, f"a{number}", b"1")
        await asyncio.sleep(0.005)
        assert bed.parks == []
    await parks(bed)
    waiting.cancel()


async def test_all_questions_of_a_turn_leave_together() -> None:
    bed = Bed()
    asking = [asyncio.create_task(bed.journal.ask(question(f"pay:{n}"))) for n in (1, 2)]
    [waits] = await parks(bed)
    assert [wait.question and wait.question.key for wait in waits] == ["pay:1", "pay:2"]
    for task in asking:
        task.cancel()


async def test_an_answer_that_is_known_is_given_at_once_and_written_once() -> None:
    bed = Bed(answers=[Answer("pay:1", "d", 1, Decision.APPROVED, "ada", "")])
    for _ in range(2):
        reply = await bed.journal.ask(question())
        assert (reply.approved, reply.by, reply.expired) == (True, "ada", False)
    await bed.journal.write(DONE, "a", b"1")
    assert [row.kind for row in bed.sink.events] == [EventKind.DECIDED, DONE]
    other = asyncio.create_task(bed.journal.ask(question(digest="other")))
    await parks(bed)
    other.cancel()


@pytest.mark.parametrize(
    ("decision", "attempt", "holds"),
    [
        (Decision.APPROVED, 1, True),
        (Decision.DENIED, 1, False),
        (Decision.EXPIRED, 1, False),
        (Decision.DENIED, 2, True),
    ],
)
def test_of_an_earlier_attempt_only_an_approval_holds(
    decision: Decision, attempt: int, holds: bool
) -> None:
    answers = Answers([Answer("pay:1", "d", attempt, decision, "ada", "")], (), attempt=2)
    assert (answers.find(question()) is not None) == holds


async def test_a_suspension_waits_for_the_effect_and_then_parks() -> None:
    bed = Bed()
    await bed.journal.boundary()
    bed.journal.suspend()
    await settle()
    assert bed.parks == []
    await bed.journal.write(DONE, "a", b"1")
    following = asyncio.create_task(bed.journal.boundary())
    assert await parks(bed) == [[]]
    following.cancel()


async def test_a_suspension_parks_a_run_in_the_middle_of_a_wait() -> None:
    bed = Bed()
    waiting = asyncio.create_task(bed.journal.pause(30))
    await settle()
    bed.journal.suspend()
    assert bed.parks == [[]]
    waiting.cancel()


async def test_a_drain_parks_a_run_that_waits_for_a_person() -> None:
    bed = Bed()
    asking = asyncio.create_task(bed.journal.ask(question()))
    await settle()
    bed.drain()
    assert (bed.yields, len(bed.parks)) == (0, 1)
    asking.cancel()


async def test_the_age_of_a_sleep_counts_from_when_it_was_stored() -> None:
    sleep = Event(RunId(1), 1, 1, 1, EventKind.SLEEP, "sleep:a", 1, None, pack(b"1"), 90.0)
    bed = Bed([sleep])
    assert 90 <= bed.journal.age("sleep:a") < 95
    assert bed.journal.age("unknown") == 0.0
    bed.journal.note(EventKind.SLEEP, "sleep:b", b"1")
    assert 0 <= bed.journal.age("sleep:b") < 5
