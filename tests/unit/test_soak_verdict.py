"""The judge of a soak sees each breach; a soak that finds nothing says something only then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rowlock.store.types import RunId
from tests.soak.verdict import Evidence, breaches


def good() -> Evidence:
    """Return the evidence of a soak of four runs without a breach."""
    names = {1: "capped", 2: "wire", 3: "print", 4: "desk"}
    ends: list[Any] = [
        {"run_id": run, "name": name, "status": 1, "reason": None, "message": None, "result": '"x"'}
        for run, name in names.items()
    ]
    ends[1]["result"] = '"done"'
    ends[3]["status"] = 3
    held: Any = {"name": "capped", "by_run": 1, "by_agent": 6, "by_key": 2}
    return Evidence(
        asked={RunId(run): name for run, name in names.items()},
        cancelled={RunId(4)},
        ends=ends,
        ledger={
            1: {"refund": Counter({"1/refund/1": 2})},  # asked again under the same call id
            2: {"transfer": Counter({"2/transfer/1": 1})},
            3: {"press": Counter({"3/press/1": 1, "3/press/2": 1})},
        },
        held=[held | {"max_running": 6, "max_running_per_key": 2}],
        starts=[{"name": "rated", "starts": 30, "allowed": 30}],  # type: ignore[list-item]
        rows=Counter(run=4),
        steps_twice=[],
    )


def test_a_good_soak_has_no_breach() -> None:
    assert breaches(good()) == []


def _set(where: Callable[[Evidence], Any], key: Any, value: Any) -> Callable[[Evidence], None]:
    def damage(evidence: Evidence) -> None:
        where(evidence)[key] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda e: e.ends.pop(), "without an end: 1"),
        (lambda e: e.asked.pop(1), "unasked: 1"),
        (lambda e: e.cancelled.clear(), "nobody had asked"),
        (_set(lambda e: e.ends[0], "status", 2), "failed"),
        (_set(lambda e: e.rows, "run_live", 1), "left in rowlock.run_live"),
        (_set(lambda e: e.rows, "violations", 1), "left in rowlock.violations"),
        (_set(lambda e: e.rows, "run_lease", 1), "left in rowlock.run_lease"),
        (lambda e: e.steps_twice.append({"run_id": 1, "key": "think"}), "twice in its history"),
        (_set(lambda e: e.ledger[1]["refund"], "1/refund/2", 1), "2 call ids, not 1"),
        (_set(lambda e: e.ledger, 1, {}), "0 call ids, not 1"),
        (_set(lambda e: e.ledger[2]["transfer"], "2/transfer/1", 2), "only transfer 2 times"),
        (_set(lambda e: e.ledger, 2, {}), "and made 0"),
        (lambda e: e.held.clear(), "log of leases is empty"),
        (_set(lambda e: e.held[0], "by_run", 2), "2 workers at once"),
        (_set(lambda e: e.held[0], "by_agent", 7), "its cap is 6"),
        (_set(lambda e: e.held[0], "by_key", 3), "a key of capped"),
        (_set(lambda e: e.starts[0], "starts", 31), "31 starts in a minute"),
    ],
)
def test_each_breach_is_named(damage: Callable[[Evidence], Any], says: str) -> None:
    evidence = good()
    damage(evidence)
    assert any(says in breach for breach in breaches(evidence))
