"""A pool of workers without workers: a second is a tick, and nothing but numbers moves.

What is left out: how long a claim takes, and that a run is handed over at a step's end only.
"""

from __future__ import annotations

import heapq
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench._scalers import Scaler
from bench._shapes import Job, Shape
from rowlock.store.scaling import PoolSignals
from rowlock.store.types import PoolDemand, PoolId
from rowlock_operator.pools.scaling import Standing

#: An end of the world: a load that no policy can bear must not run for ever.
_LONGEST = 3 * 24 * 3600


@dataclass(slots=True)
class Work:
    """A run on its way.

    Parameters
    ----------
    left
        Seconds of work in the present phase.
    since
        When it was queued; first in line if it was handed over.
    begun
        When it was queued for this phase first.
    """

    job: Job
    phase: int
    left: float
    since: int
    begun: int
    worker: Worker | None = None
    ends: float = 0.0


@dataclass(slots=True, eq=False)
class Worker:
    """A Pod."""

    ordered: int
    ready: int
    runs: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it went; waits in seconds.

    Parameters
    ----------
    time_p95
        From the queue to the end of the work, or to a wait for a person.
    turns
        How often the number of workers went the other way than the last time.
    handed_over
        Runs whose worker was taken away.
    """

    wait_p50: float
    wait_p95: float
    wait_max: float
    time_p95: float
    worker_minutes: float
    most_workers: int
    changes: int
    turns: int
    handed_over: int
    finished: int
    seconds: int


class Simulation:
    """One shape under one policy."""

    def __init__(self, shape: Shape, scaler: Scaler, *, slots: int) -> None:
        self._shape = shape
        self._scaler = scaler
        self._slots = slots
        self._now = 0
        self._clock = 0.0  # of work: slower where the model provider is full
        self._coming = deque(shape.jobs)
        self._queue: deque[Work] = deque()
        self._running: dict[int, Work] = {}
        self._ends: list[tuple[float, int]] = []
        self._parked: list[tuple[int, int, Work]] = []
        self._workers: list[Worker] = []
        self._numbers = 0
        self._waits: list[int] = []
        self._times: list[int] = []
        self._walk: list[int] = []
        self._seconds_of_workers = 0
        self._most = 0
        self._handed_over = 0
        self._finished = 0

    def run(self) -> Verdict:
        """Simulate until every run has ended."""
        while self._coming or self._queue or self._running or self._parked:
            self._tick()
            if self._now > _LONGEST:
                break
        return self._verdict()

    def _tick(self) -> None:
        self._arrive()
        self._end()
        self._claim()
        if self._now % self._scaler.period == 0:
            self._scale()
        self._seconds_of_workers += len(self._workers)
        self._most = max(self._most, len(self._workers))
        self._clock += self._speed()
        self._now += 1

    def _speed(self) -> float:
        ceiling, running = self._shape.ceiling, len(self._running)
        return ceiling / running if ceiling and running > ceiling else 1.0

    def _arrive(self) -> None:
        while self._coming and self._coming[0].at <= self._now:
            job = self._coming.popleft()
            self._queue.append(Work(job, 0, job.phases[0], self._now, self._now))
        while self._parked and self._parked[0][0] <= self._now:
            _, _, work = heapq.heappop(self._parked)
            work.since = work.begun = self._now
            self._queue.append(work)

    def _end(self) -> None:
        while self._ends and self._ends[0][0] <= self._clock:
            ends, number = heapq.heappop(self._ends)
            work = self._running.get(number)
            if work is None or work.ends != ends:
                continue  # it was handed over
            self._let_go(number, work)
            self._next_phase(number, work)

    def _let_go(self, number: int, work: Work) -> None:
        del self._running[number]
        if work.worker is not None:
            work.worker.runs.discard(number)
        work.worker = None

    def _next_phase(self, number: int, work: Work) -> None:
        phases = work.job.phases
        self._times.append(self._now - work.begun)
        if work.phase + 2 >= len(phases):
            self._finished += 1
            return
        wait, work.left = phases[work.phase + 1], phases[work.phase + 2]
        work.phase += 2
        heapq.heappush(self._parked, (self._now + wait, number, work))

    def _claim(self) -> None:
        """Give what waits to the emptiest workers, as workers that all ask at once do."""
        free = [
            (len(worker.runs), at)
            for at, worker in enumerate(self._workers)
            if worker.ready <= self._now and len(worker.runs) < self._slots
        ]
        heapq.heapify(free)
        while self._queue and free:
            held, at = heapq.heappop(free)
            self._start(self._queue.popleft(), self._workers[at])
            if held + 1 < self._slots:
                heapq.heappush(free, (held + 1, at))

    def _start(self, work: Work, worker: Worker) -> None:
        self._numbers += 1
        self._waits.append(self._now - work.since)
        work.worker, work.ends = worker, self._clock + work.left
        worker.runs.add(self._numbers)
        self._running[self._numbers] = work
        heapq.heappush(self._ends, (work.ends, self._numbers))

    def _scale(self) -> None:
        here = len(self._workers)
        ready = sum(worker.ready <= self._now for worker in self._workers)
        to = self._scaler.decide(self._now, Standing(here, ready), self._signals())
        if to == here:
            return
        self._walk.append(to - here)
        for _ in range(to - here):
            self._workers.append(Worker(self._now, self._now + self._shape.pod_start))
        for worker in self._victims(here - to):
            self._workers.remove(worker)
            self._hand_over(worker)

    def _victims(self, count: int) -> list[Worker]:
        """Return who goes: not yet ready first; then who holds least, or the youngest."""

        def rank(worker: Worker) -> tuple[bool, int, int]:
            ready = worker.ready <= self._now
            return ready, len(worker.runs) if self._scaler.spares else 0, -worker.ordered

        return sorted(self._workers, key=rank)[: max(0, count)]

    def _hand_over(self, worker: Worker) -> None:
        for number in sorted(worker.runs, reverse=True):
            work = self._running[number]
            work.left = max(0.0, work.ends - self._clock)
            self._let_go(number, work)
            work.since = self._now
            self._queue.appendleft(work)
            self._handed_over += 1

    def _signals(self) -> PoolSignals | None:
        lost = self._shape.lost
        if lost and lost[0] <= self._now < lost[1]:
            return None
        demand = PoolDemand(
            PoolId(1), "", "", len(self._running), len(self._queue), 0, None, len(self._workers), 0
        )
        oldest = self._now - min(w.since for w in self._queue) if self._queue else None
        speed = self._speed()
        tries = 2 * len(self._running)
        return PoolSignals(
            demand, oldest_wait=oldest, tries=tries, refused=round(tries * (1 - speed))
        )

    def _verdict(self) -> Verdict:
        waits = self._waits or [0]
        return Verdict(
            wait_p50=statistics.median(waits),
            wait_p95=_p95(waits),
            wait_max=max(waits),
            time_p95=_p95(self._times),
            worker_minutes=self._seconds_of_workers / 60,
            most_workers=self._most,
            changes=len(self._walk),
            turns=sum(1 for _ in self._turns()),
            handed_over=self._handed_over,
            finished=self._finished,
            seconds=self._now,
        )

    def _turns(self) -> Iterator[None]:
        for before, after in zip(self._walk, self._walk[1:], strict=False):
            if (before > 0) != (after > 0):
                yield None


def _p95(values: list[int]) -> float:
    return sorted(values)[int(len(values) * 0.95)] if values else 0.0
