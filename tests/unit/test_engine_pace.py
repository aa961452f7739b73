"""How much a claimer asks for and how soon again, decided without I/O."""

from __future__ import annotations

import pytest

from rowlock.engine.pace import MOST, ClaimReport, Pace, enough


def test_it_ramps_up_with_the_rounds_and_again_after_an_outage() -> None:
    pace = Pace()
    asked = []
    for _ in range(4):
        asked.append(pace.limit(free=1000, slots=1000, lag=0))
        pace.pause_after(ClaimReport(asked[-1], asked[-1]), free=1000)
    pace.restart()
    assert [*asked, pace.limit(free=1000, slots=1000, lag=0)] == [16, 32, MOST, MOST, 16]


@pytest.mark.parametrize(
    ("asked", "got", "free", "wait"),
    [
        (64, 64, 10, 0.0),  # more is queued and there is room
        (64, 64, 0, 0.25),  # more is queued and no room: a freed slot wakes it
        (0, 0, 0, 0.25),
    ],
)
def test_how_soon_it_asks_again(asked: int, got: int, free: int, wait: float) -> None:
    assert Pace().pause_after(ClaimReport(asked, got), free=free) == wait


def test_idle_polls_become_rarer_up_to_four_a_second_and_quick_again_with_work() -> None:
    pace = Pace()
    waits = [pace.pause_after(ClaimReport(64, 0), free=64) for _ in range(12)]
    assert waits[0] < 0.08
    assert 0.17 < waits[-1] <= 0.25
    assert max(waits) <= 0.25
    assert pace.pause_after(ClaimReport(64, 3), free=61) <= 0.05


def test_a_round_without_room_keeps_it_hungry() -> None:
    pace = Pace()
    pace.pause_after(ClaimReport(4, 4), free=0)
    pace.pause_after(ClaimReport(0), free=0)
    assert pace.hungry
    pace.pause_after(ClaimReport(4, 1), free=3)
    assert not pace.hungry


@pytest.mark.parametrize(
    ("free", "slots", "is_enough"),
    [(1, 4, True), (3, 256, False), (64, 256, True), (64, 4096, True)],
)
def test_a_share_of_the_slots_is_worth_a_claim_at_once(
    free: int, slots: int, is_enough: bool
) -> None:
    assert enough(free, slots=slots) == is_enough


@pytest.mark.parametrize(("running", "asked"), [(0, 16), (10, 6), (16, 0), (200, 0)])
def test_a_late_loop_keeps_a_sixteenth_of_its_slots_busy(running: int, asked: int) -> None:
    assert Pace().limit(free=256 - running, slots=256, lag=1.0) == asked
