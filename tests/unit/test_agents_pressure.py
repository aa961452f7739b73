"""How often steps are told to come again later."""

from __future__ import annotations

import pytest

from rowlock.agents.pressure import Pressure, tells_to_wait
from rowlock.errors import ModelUnavailable


class Answered(Exception):
    """What a client of somebody's API raises."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


class Odd(Exception):
    """One that cannot even be asked."""

    @property
    def status(self) -> int:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModelUnavailable("busy", retry_after=3), True),
        (ModelUnavailable("a cut line"), False),
        (Answered(429), True),
        (Answered(500), False),
        (ValueError("wrong"), False),
        (Odd(), False),
    ],
)
def test_who_has_too_much_to_do_says_so(error: Exception, told: bool) -> None:
    assert tells_to_wait(error) is told


def test_the_last_half_minute_counts() -> None:
    pressure = Pressure()
    assert pressure.read(100.0) == (0, 0)
    pressure.tried()
    pressure.tried(Answered(429))
    pressure.tried(ValueError())
    assert pressure.read(101.0) == (3, 1)
    assert pressure.read(116.0) == (3, 1)
    pressure.tried(Answered(429))
    assert pressure.read(117.0) == (4, 2)
    assert pressure.read(132.0) == (1, 1)
    assert pressure.read(200.0) == (0, 0)
