"""What the simulator compares: our policy, and plain backlog scaling as KEDA and an HPA do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rowlock.store.scaling import PoolSignals
from rowlock_operator.pools.scaling import Past, Policy, Standing, decide


class Scaler(Protocol):
    """Decides every `period` seconds."""

    name: str
    period: int
    #: Whether workers that hold least go first.
    spares: bool

    def decide(self, now: int, standing: Standing, signals: PoolSignals | None) -> int:
        """Return how many workers there should be."""
        ...


class Ours:
    """The decision of the operator, as it is."""

    name = "rowlock"
    period = 10
    spares = True

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._past = Past()

    def decide(self, now: int, standing: Standing, signals: PoolSignals | None) -> int:
        """Return how many workers there should be."""
        found = decide(self._policy, standing, signals, self._past, now=float(now))
        self._past = found.past
        return found.replicas


@dataclass(frozen=True, slots=True)
class Rules:
    """Defaults of a HorizontalPodAutoscaler.

    Parameters
    ----------
    tolerance
        A smaller relative difference is left alone.
    """

    window: int = 300
    up_percent: int = 100
    up_pods: int = 4
    tolerance: float = 0.1


class Backlog:
    """ceil(backlog / target), through an HPA with its defaults; the Deployment chooses who goes.

    A source that does not answer counts as empty, as KEDA has it without `fallback`.

    Parameters
    ----------
    with_running
        Count what runs beside what waits.
    """

    period = 15
    spares = False

    def __init__(self, policy: Policy, *, with_running: bool) -> None:
        self.name = "KEDA, running + waiting" if with_running else "KEDA, backlog"
        self._policy = policy
        self._with_running = with_running
        self._rules = Rules()
        self._wanted: list[tuple[int, int]] = []

    def decide(self, now: int, standing: Standing, signals: PoolSignals | None) -> int:
        """Return how many workers there should be."""
        here, policy, rules = standing.desired, self._policy, self._rules
        wanted = self._count(signals)
        if here and abs(wanted / here - 1) <= rules.tolerance:
            wanted = here
        self._wanted = [it for it in self._wanted if it[0] > now - rules.window] + [(now, wanted)]
        if wanted < here:
            wanted = min(here, max(it[1] for it in self._wanted))
        most = max(here * (100 + rules.up_percent) // 100, here + rules.up_pods)
        return max(policy.least, min(wanted, most, policy.most))

    def _count(self, signals: PoolSignals | None) -> int:
        if signals is None:
            return 0
        work = signals.demand.claimable
        if self._with_running:
            work += signals.demand.running
        return -(-work * 100 // (self._policy.slots * self._policy.target_percent))
