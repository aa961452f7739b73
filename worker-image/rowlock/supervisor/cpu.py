"""How full the CPU is that this worker may use, as its control group (version 2) counts it.

A loop that wakes up late shows that it is too busy; a container that is out of CPU may not show it
yet, for executors can use up what the loops would need next.
Where there is no such group nobody knows, and that counts as room.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GROUP: Final = Path("/sys/fs/cgroup")
#: A shorter time than this says little.
_SHORTEST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU used so far, and how much there is.

    Parameters
    ----------
    seconds
        Of all processes of the group, since it began.
    cores
        What it may use: its limit, or the cores of the machine.
    """

    seconds: float
    cores: float


def read_usage(group: Path = GROUP) -> Usage | None:
    """Return the usage of a control group; None if that cannot be read."""
    try:
        stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return Usage(int(stat["usage_usec"]) / 1e6, _cores(group))
    except (OSError, KeyError, ValueError):
        return None


def _cores(group: Path) -> float:
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except OSError:
        return cores
    return cores if quota == "max" else min(cores, int(quota) / int(period))


class CpuMeter:
    """Remembers the last reading."""

    def __init__(self, group: Path = GROUP) -> None:
        self._group = group
        self._last: tuple[float, Usage] | None = None
        self._percent = 0

    def percent(self, now: float) -> int:
        """Return how full the CPU was since the last call, 0 to 100, by the monotonic time."""
        usage = read_usage(self._group)
        if usage is None:
            return 0
        if self._last is None:
            self._last = (now, usage)
        at, before = self._last
        if now - at >= _SHORTEST_SECONDS:
            used = (usage.seconds - before.seconds) / ((now - at) * usage.cores)
            self._percent = min(100, max(0, round(used * 100)))
            self._last = (now, usage)
        return self._percent
