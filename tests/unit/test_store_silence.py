"""When the reaper believes silence, as a table."""

from __future__ import annotations

import pytest

from rowlock.store.types import WorkerId
from rowlock.store.workers import Silence

WHO = (WorkerId(1), WorkerId(2))


@pytest.mark.parametrize(
    ("pods", "silent", "mass_for", "mass", "in_doubt"),
    [
        (1, 1, None, False, False),
        (4, 4, None, False, False),
        (5, 2, None, False, False),
        (5, 3, None, True, True),
        (5, 5, 0.0, True, True),
        (5, 5, 14.9, True, True),
        (5, 5, 15.0, True, False),
        (6, 3, None, False, False),
        (6, 4, None, True, True),
        (100, 51, 20.0, True, False),
        (100, 0, None, False, False),
        (0, 0, None, False, False),
    ],
)
def test_most_of_at_least_five_pods_get_one_more_lease(
    pods: int, silent: int, mass_for: float | None, mass: bool, in_doubt: bool
) -> None:
    silence = Silence(WHO, pods, silent, 15.0, mass_for)
    assert silence.mass is mass
    assert silence.in_doubt is in_doubt
    assert silence.to_fence == ([] if in_doubt else list(WHO))
