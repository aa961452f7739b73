"""The autoscaler's decision: how many workers, why, and what is in the way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.store.scaling import PoolSignals
from rowlock.store.types import PoolDemand, PoolId
from rowlock_operator.api.pool_words import Limit, Why
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.pools.scaling import (
    Decision,
    Outcome,
    Past,
    Policy,
    Standing,
    decide,
    downstream,
)
from rowlock_operator.pools.victims import (
    DELETION_COST,
    PodOfPool,
    choose,
    cost_patch,
    pods_of,
)

#: 10 slots a worker, 80 % of which should be full: 8 runs a worker. No windows.
CALM = Policy(least=1, most=10, slots=10, target_percent=80, down_window=0, down_percent=100)


def signals(running: int = 0, claimable: int = 0, **more: Any) -> PoolSignals:
    demand = PoolDemand(PoolId(1), "ns", "pool", running, claimable, 0, None, 1, 10)
    return PoolSignals(demand, **more)


def stands(desired: int, *, ready: int | None = None, rolling: bool = False) -> Standing:
    return Standing(desired, desired if ready is None else ready, rolling)


def decided(
    standing: Standing,
    seen: PoolSignals | None,
    *,
    past: Past | None = None,
    now: float = 1000.0,
    **policy: Any,
) -> Decision:
    return decide(replace(CALM, **policy), standing, seen, past or Past(), now=now)


@pytest.mark.parametrize(
    ("standing", "seen", "wanted", "outcome", "why", "limit"),
    [
        # What is needed is rounded up.
        (stands(1), signals(8), 1, Outcome.STEADY, Why.SLOTS, None),
        (stands(1), signals(8, 1), 2, Outcome.UP, Why.SLOTS, None),
        (stands(2), signals(0, 16), 2, Outcome.STEADY, Why.SLOTS, None),
        # A full pool stays although nothing waits.
        (stands(2), signals(16, 0), 2, Outcome.STEADY, Why.SLOTS, None),
        (stands(4), signals(0, 0), 1, Outcome.DOWN, Why.SLOTS, None),
        (stands(4), signals(17, 0), 3, Outcome.DOWN, Why.SLOTS, None),
        # A smaller pool must have room for a tenth more.
        (stands(4), signals(21, 0), 3, Outcome.DOWN, Why.SLOTS, None),
        (stands(4), signals(22, 0), 4, Outcome.STEADY, Why.SLOTS, None),
        # A step doubles at most.
        (stands(2), signals(0, 80), 4, Outcome.UP, Why.SLOTS, Limit.STEP),
        (stands(8), signals(0, 200), 10, Outcome.UP, Why.SLOTS, Limit.MAXIMUM),
        (stands(10), signals(0, 200), 10, Outcome.LIMITED, Why.SLOTS, Limit.MAXIMUM),
        (stands(5), signals(0, 80), 10, Outcome.UP, Why.SLOTS, None),
        # One run that waits too long asks for one more, once all are there.
        (stands(2), signals(9, 1, oldest_wait=31), 3, Outcome.UP, Why.WAIT, None),
        (stands(2), signals(9, 1, oldest_wait=30), 2, Outcome.STEADY, Why.SLOTS, None),
        (stands(2, ready=1), signals(9, 1, oldest_wait=31), 2, Outcome.STEADY, Why.SLOTS, None),
        # Slots of workers that are late count as used, unless there is nothing to do.
        (stands(1), signals(1, 0, saturated=9), 2, Outcome.UP, Why.SLOTS, None),
        (stands(1), signals(1, 0, free=9), 1, Outcome.STEADY, Why.SLOTS, None),
        (stands(1), signals(0, 0, saturated=10), 1, Outcome.STEADY, Why.SLOTS, None),
        # What stands behind the workers is full: more of them would make it worse.
        (stands(1), signals(8, 9, tries=50, refused=10), 1, Outcome.LIMITED, Why.SLOTS,
         Limit.DOWNSTREAM),
        (stands(1), signals(8, 9, commit_ms=1500), 1, Outcome.LIMITED, Why.SLOTS,
         Limit.DOWNSTREAM),
        (stands(1), signals(8, 9, oldest_wait=99, commit_ms=1500), 1, Outcome.LIMITED, Why.SLOTS,
         Limit.DOWNSTREAM),
        (stands(1), signals(8, 8, tries=50, refused=9), 2, Outcome.UP, Why.SLOTS, None),
        (stands(4), signals(0, 0, tries=50, refused=50), 1, Outcome.DOWN, Why.SLOTS, None),
        # A rollout: never fewer, but more.
        (stands(4, rolling=True), signals(1), 4, Outcome.LIMITED, Why.SLOTS, Limit.ROLLOUT),
        (stands(1, rolling=True), signals(9), 2, Outcome.UP, Why.SLOTS, None),
        # Nobody knows.
        (stands(3), None, 3, Outcome.HELD, Why.UNKNOWN, None),
        (stands(0), None, 1, Outcome.UP, Why.BOUNDS, None),
        # Bounds that a person has set need no step and no signal.
        (stands(12), signals(200), 10, Outcome.DOWN, Why.BOUNDS, None),
        (stands(12), None, 10, Outcome.DOWN, Why.BOUNDS, None),
        (stands(0), signals(), 1, Outcome.UP, Why.BOUNDS, None),
        (stands(12, rolling=True), None, 12, Outcome.HELD, Why.UNKNOWN, None),
    ],
)  # fmt: skip
def test_what_is_decided(
    standing: Standing,
    seen: PoolSignals | None,
    wanted: int,
    outcome: Outcome,
    why: Why,
    limit: Limit | None,
) -> None:
    found = decided(standing, seen)
    assert (found.replicas, found.outcome, found.why, found.limit) == (wanted, outcome, why, limit)


def test_an_idle_pool_goes_to_zero_and_comes_back() -> None:
    assert decided(stands(1), signals(), least=0).replicas == 0
    assert decided(stands(0), signals(), least=0).outcome is Outcome.STEADY
    woken = decided(stands(0), signals(0, 1), least=0)
    assert (woken.replicas, woken.outcome) == (1, Outcome.UP)


def test_a_smaller_pool_must_have_been_enough_for_the_whole_window() -> None:
    past = Past()
    for now in range(0, 300, 10):
        found = decided(stands(4), signals(1), past=past, now=float(now), down_window=300)
        assert (found.outcome, found.limit) == (Outcome.LIMITED, Limit.WINDOW), now
        past = found.past
    found = decided(stands(4), signals(1), past=past, now=301.0, down_window=300)
    assert (found.outcome, found.replicas) == (Outcome.DOWN, 1)


def test_one_busy_moment_begins_the_window_anew() -> None:
    past = decided(stands(4), signals(1), now=0.0, down_window=300).past
    past = decided(stands(4), signals(30), past=past, now=200.0, down_window=300).past
    found = decided(stands(4), signals(1), past=past, now=400.0, down_window=300)
    assert (found.replicas, found.limit) == (4, Limit.WINDOW)


def test_a_larger_pool_must_have_been_needed_for_the_window_of_growth() -> None:
    first = decided(stands(1), signals(20), now=0.0, up_window=60)
    assert (first.replicas, first.limit) == (1, Limit.WINDOW)
    later = decided(stands(1), signals(20), past=first.past, now=61.0, up_window=60)
    assert (later.replicas, later.outcome) == (2, Outcome.UP)


def test_while_nobody_knew_the_pool_may_have_been_needed() -> None:
    past = decided(stands(4), signals(1), now=0.0, down_window=300).past
    past = decided(stands(4), None, past=past, now=290.0, down_window=300).past
    found = decided(stands(4), signals(1), past=past, now=400.0, down_window=300)
    assert (found.replicas, found.limit) == (4, Limit.WINDOW)


def test_a_shrinking_pool_keeps_its_step() -> None:
    found = decided(stands(8), signals(), down_percent=50)
    assert (found.replicas, found.limit, found.outcome) == (4, Limit.STEP, Outcome.DOWN)
    assert decided(stands(1), signals(), down_percent=50, least=0).replicas == 0


def test_the_policy_is_what_the_spec_says() -> None:
    spec = WorkerPoolSpec.model_validate(
        {
            "image": "a",
            "slotsPerWorker": 7,
            "autoscaling": {
                "minReplicas": 2,
                "maxReplicas": 9,
                "targetSlotUtilizationPercent": 60,
                "targetQueueWaitSeconds": 11,
                "scaleUp": {"stabilizationWindowSeconds": 1, "maxStepPercent": 300},
                "scaleDown": {"stabilizationWindowSeconds": 3, "maxStepPercent": 4},
            },
        }
    )
    assert Policy.of(spec) == Policy(2, 9, 7, 60, 11, 1, 300, 3, 4)


def test_a_few_refusals_are_no_full_model() -> None:
    assert not downstream(signals(tries=4, refused=4))
    assert "4 of" not in downstream(signals(tries=6, refused=5))
    assert downstream(signals(tries=6, refused=5))


POLICIES = st.builds(
    Policy,
    least=st.integers(0, 5),
    most=st.integers(5, 40),
    slots=st.integers(1, 300),
    target_percent=st.integers(10, 100),
    wait=st.integers(1, 120).map(float),
    up_window=st.sampled_from([0.0, 30.0]),
    up_percent=st.integers(1, 400),
    down_window=st.sampled_from([0.0, 60.0, 300.0]),
    down_percent=st.integers(1, 100),
)
SIGNALS = st.none() | st.builds(
    signals,
    st.integers(0, 5000),
    st.integers(0, 5000),
    oldest_wait=st.none() | st.floats(0, 500),
    saturated=st.integers(0, 500),
    tries=st.integers(0, 100),
    refused=st.integers(0, 100),
    commit_ms=st.floats(0, 3000),
)
PAST = st.lists(
    st.tuples(st.floats(0, 1000), st.integers(0, 60), st.integers(0, 9)), max_size=6
).map(lambda found: Past(tuple(sorted((at, it, it + more) for at, it, more in found))))


@settings(max_examples=400, deadline=None)
@given(POLICIES, st.integers(0, 60), st.integers(0, 60), st.booleans(), SIGNALS, PAST)
def test_what_no_decision_ever_does(
    policy: Policy,
    desired: int,
    ready: int,
    rolling: bool,
    seen: PoolSignals | None,
    past: Past,
) -> None:
    standing = Standing(desired, ready, rolling)
    found = decide(policy, standing, seen, past, now=1000.0)
    inside = policy.least <= desired <= policy.most
    if inside:
        assert policy.least <= found.replicas <= policy.most
        assert found.replicas <= desired + max(1, desired * policy.up_percent // 100)
        assert found.replicas >= desired - max(1, desired * policy.down_percent // 100)
    if rolling:
        assert found.replicas >= min(desired, found.replicas if desired < policy.least else desired)
    if seen is None and inside:
        assert (found.outcome, found.replicas) == (Outcome.HELD, desired)
    if seen is not None and desired <= policy.most and found.replicas < desired:
        assert found.replicas * policy.slots >= seen.demand.running
        assert found.replicas >= found.needed
    if seen is not None and inside and downstream(seen):
        assert found.replicas <= desired
    assert (found.replicas == desired) == (
        found.outcome in (Outcome.STEADY, Outcome.LIMITED, Outcome.HELD)
    )


@settings(max_examples=100, deadline=None)
@given(POLICIES, st.integers(0, 500), st.integers(0, 500))
def test_a_steady_load_ends_in_one_number(policy: Policy, running: int, claimable: int) -> None:
    seen = signals(running, claimable)
    desired, past, walk = policy.least, Past(), []
    for tick in range(400):
        found = decide(policy, stands(desired), seen, past, now=tick * 10.0)
        desired, past = found.replicas, found.past
        walk.append(desired)
    assert walk == sorted(walk), "it never went back"
    assert len(set(walk[-40:])) == 1, "it came to rest"
    assert all(after >= before for before, after in pairwise(walk))


# ---------------------------------------------------------------- who goes


def pod(name: str, *, runs: int = 0, ready: bool = True, cost: str | None = None) -> PodOfPool:
    return PodOfPool(name, f"uid-{name}", ready, runs, annotated=cost is not None, cost=cost)


def test_who_is_not_ready_goes_first_then_who_holds_least() -> None:
    pods = [pod("a", runs=5), pod("b"), pod("c", runs=1), pod("d", runs=9, ready=False)]
    assert [it.name for it in choose(pods, 3)] == ["d", "b", "c"]
    assert choose(pods, 0) == [] == choose(pods, -1)
    assert len(choose(pods, 9)) == 4


def test_pods_that_end_are_no_choice() -> None:
    def item(name: str, **more: Any) -> dict[str, Any]:
        status = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        metadata = {"name": name, "uid": name, **more.pop("metadata", {})}
        return {"metadata": metadata, "status": {**status, **more}}

    leaving = item("b", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    found = pods_of([item("a"), leaving, item("c", phase="Failed")], {"a": 3, "b": 1})
    assert found == [PodOfPool("a", "a", True, 3, annotated=False)]


def test_the_cost_is_written_once_and_taken_back() -> None:
    path = "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost"
    test = {"op": "test", "path": "/metadata/uid", "value": "uid-a"}
    assert cost_patch(pod("a"), victim=True) == [
        test,
        {"op": "add", "path": "/metadata/annotations", "value": {DELETION_COST: "-1000"}},
    ]
    other = replace(pod("a"), annotated=True)
    assert cost_patch(other, victim=True) == [test, {"op": "add", "path": path, "value": "-1000"}]
    assert cost_patch(pod("a", cost="-1000"), victim=True) == []
    assert cost_patch(pod("a", cost="-1000"), victim=False) == [
        test,
        {"op": "remove", "path": path},
    ]
    assert cost_patch(pod("a"), victim=False) == []
