"""Load shapes for the scaling simulator: when runs come, and how long they work and wait.

Most are generated, each from a seed of its own. Two are recorded: `traces/README.md` says where.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HOUR: Final = 3600
_TRACES: Final = Path(__file__).parent / "traces"
#: A recorded request stands for a run with this many turns of its size,
_TURNS: Final = 10
#: each streamed at this many tokens a second, as in `python -m bench streams`.
_TOKENS_A_SECOND: Final = 70


@dataclass(frozen=True, slots=True)
class Job:
    """One run.

    Parameters
    ----------
    at
        Second at which it is queued.
    phases
        Seconds that it works, waits for a person without a worker, works, waits, and so on.
    """

    at: int
    phases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """One load, and what the world is like meanwhile.

    Parameters
    ----------
    seconds
        While jobs come; the simulation ends when the last one has.
    pod_start
        Seconds from the order of a worker until it claims.
    lost
        (from, until): nobody knows what there is to do.
    ceiling
        Runs that the model provider serves at full speed; more of them share it, and their
        calls are refused.
    """

    name: str
    meaning: str
    seconds: int
    jobs: tuple[Job, ...] = field(repr=False)
    pod_start: int = 20
    lost: tuple[int, int] | None = None
    ceiling: int | None = None


def shapes() -> list[Shape]:
    """Return all of them."""
    return [
        Shape("steady", "one run every 2 s, 60 s each", 4 * _HOUR, _poisson(4 * _HOUR, _flat)),
        Shape(
            "burst",
            "600 runs at once, twice in four hours, 60 s each",
            4 * _HOUR,
            _burst((600, 2 * _HOUR)),
        ),
        Shape("ramp", "from nothing to 2 a second and back", 4 * _HOUR, _poisson(4 * _HOUR, _ramp)),
        Shape("day", "24 h, 1.2 a second at noon", 24 * _HOUR, _poisson(24 * _HOUR, _day)),
        Shape("approvals", "20 min of work, two waits for a person", 8 * _HOUR, _approvals()),
        Shape(
            "slow start",
            "the ramp, where a worker needs 3 min to start",
            4 * _HOUR,
            _poisson(4 * _HOUR, _ramp),
            pod_start=180,
        ),
        Shape(
            "lost signal",
            "the steady load; for 40 min nobody knows it",
            4 * _HOUR,
            _poisson(4 * _HOUR, _flat),
            lost=(_HOUR, _HOUR + 2400),
        ),
        Shape(
            "full model",
            "runs for 60 slots, and a model provider that serves 40",
            2 * _HOUR,
            _poisson(2 * _HOUR, lambda _: 1.0),
            ceiling=40,
        ),
        Shape("code", "an hour of a real code assistant", _HOUR, _recorded("code")),
        Shape("conversation", "an hour of a real chat service", _HOUR, _recorded("conversation")),
    ]


def _recorded(service: str) -> tuple[Job, ...]:
    """Return a run for each request that somebody recorded."""
    with (_TRACES / f"azure-llm-2023-{service}.csv").open(newline="") as file:
        return tuple(
            Job(int(row["second"]), (_work(int(row["generated_tokens"])),))
            for row in csv.DictReader(file)
        )


def _work(tokens: int) -> int:
    """Return the seconds that a run works whose turns generate so many tokens each."""
    return max(1, round(_TURNS * tokens / _TOKENS_A_SECOND))


def _flat(_: int) -> float:
    return 0.5


def _ramp(second: int) -> float:
    half = 2 * _HOUR
    return 2.0 * (1 - abs(second - half) / half)


def _day(second: int) -> float:
    """Return little at night, most at noon."""
    return 0.02 + 1.18 * max(0.0, math.sin(math.pi * (second / _HOUR - 6) / 12)) ** 2


def _poisson(seconds: int, rate: Callable[[int], float], *, seed: int = 1) -> tuple[Job, ...]:
    """Return jobs of 60 s on the average, which come at random with `rate` a second."""
    chance = random.Random(seed)
    return tuple(
        Job(second, (max(1, round(chance.expovariate(1 / 60))),))
        for second in range(seconds)
        for _ in range(_arrivals(chance, rate(second)))
    )


def _arrivals(chance: random.Random, mean: float) -> int:
    """Draw from a Poisson distribution (Knuth's method, good for small means)."""
    count, product, limit = 0, chance.random(), math.exp(-mean)
    while product > limit:
        count += 1
        product *= chance.random()
    return count


def _burst(at: tuple[int, ...]) -> tuple[Job, ...]:
    chance = random.Random(2)
    return tuple(
        Job(second, (max(1, round(chance.expovariate(1 / 60))),))
        for second in at
        for _ in range(600)
    )


def _approvals() -> tuple[Job, ...]:
    return tuple(_long_jobs(random.Random(3)))


def _long_jobs(chance: random.Random) -> Iterator[Job]:
    for second in range(8 * _HOUR - 2 * _HOUR):
        if chance.random() < 0.02:
            work = [round(chance.uniform(200, 600)) for _ in range(3)]
            waits = [round(chance.uniform(300, 3600)) for _ in range(2)]
            yield Job(second, (work[0], waits[0], work[1], waits[1], work[2]))
