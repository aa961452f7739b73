"""Pulse, trust, stall watch and the other small judges of a worker's health."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from rowlock.engine.board import BEAT_NS, LAG_US, TICK, Board
from rowlock.engine.host import answer_seconds
from rowlock.engine.pulse import PERIOD, Pulse
from rowlock.engine.trust import Trust
from rowlock.supervisor.burial import How, how_ended
from rowlock.supervisor.child import child_environment
from rowlock.supervisor.crew import respawn_seconds
from rowlock.supervisor.plans import share
from rowlock.supervisor.stalls import StallWatch


@dataclass(eq=False)
class Loop:
    """A loop that ticks when told."""

    ticks: int = 0


def test_a_loop_that_does_not_tick_for_the_ceiling_is_stalled() -> None:
    watch: StallWatch[Loop] = StallWatch(5)
    still, ticking = Loop(), Loop()
    for second in range(6):
        ticking.ticks += 1
        assert watch.stalled([still, ticking], second) == []
    assert watch.stalled([still, ticking], 5.1) == [still]


def test_time_in_which_the_watch_itself_stood_still_does_not_count() -> None:
    watch: StallWatch[Loop] = StallWatch(5)
    loop = Loop()
    watch.stalled([loop], 0)
    assert watch.stalled([loop], 100) == []
    assert watch.stalled([loop], 101) == []


def test_a_new_loop_has_the_whole_ceiling_to_begin() -> None:
    watch: StallWatch[Loop] = StallWatch(5)
    watch.stalled([], 0)
    late = Loop()
    assert watch.stalled([late], 1.5) == []
    assert watch.stalled([late], 3) == []


def test_a_lease_is_sure_until_a_margin_before_its_end() -> None:
    board = Board.create()
    trust = Trust(board, lease_seconds=10)
    assert not trust.sure()
    board.accepted(time.monotonic_ns() - int(7.5e9))
    assert trust.sure()
    board.accepted(time.monotonic_ns() - int(8.5e9))
    assert not trust.sure()


@pytest.mark.public_bug("earendil-works/absurd#65")
async def test_those_who_wait_go_on_when_a_beat_is_accepted() -> None:
    board = Board.create()
    trust = Trust(board, lease_seconds=10)
    waiting = asyncio.create_task(trust.changed())
    await asyncio.sleep(0)
    trust.tick()
    await asyncio.sleep(0)
    assert not waiting.done()
    board.accepted(time.monotonic_ns())
    trust.tick()
    await waiting


async def test_a_drain_wakes_those_who_wait_for_a_lease() -> None:
    trust = Trust(Board.create(), lease_seconds=10)
    waiting = asyncio.create_task(trust.changed())
    await asyncio.sleep(0)
    trust.drain()
    await waiting


async def test_a_blocked_loop_counts_each_tick_that_it_missed() -> None:
    board = Board.create()
    pulse = Pulse(board)
    pulse.start()
    await asyncio.sleep(0)
    time.sleep(PERIOD * 10)  # noqa: ASYNC251  to block the loop is the point
    while board.cells[TICK] < 2:  # noqa: ASYNC110  a cell has no event
        await asyncio.sleep(0)
    assert pulse.recent() > PERIOD * 5
    pulse.stop()


async def test_the_board_shows_ticks_and_lag_to_another_mapping_of_its_memory() -> None:
    board = Board.create()
    seen = Board(board.fd)
    pulse = Pulse(board)
    pulse.start()
    while seen.cells[TICK] < 11:  # noqa: ASYNC110  a cell has no event
        await asyncio.sleep(0.001)
    assert seen.cells[LAG_US] >= 0
    seen.accepted(42)
    assert board.cells[BEAT_NS] == 42
    pulse.stop()


@pytest.mark.parametrize(
    ("code", "was", "how"),
    [
        (0, {"told"}, How.LEFT),
        (0, set(), How.DIED),
        (3, set(), How.FENCED),
        (-9, {"fenced"}, How.FENCED),
        (-9, {"stalled"}, How.STALLED),
        (-9, {"stalled", "told"}, How.STALLED),
        (-9, {"told", "dismissed"}, How.LEFT),
        (-9, {"told"}, How.DIED),
        (-9, set(), How.DIED),
        (-11, {"told"}, How.DIED),
        (1, set(), How.DIED),
    ],
)
def test_how_a_process_ended(code: int, was: set[str], how: How) -> None:
    """Leaving with a good code is no leave where nobody asked for one."""
    states = {name: name in was for name in ("stalled", "fenced", "told", "dismissed")}
    assert how_ended(code, **states) is how


def test_the_first_replacement_comes_at_once_and_later_ones_ever_later() -> None:
    waits = [respawn_seconds(ends) for ends in range(12)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == 5


@pytest.mark.parametrize(
    ("slots", "processes", "shares"), [(256, 2, [128, 128]), (5, 3, [2, 2, 1]), (1, 4, [1])]
)
def test_slots_are_shared_out_over_processes(slots: int, processes: int, shares: list[int]) -> None:
    assert share(slots, processes) == shares


def test_what_leads_into_the_database_is_not_passed_on() -> None:
    given = {"ROWLOCK_DATABASE_URL": "x", "PGPASSWORD": "x", "PATH": "/bin", "ROWLOCK_POOL": "p"}
    assert child_environment(given) == {"PATH": "/bin", "ROWLOCK_POOL": "p"}


@pytest.mark.parametrize(("lease", "seconds"), [(1.5, 5), (15, 15), (600, 30)])
def test_an_answer_is_waited_for_as_long_as_a_lease_within_bounds(
    lease: float, seconds: float
) -> None:
    assert answer_seconds(lease) == seconds
