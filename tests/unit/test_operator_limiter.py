"""The rate of requests follows what the API server can bear."""

from __future__ import annotations

import pytest

from rowlock_operator.kube.limiter import Limiter


class FakeClock:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_burst_goes_at_once_and_the_rest_at_the_rate(clock: FakeClock) -> None:
    limiter = Limiter(10, burst=3, clock=clock)
    waits = [limiter.reserve() for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_a_quiet_time_fills_the_bucket_but_never_over_its_brim(clock: FakeClock) -> None:
    limiter = Limiter(10, burst=3, clock=clock)
    for _ in range(3):
        limiter.reserve()
    clock.now += 60
    assert [limiter.reserve() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


async def test_acquire_waits_for_the_token(clock: FakeClock) -> None:
    limiter = Limiter(10, burst=1, clock=clock)
    for _ in range(3):
        await limiter.acquire()
    assert clock.slept == pytest.approx([0.1, 0.1])


def test_overload_halves_the_rate_once_for_many_failures_at_once(clock: FakeClock) -> None:
    limiter = Limiter(200, clock=clock)
    for _ in range(32):
        limiter.overloaded()
    assert limiter.rate == 100
    clock.now += 1
    limiter.overloaded()
    assert limiter.rate == 50


def test_the_rate_never_falls_below_one(clock: FakeClock) -> None:
    limiter = Limiter(4, clock=clock)
    for _ in range(10):
        limiter.overloaded()
        clock.now += 2
    assert limiter.rate == 1


def test_quiet_seconds_give_the_rate_back(clock: FakeClock) -> None:
    limiter = Limiter(200, clock=clock)
    limiter.overloaded()
    for _ in range(5):
        clock.now += 1
        for _ in range(50):
            limiter.succeeded()
    assert limiter.rate == 150
    for _ in range(20):
        clock.now += 1
        limiter.succeeded()
    assert limiter.rate == 200


def test_retry_after_pauses_everything(clock: FakeClock) -> None:
    limiter = Limiter(200, clock=clock)
    limiter.overloaded(retry_after=7)
    assert limiter.reserve() == 7
    clock.now += 7
    assert limiter.reserve() == 0
