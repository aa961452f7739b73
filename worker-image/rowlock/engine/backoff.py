"""How long to wait before asking an absent PostgreSQL again."""

from __future__ import annotations

import random

_FIRST = 0.05
_LONGEST = 1.0


def backoff_seconds(failures: int) -> float:
    """Return the wait after so many failures in a row: doubling, at most 1 s, ± 50 %.

    The jitter keeps the processes of a pod from coming back in step.
    """
    wait = min(_LONGEST, _FIRST * 2.0 ** min(failures - 1, 10))
    return wait * random.uniform(0.5, 1.5)  # noqa: S311  no secret hangs on it
