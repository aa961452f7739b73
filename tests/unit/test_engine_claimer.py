"""The claimer: how much it asks for, how soon, and what it does about lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from rowlock.engine.claimer import Claimer
from rowlock.engine.pace import MOST, ClaimReport
from rowlock.engine.prepared import Prepared, Revision
from rowlock.errors import StoreUnavailable
from rowlock.metrics import Tally
from rowlock.store.types import AgentId, Claimed, Event, RevisionId, RunBody, RunId


def claimed(run: int, *, epoch: int = 1) -> Claimed:
    """Return a claimed run."""
    return Claimed(
        run_id=RunId(run),
        epoch=epoch,
        attempt=1,
        agent_id=AgentId(1),
        revision_id=RevisionId(1),
        key=None,
        takeovers=0,
        max_takeovers=5,
        active_ms=0,
        linked=False,
        claimed_at=datetime.now(UTC),
    )


@dataclass
class Queue:
    """A store with a number of runs in its queue, that fails as the test says."""

    waiting: int = 0
    claim_errors: list[Exception] = field(default_factory=list)
    read_errors: list[Exception] = field(default_factory=list)
    left_over: list[Claimed] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    histories: list[RunId] = field(default_factory=list)
    adoptions: list[set[RunId]] = field(default_factory=list)
    fenced: bool = False
    held: int = 0
    promotions: list[AgentId] = field(default_factory=list)
    promotion_errors: list[Exception] = field(default_factory=list)
    _next: int = 0

    async def claim(self, *, token: int, limit: int) -> list[Claimed] | None:
        """Lease."""
        self.tokens.append(token)
        self.limits.append(limit)
        if self.claim_errors:
            raise self.claim_errors.pop()
        if self.fenced:
            return None
        count = min(limit, self.waiting)
        self.waiting -= count
        self._next += count
        return [claimed(run) for run in range(self._next - count + 1, self._next + 1)]

    async def adopt(self, *, token: int, known: Collection[RunId]) -> list[Claimed] | None:
        """Return what was left over."""
        self.tokens.append(token)
        self.adoptions.append(set(known))
        found, self.left_over = self.left_over, []
        return None if self.fenced else found

    async def bodies(self, run_ids: Sequence[RunId]) -> dict[RunId, RunBody]:
        """Read."""
        if self.read_errors:
            raise self.read_errors.pop()
        return {run: RunBody(run, b"1", b"{}") for run in run_ids}

    async def history(self, run_id: RunId) -> list[Event]:
        """Read."""
        self.histories.append(run_id)
        return []

    async def revision(self, revision_id: RevisionId) -> Revision:  # noqa: ARG002
        """Read."""
        return Revision("module:agent", "agent")

    async def build_lives(self, build: str) -> bool:
        """Know one more build."""
        return build == "other"

    async def promote(self, agent: AgentId) -> int:
        """Let one that is held back into the queue."""
        self.promotions.append(agent)
        if self.promotion_errors:
            raise self.promotion_errors.pop()
        count = min(1, self.held)
        self.held -= count
        self.waiting += count
        return count


class Seats:
    """Stands for the runner: counts what was started."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.free = slots
        self.started: list[Prepared] = []
        self._reserved: set[RunId] = set()

    def known(self) -> set[RunId]:
        """Return all."""
        return self._reserved | {prepared.claimed.run_id for prepared in self.started}

    def reserve(self, run_ids: Collection[RunId]) -> None:
        """Keep slots."""
        self._reserved.update(run_ids)
        self.free -= len(run_ids)

    def unreserve(self, run_ids: Collection[RunId]) -> None:
        """Give back what was not started."""
        self.free += len(self._reserved.intersection(run_ids))
        self._reserved.difference_update(run_ids)

    def start(self, prepared: Prepared) -> None:
        """Start."""
        self._reserved.discard(prepared.claimed.run_id)
        self.started.append(prepared)


