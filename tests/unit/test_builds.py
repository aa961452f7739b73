"""Which build wrote a history, and which builds a pool keeps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.engine.builds import writer_of
from rowlock.states import EventKind
from rowlock.store.bodies import pack
from rowlock.store.builds import BoundRuns
from rowlock.store.scaling import PoolSignals
from rowlock.store.types import Carry, Event, PoolDemand, PoolId, RunId
from rowlock_operator.kube.specs.deployment import PoolIdentity
from rowlock_operator.kube.specs.keeper import build_of, keeper
from rowlock_operator.kube.specs.labels import KEPT_LABEL
from rowlock_operator.pools.keeping import Keeping, Kept, to_keep, without_bound
from rowlock_operator.pools.status import _old_builds

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def step(epoch: int) -> Event:
    """Return a step that the lease of an epoch wrote."""
    return Event(RunId(1), 1, epoch, 1, EventKind.STEP_DONE, "a", 1, 0, b"1")


def ended(epoch: int, build: str, kind: EventKind = EventKind.HANDED_OVER) -> Event:
    """Return what history says of the end of a lease; its successor wrote it, or it did itself."""
    body = pack(json.dumps({"epoch": epoch, "build": build}).encode())
    return Event(RunId(1), 1, epoch + 1, 1, kind, f"65:{epoch}", 1, None, body)


def left(epoch: int, build: str) -> Carry:
    """Return what a lease left for its successor."""
    return Carry(EventKind.TAKEN_OVER, epoch, 1, "w", "WorkerDied", NOW, NOW, build=build)


@pytest.mark.parametrize(
    ("history", "carried", "build"),
    [
        ([], [], ""),
        ([], [left(1, "v1")], ""),  # no step is written
        ([step(1)], [left(1, "v1")], "v1"),
        ([step(1), ended(1, "v1")], [], "v1"),
        ([step(1), ended(1, "v1", EventKind.PARKED)], [], "v1"),
        # Another build had it without a step: the history is still of the first.
        ([step(1), ended(1, "v1")], [left(2, "v2")], "v1"),
        ([step(1), ended(1, "v1"), step(2)], [left(2, "v2")], "v2"),
        # This lease wrote a step itself, or an older worker did not say: nobody else goes on.
        ([step(1), ended(1, "v1"), step(2)], [], ""),
        ([step(1), ended(1, "")], [], ""),
    ],
)
def test_the_newest_step_says_which_build_goes_on(
    history: list[Event], carried: list[Carry], build: str
) -> None:
    assert writer_of(history, carried) == build


def bound(build: str, *, pinned: int = 0, claimable: int = 0, running: int = 0) -> BoundRuns:
    """Return runs of a build."""
    runs = max(pinned, claimable + running)
    return BoundRuns(PoolId(1), build, runs, pinned, claimable, running)


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        ([], []),
        ([bound("new", pinned=9, running=9)], []),
        ([bound("old", claimable=3)], []),  # may go on elsewhere once the build is gone
        ([bound("old", pinned=1)], [Kept("old", 1, 1)]),  # parked: it may come back any time
        ([bound("old", pinned=5, claimable=2, running=3)], [Kept("old", 5, 3)]),
        ([bound("old", pinned=99, running=99)], [Kept("old", 99, 4)]),
        (
            [bound("old", pinned=1), bound("new", pinned=1), bound("elder", pinned=2)],
            [Kept("elder", 2, 1), Kept("old", 1, 1)],
        ),
    ],
)
def test_only_older_builds_with_pinned_runs_are_kept(
    runs: list[BoundRuns], kept: list[Kept]
) -> None:
    assert to_keep(runs, current="new", slots=2, most=4) == kept


def test_runs_of_other_builds_ask_for_no_workers_of_the_present_one() -> None:
    demand = PoolDemand(PoolId(1), "ns", "p", 10, 20, 0, None, 1, 8)
    runs = [bound("old", pinned=9, running=4, claimable=5), bound("new", pinned=1, running=1)]
    left_over = without_bound(PoolSignals(demand), runs, current="new").demand
    assert (left_over.running, left_over.claimable) == (6, 15)


def test_a_keeper_is_the_same_pod_that_begins_no_runs() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"team": "a", "pod-template-hash": "x"}, "creationTimestamp": None},
        "spec": {
            "containers": [
                {"name": "sidecar", "image": "s"},
                {
                    "name": "worker",
                    "image": "i:1",
                    "env": [{"name": "ROWLOCK_BUILD", "value": "i:1"}],
                },
            ]
        },
    }
    made = keeper(PoolIdentity("ns", "p", "uid"), "i:1", template, replicas=2)
    assert build_of(made) == "i:1"
    assert made["metadata"]["name"].startswith("rowlock-p-")
    pod = made["spec"]["template"]
    assert pod["metadata"]["labels"].keys() == {"team", KEPT_LABEL}
    selector = made["spec"]["selector"]["matchLabels"]
    assert selector[KEPT_LABEL] == pod["metadata"]["labels"][KEPT_LABEL]
    assert pod["spec"]["containers"][0] == {"name": "sidecar", "image": "s"}
    assert pod["spec"]["containers"][1]["env"][-1] == {"name": "ROWLOCK_RESERVED", "value": "true"}
    assert template["metadata"]["labels"]["pod-template-hash"] == "x"  # not ours to change


@pytest.mark.parametrize(
    ("keeping", "says"),
    [
        (None, (None, "Unknown")),
        (Keeping(), (False, "NoneNeeded")),
        (Keeping(kept=(Kept("a", 1, 1),)), (True, "PinnedRuns")),
        (Keeping(kept=(Kept("a", 1, 1),), lost=(Kept("b", 1, 1),)), (False, "TemplateLost")),
    ],
)
def test_a_pool_says_what_it_keeps(keeping: Keeping | None, says: tuple[bool | None, str]) -> None:
    condition = _old_builds(keeping)
    assert (condition.status, condition.reason) == says
