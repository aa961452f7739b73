"""The figures of load A: what counts as ideal, and what a repeat shows."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from bench._figures import HOSTED_SECONDS, SLICE_SECONDS, Seen, figures, median, steady
from bench._meters import Meter, Tally
from bench.support import first_wave

SLOTS = 4


def waves(
    count: int, *, added: float = 0.0, ramp: float = 0.0, last: int = SLOTS
) -> list[tuple[float, float]]:
    """Return runs in step, each slot filled again at once; the last wave may not be full."""
    took = HOSTED_SECONDS + added
    sizes = [SLOTS] * (count - 1) + [last]
    return [
        (wave * took + slot * ramp, (wave + 1) * took + slot * ramp)
        for wave, size in enumerate(sizes)
        for slot in range(size)
    ]


def seen(times: list[tuple[float, float]]) -> Seen:
    """Return a load with these times and round counters."""
    return Seen(
        before=Meter(1.0, 1.0, 1000, 5000),
        after=Meter(1.0 + len(times) / 1000, 1.0, 1000 + 40 * len(times), 5000),
        grown_mb=2.0,
        tallies=(Tally(10, 100, 0), Tally(10 + 2 * len(times), 100 + 28 * len(times), 0)),
        tallied_runs=2 * len(times),
        times=times,
        good=True,
    )


def hosted(runs: int, *, arrivals: str = "burst") -> argparse.Namespace:
    """Return the command line of a hosted load."""
    return argparse.Namespace(
        model="hosted", arrivals=arrivals, concurrency=SLOTS, workers=1, runs=runs
    )


@pytest.mark.parametrize("last", [SLOTS, 1])
def test_a_worker_that_costs_no_time_is_ideal(last: int) -> None:
    """Also when the last wave is not full: its models want to be waited for all the same."""
    times = waves(3, last=last)
    shown = figures(hosted(len(times)), seen(times))
    assert (shown.ideal_ratio, shown.added_seconds_p50) == (1.0, 0.0)


def test_an_even_first_wave_ends_as_much_later_as_its_last_slice_comes() -> None:
    """A worker that costs no time is ideal there, too."""
    step = (HOSTED_SECONDS - SLICE_SECONDS) / (SLOTS - 1)
    times = waves(3, ramp=step)
    assert figures(hosted(len(times), arrivals="even"), seen(times)).ideal_ratio == 1.0


@pytest.mark.parametrize("slots", [1, 50, 256, 1024, 4096])
def test_the_first_wave_fills_each_slot_once(slots: int) -> None:
    """The slices differ by one at most."""
    slices = first_wave(argparse.Namespace(arrivals="even", concurrency=slots))
    assert sum(slices) == slots
    assert max(slices) - min(slices) <= 1


def test_what_each_wave_adds_shows_in_both_ratios() -> None:
    """5 % more time a run is a twentieth less throughput."""
    times = waves(5, added=HOSTED_SECONDS * 0.05)
    shown = figures(hosted(len(times)), seen(times))
    assert shown.ideal_ratio == shown.steady_ratio == pytest.approx(1 / 1.05, abs=1e-4)


def test_the_start_of_the_first_wave_shows_only_in_the_whole() -> None:
    """All slots are full after the ramp; the last run ends a ramp later, too."""
    times = waves(2, ramp=0.5)
    shown = figures(hosted(len(times)), seen(times))
    assert shown.steady_ratio == 1.0
    assert shown.ideal_ratio == pytest.approx(
        2 * HOSTED_SECONDS / (2 * HOSTED_SECONDS + 1.5), abs=1e-4
    )


def test_a_single_wave_has_no_steady_part() -> None:
    assert steady(waves(1), slots=SLOTS, waits=HOSTED_SECONDS) == 0.0


def test_counters_are_divided_by_the_runs_that_they_cover() -> None:
    """CPU and bytes by those of the load, commits and rows by those of the warm-up, too."""
    shown = figures(hosted(8), seen(waves(2)))
    assert (shown.worker_cpu_ms_per_run, shown.bytes_per_run) == (1.0, 40.0)
    assert (shown.commits_per_run, shown.rows_per_run) == (1.0, 14.0)
    assert shown.worker_rss_mb_per_run == 2.0 / SLOTS


def test_a_repeat_shows_medians_and_one_wrong_result_is_wrong() -> None:
    one = figures(hosted(8), seen(waves(2)))
    three = [replace(one, seconds=seconds) for seconds in (3.0, 1.0, 2.0)]
    assert median(three)["seconds"] == 2.0
    assert median(three)["effects_exactly_once"] is True
    assert (
        median([*three, replace(one, effects_exactly_once=False)])["effects_exactly_once"] is False
    )