class NoWait:
    """A clock whose sleeps take no time."""

    def __init__(self) -> None:
        self.sleeps = 0

    def monotonic(self) -> float:
        """Stand still."""
        return 0.0

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002
        """Give others a turn."""
        self.sleeps += 1
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition` holds; a test that waits in vain is ended by its timeout."""
    while not condition():  # noqa: ASYNC110  what is waited for has no event
        await asyncio.sleep(0)


class Setting:
    """A claimer on a queue."""

    def __init__(self, queue: Queue, slots: int = 256) -> None:
        self.queue = queue
        self.seats = Seats(slots)
        self.clock = NoWait()
        self.tally = Tally()
        self.lag = 0.0
        self.fenced = 0
        self.claimer = Claimer(
            queue,
            self.seats,  # type: ignore[arg-type]  # the part of a runner that a claimer uses
            lag=lambda: self.lag,
            clock=self.clock,
            tally=self.tally,
            on_fenced=self._fence,
        )

    def _fence(self) -> None:
        self.fenced += 1


@pytest.fixture
async def busy() -> Setting:
    """A claimer with more in the queue than it can hold."""
    return Setting(Queue(waiting=10_000))


async def test_it_ramps_up_and_never_asks_for_more_than_its_free_slots(busy: Setting) -> None:
    task = asyncio.create_task(busy.claimer.run())
    await until(lambda: not busy.seats.free)
    busy.claimer.stop()
    await task
    assert busy.queue.limits == [16, 32, MOST, MOST, MOST, 256 - 16 - 32 - 3 * MOST]
    assert busy.seats.free == 0


async def test_tokens_only_rise(busy: Setting) -> None:
    for _ in range(4):
        await busy.claimer.run_once()
    assert len(busy.queue.tokens) == 4
    assert busy.queue.tokens == sorted(set(busy.queue.tokens))


async def test_a_late_loop_takes_nothing_until_it_is_well_again(busy: Setting) -> None:
    busy.seats.free = 200
    for lag, asked in ((0.06, 0), (0.03, 0), (0.01, 16), (0.03, 16), (0.051, 0)):
        busy.lag = lag
        assert (await busy.claimer.run_once()).asked == asked


async def test_a_lost_answer_is_followed_by_an_adoption_under_a_higher_token() -> None:
    queue = Queue(waiting=4, claim_errors=[StoreUnavailable("lost")], left_over=[claimed(77)])
    setting = Setting(queue)
    task = asyncio.create_task(setting.claimer.run())
    await until(lambda: len(setting.seats.started) >= 5)
    setting.claimer.stop()
    await task
    assert queue.adoptions == [set()]
    assert setting.seats.started[0].claimed.run_id == 77
    assert queue.tokens == sorted(set(queue.tokens))


async def test_runs_that_are_still_being_read_are_known_to_an_adoption() -> None:
    setting = Setting(Queue(waiting=3, read_errors=[StoreUnavailable("away")] * 3))
    await setting.claimer.run_once()
    assert len(setting.seats.started) == 3
    assert setting.clock.sleeps == 3


async def test_a_row_that_cannot_be_read_fails_its_run_and_holds_up_nobody() -> None:
    class Odd(Queue):
        async def history(self, run_id: RunId) -> list[Event]:
            raise ValueError(f"kind 999 of {run_id} is not known")

    setting = Setting(Odd(left_over=[claimed(5, epoch=2)], claim_errors=[StoreUnavailable("x")]))
    task = asyncio.create_task(setting.claimer.run())
    await until(lambda: setting.seats.started)
    setting.claimer.stop()
    await task
    assert isinstance(setting.seats.started[0].unreadable, ValueError)


async def test_history_is_read_only_where_there_can_be_one() -> None:
    queue = Queue(claim_errors=[StoreUnavailable("x")])
    queue.left_over = [claimed(1), claimed(2, epoch=2)]
    setting = Setting(queue)
    task = asyncio.create_task(setting.claimer.run())
    await until(lambda: len(setting.seats.started) >= 2)
    setting.claimer.stop()
    await task
    assert queue.histories == [2]


async def test_a_fenced_worker_claims_nothing_more() -> None:
    setting = Setting(Queue(fenced=True))
    await setting.claimer.run()
    assert setting.fenced == 1


async def test_a_freed_slot_is_filled_at_once_while_more_is_queued() -> None:
    setting = Setting(Queue(waiting=100), slots=4)
    task = asyncio.create_task(setting.claimer.run())
    await until(lambda: not setting.seats.free)
    setting.seats.free = 2
    setting.claimer.freed(AgentId(1))
    await until(lambda: not setting.seats.free)
    setting.claimer.stop()
    await task
    assert setting.queue.limits == [4, 2]


async def test_the_end_of_a_capped_run_lets_the_next_one_start_at_once() -> None:
    setting = Setting(Queue(held=2), slots=4)
    setting.claimer.capped = frozenset({AgentId(1)})
    task = asyncio.create_task(setting.claimer.run())
    await until(lambda: setting.queue.limits)
    for started in (1, 2):
        setting.claimer.freed(AgentId(1))
        await until(lambda started=started: len(setting.seats.started) == started)
    setting.claimer.stop()
    await task
    assert setting.queue.promotions == [1, 1]


async def test_an_agent_without_caps_costs_no_promotion() -> None:
    setting = Setting(Queue(waiting=9), slots=4)
    setting.claimer.capped = frozenset({AgentId(2)})
    await setting.claimer.run_once()
    setting.claimer.freed(AgentId(1))
    await setting.claimer.run_once()
    assert setting.queue.promotions == []


async def test_a_failed_promotion_is_counted_and_does_not_end_the_claiming() -> None:
    setting = Setting(Queue(waiting=1, promotion_errors=[StoreUnavailable("away")]))
    setting.claimer.capped = frozenset({AgentId(1)})
    setting.claimer.freed(AgentId(1))
    assert (await setting.claimer.run_once()).got == 1
    counted = {key[0]: value for key, value in setting.tally.take()}
    assert counted["rowlock_store_errors_total"] == 1


async def test_a_look_ends_the_wait() -> None:
    setting = Setting(Queue())
    task = asyncio.create_task(setting.claimer.run())
    for looks in (1, 2, 3):
        await until(lambda looks=looks: len(setting.queue.limits) >= looks)
        setting.claimer.look()
    setting.claimer.stop()
    await task


@pytest.mark.parametrize(("asked", "got", "full"), [(4, 4, True), (4, 3, False), (0, 0, False)])
def test_a_full_claim_promises_more(asked: int, got: int, full: bool) -> None:
    assert ClaimReport(asked, got).full == full
