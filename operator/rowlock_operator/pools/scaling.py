"""How many workers a pool should have: the autoscaler's decision; pure.

What is needed is `ceil((running + claimable + stuck) / (slots of a worker * target))`.
Running runs count, so a full pool does not shrink the moment its queue is empty.
`stuck` are free slots of workers whose event loop is late or whose CPU is full: as good as used.
A run that waits too long asks for one worker more, but only once all that were asked for are ready.

A pool shrinks only to a number that would have room for a tenth more: else the next small rise
would undo the step, and each step back costs hand-overs.

Between what is needed and what is done stand, in this order:
the windows (the number must have been needed for so long), the step, the bounds;
a rollout, which stops any shrinking; and a model provider or a database that is full,
which stops any growing, for more workers would make it worse.
Where nobody knows what is needed, nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum, unique

from rowlock.store.scaling import PoolSignals
from rowlock_operator.api.pool_words import Limit, Why
from rowlock_operator.api.workerpool import WorkerPoolSpec

#: A loop whose ticks come later than this (p99 of 5 s) does not take more runs: twice the lag at
#: which a worker stops claiming (rowlock.engine.pace), so that a hiccup is no reason to grow.
LATE_MS = 100
#: A CPU that is fuller than this has nothing left for one more run.
FULL_PERCENT = 90
#: Of so many refused tries of steps, and of this share of all, more workers are refused as well.
_REFUSED, _REFUSED_PERCENT = 5, 20
#: PostgreSQL takes that long for a batch that takes it a few ms otherwise.
_COMMIT_MS = 1000.0
#: A smaller pool must have room for so much more, or the next small rise would undo the step.
_ROOM_PERCENT = 10


@unique
class Outcome(StrEnum):
    """What follows."""

    STEADY = "Steady"
    UP = "Up"
    DOWN = "Down"
    #: Another number is needed, and something is in the way: `limit` says what.
    LIMITED = "Limited"
    #: Nobody knows what is needed.
    HELD = "Held"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a WorkerPool's spec asks for.

    Parameters
    ----------
    target_percent
        How full slots should be.
    wait
        Seconds that a run may wait before it asks for one more worker.
    up_window, down_window
        Seconds for which a change must have been needed.
    up_percent, down_percent
        Largest step, in percent of what there is; one worker is always allowed.
    """

    least: int
    most: int
    slots: int
    target_percent: int = 75
    wait: float = 30.0
    up_window: float = 0.0
    up_percent: int = 100
    down_window: float = 300.0
    down_percent: int = 50

    @classmethod
    def of(cls, spec: WorkerPoolSpec) -> Policy:
        """Return the policy of a pool."""
        scaling = spec.autoscaling
        return cls(
            least=scaling.min_replicas,
            most=scaling.max_replicas,
            slots=spec.slots_per_worker,
            target_percent=scaling.target_slot_utilization_percent,
            wait=scaling.target_queue_wait_seconds,
            up_window=scaling.scale_up.stabilization_window_seconds,
            up_percent=scaling.scale_up.max_step_percent,
            down_window=scaling.scale_down.stabilization_window_seconds,
            down_percent=scaling.scale_down.max_step_percent,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """How the pool's Deployment stands.

    Parameters
    ----------
    rolling
        Its Pods are being replaced by others, or it has not acted on its spec yet.
    """

    desired: int
    ready: int
    rolling: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """What was needed in the last minutes.

    Parameters
    ----------
    entries
        (when, on the monotonic clock; how many; how many with room to spare).
    """

    entries: tuple[tuple[float, int, int], ...] = ()

    def with_(self, now: float, needed: int, roomy: int, *, keep: float) -> Past:
        """Return the past with one more entry, without those older than `keep` seconds."""
        young = tuple(entry for entry in self.entries if entry[0] >= now - keep)
        return Past((*young, (now, needed, roomy)))

    @property
    def roomy(self) -> int:
        """How many would have had room to spare at the last look."""
        return self.entries[-1][2]

    def least(self, since: float) -> int:
        """Return the smallest number that was needed since then; the newest always counts."""
        return min(needed for _, needed, _ in self._since(since))

    def most(self, since: float) -> int:
        """Return the largest number with room since then; the newest always counts."""
        return max(roomy for _, _, roomy in self._since(since))

    def _since(self, since: float) -> list[tuple[float, int, int]]:
        return [entry for entry in self.entries[:-1] if entry[0] > since] + [self.entries[-1]]


@dataclass(frozen=True, slots=True)
class Need:
    """How many workers the work asks for.

    Parameters
    ----------
    roomy
        So many would have room for a little more work.
    said
        The same in words.
    """

    workers: int
    roomy: int
    why: Why
    said: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and why.

    Parameters
    ----------
    replicas
        Workers wanted from now on.
    needed
        Workers that the work asks for, whatever is allowed.
    past
        To be given to the next decision.
    """

    outcome: Outcome
    replicas: int
    needed: int
    why: Why
    past: Past
    limit: Limit | None = None
    message: str = ""


def decide(
    policy: Policy, standing: Standing, signals: PoolSignals | None, past: Past, *, now: float
) -> Decision:
    """Return how many workers there should be.

    Parameters
    ----------
    signals
        None if nobody knows.
    now
        Monotonic time in seconds.
    """
    keep = max(policy.up_window, policy.down_window)
    here = standing.desired
    if not past.entries:
        # Nobody has watched yet: what there is was needed until now.
        past = past.with_(now, here, here, keep=keep)
    if signals is None:
        said = "PostgreSQL does not say what there is to do"
        held = Decision(Outcome.HELD, here, here, Why.UNKNOWN, past, message=said)
        held = replace(held, past=past.with_(now, here, here, keep=keep))
        return _into_bounds(policy, standing, held) or held
    need = _need(policy, standing, signals)
    past = past.with_(now, need.workers, need.roomy, keep=keep)
    calm = max(here, past.least(now - policy.up_window))
    calm = min(calm, past.most(now - policy.down_window))
    wanted = Decision(Outcome.STEADY, calm, need.workers, need.why, past, message=need.said)
    return _into_bounds(policy, standing, wanted) or _toward(policy, standing, signals, wanted)


def downstream(signals: PoolSignals) -> str:
    """Return what is full behind the workers, empty for nothing."""
    tries, refused = signals.tries, signals.refused
    if refused >= _REFUSED and refused * 100 >= _REFUSED_PERCENT * tries:
        return f"{refused} of {tries} tries of steps were told to come again later"
    if signals.commit_ms >= _COMMIT_MS:
        return f"PostgreSQL takes {signals.commit_ms / 1000:.1f} s for a batch of history"
    return ""


def _need(policy: Policy, standing: Standing, signals: PoolSignals) -> Need:
    running, claimable = signals.demand.running, signals.demand.claimable
    stuck = signals.saturated if running + claimable else 0
    used = running + claimable + stuck
    full = policy.slots * policy.target_percent
    by_slots = -(-used * 100 // full)
    roomy = -(-used * (100 + _ROOM_PERCENT) // full)
    said = f"{running} run, {claimable} wait"
    if stuck:
        said += f", {stuck} free slots belong to workers that are full"
    waited, all_there = signals.oldest_wait or 0.0, standing.ready >= standing.desired
    if waited > policy.wait and all_there and by_slots <= standing.desired:
        more = standing.desired + 1
        return Need(more, max(more, roomy), Why.WAIT, f"{said}, the oldest for {waited:.0f} s")
    return Need(by_slots, roomy, Why.SLOTS, said)


def _into_bounds(policy: Policy, standing: Standing, wanted: Decision) -> Decision | None:
    """Return the way back into bounds that a person has set since; no step, no window."""
    here = standing.desired
    if here < policy.least:
        said = f"minReplicas is {policy.least}"
        return replace(
            wanted, outcome=Outcome.UP, replicas=policy.least, why=Why.BOUNDS, message=said
        )
    if here > policy.most and not standing.rolling:
        said = f"maxReplicas is {policy.most}"
        return replace(
            wanted, outcome=Outcome.DOWN, replicas=policy.most, why=Why.BOUNDS, message=said
        )
    return None


def _toward(policy: Policy, standing: Standing, signals: PoolSignals, wanted: Decision) -> Decision:
    here = standing.desired
    if wanted.replicas > here:
        return _grow(policy, here, signals, wanted)
    if max(wanted.replicas, policy.least) < here:
        return _shrink(policy, standing, wanted)
    enough = max(wanted.past.roomy, policy.least)
    if wanted.needed > here:
        said = f"{wanted.needed} are needed, not for long yet"
        return _limited(wanted, here, here, Limit.WINDOW, said)
    if enough < here:
        said = f"{enough} are enough, not for long yet"
        return _limited(wanted, here, here, Limit.WINDOW, said)
    return replace(wanted, replicas=here)


def _grow(policy: Policy, here: int, signals: PoolSignals, wanted: Decision) -> Decision:
    if full := downstream(signals):
        return _limited(wanted, here, here, Limit.DOWNSTREAM, full)
    step = max(1, here * policy.up_percent // 100)
    if wanted.replicas > policy.most and here + step >= policy.most:
        said = f"{wanted.needed} are needed, maxReplicas is {policy.most}"
        return _limited(wanted, here, max(here, policy.most), Limit.MAXIMUM, said)
    if wanted.replicas > here + step:
        said = f"{wanted.needed} are needed, a step is {step} at most"
        return _limited(wanted, here, here + step, Limit.STEP, said)
    return replace(wanted, outcome=Outcome.UP)


def _shrink(policy: Policy, standing: Standing, wanted: Decision) -> Decision:
    here, target = standing.desired, max(wanted.replicas, policy.least)
    if standing.rolling:
        return _limited(wanted, here, here, Limit.ROLLOUT, "its Pods are being replaced")
    step = max(1, here * policy.down_percent // 100)
    if target < here - step:
        said = f"{target} are enough, a step is {step} at most"
        return _limited(wanted, here, here - step, Limit.STEP, said)
    return replace(wanted, outcome=Outcome.DOWN, replicas=target)


def _limited(wanted: Decision, here: int, to: int, limit: Limit, message: str) -> Decision:
    moved = Outcome.UP if to > here else Outcome.DOWN if to < here else Outcome.LIMITED
    return replace(wanted, outcome=moved, replicas=to, limit=limit, message=message)
