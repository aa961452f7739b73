"""Workers lost in mid-run, each in its own way: another goes on where the last step ended."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e.installation import Installation, eventually, fresh

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def started(installed: Installation, word: str, **walk: Any) -> tuple[str, str]:
    """Start a run that waits in step 1, and return its name and its worker's Pod."""
    run = installed.run("walker", fresh(word), gates=[1], **walk)
    installed.ledger.wait(run, "step-1")
    return run, working_pod(installed, run)


def working_pod(installed: Installation, run: str) -> str:
    """Return the Pod of the worker that holds the run."""
    names = {each["metadata"]["name"] for each in installed.pods("rowlock.dev/pool=e2e")}

    def look() -> str | None:
        worker = installed.status(run).get("worker", "")
        return next((name for name in names if worker.startswith(name)), None)

    return eventually(look, f"the worker of {run} among {names}")


def test_a_force_deleted_pod_s_run_goes_on_elsewhere(
    installed: Installation, record_property: Any
) -> None:
    run, pod = started(installed, "forced")
    before = installed.ledger.count(run)
    # The nodes have the clock of this machine.
    deleted = time.time()
    installed.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    again = installed.ledger.wait(run, "step-1", times=2)
    record_property("takeover_seconds", round(again - deleted, 2))
    installed.ledger.open(f"{run}-1")
    status = installed.finish(run)
    assert before == {"step-0": 1, "step-1": 1}
    # What had ended was not done again; what was interrupted was, once.
    assert installed.ledger.count(run) == {"step-0": 1, "step-1": 2, "step-2": 1}
    assert (status["takeovers"], status["attempt"]) == (1, 1)
    (event,) = eventually(lambda: installed.events(run, "RunTakenOver"), "RunTakenOver")
    assert event["type"] == "Warning"
    assert pod in event["message"]
    assert event["related"]["kind"] == "Pod"
    assert event["related"]["name"] != pod
    installed.pool_ready("e2e", 2)


def test_a_pod_deleted_with_grace_hands_its_runs_over(installed: Installation) -> None:
    run = installed.run("walker", fresh("graceful"), steps=40, seconds=0.5)
    installed.ledger.wait(run, "step-2")
    pod = working_pod(installed, run)
    installed.kubectl("delete", "pod", pod, "--wait=false")
    status = installed.finish(run)
    assert status["takeovers"] == 0
    assert set(installed.ledger.count(run).values()) == {1}
    assert len(installed.ledger.count(run)) == 40
    assert eventually(lambda: installed.events(run, "RunHandedOver"), "RunHandedOver")
    assert not installed.events(run, "RunTakenOver")
    installed.pool_ready("e2e", 2)


def test_a_process_out_of_memory_costs_a_takeover(installed: Installation) -> None:
    run = installed.run("walker", fresh("greedy"), greedy=1)
    status = installed.finish(run)
    assert status["takeovers"] == 1
    assert installed.ledger.count(run) == {"step-0": 1, "step-1": 2, "step-2": 1}
    installed.pool_ready("e2e", 2)


def test_runs_outlive_the_database_s_pod(installed: Installation) -> None:
    runs = [installed.run("walker", fresh("kept"), steps=20, seconds=0.5) for _ in range(3)]
    for run in runs:
        installed.ledger.wait(run, "step-1")
    installed.kubectl("delete", "pod", "rowlock-database-0", "--wait=true")
    for run in runs:
        status = installed.finish(run)
        assert status["attempt"] == 1
        assert len(installed.ledger.count(run)) == 20
    installed.ready()
