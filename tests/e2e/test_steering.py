"""People steer runs with kubectl alone."""

from __future__ import annotations

import json

import pytest

from tests.e2e.installation import Installation, eventually, fresh

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def wish(installed: Installation, run: str, state: str) -> None:
    """Set what is wished of a run."""
    patch = json.dumps({"spec": {"desiredState": state}})
    installed.kubectl("patch", "agentrun", run, "--type=merge", "-p", patch)


def test_a_suspended_run_does_nothing_until_it_is_continued(installed: Installation) -> None:
    run = installed.run("walker", fresh("held"), steps=30, seconds=0.5)
    installed.ledger.wait(run, "step-1")
    wish(installed, run, "Suspend")
    installed.phase(run, "Suspended")
    held = installed.ledger.count(run)
    wish(installed, run, "Run")
    status = installed.finish(run)
    assert 2 <= len(held) < 30
    assert (status["attempt"], status["takeovers"]) == (1, 0)
    assert set(installed.ledger.count(run).values()) == {1}


def test_a_cancelled_run_ends_in_mid_step(installed: Installation) -> None:
    run = installed.run("walker", fresh("ended"), gates=[1])
    installed.ledger.wait(run, "step-1")
    wish(installed, run, "Cancel")
    installed.finish(run, "Cancelled")
    assert "step-2" not in installed.ledger.count(run)


def test_a_tool_call_waits_for_a_person(installed: Installation) -> None:
    run = installed.run("refunder", fresh("asked"))
    installed.phase(run, "AwaitingApproval")

    def question() -> dict[str, dict[str, str]] | None:
        listed = installed.get("agentrunapprovals")["items"]
        return next((each for each in listed if each["spec"]["runRef"]["name"] == run), None)

    found = eventually(question, f"the question of {run}")
    assert installed.ledger.count(run) == {}
    decision = {"action": "Approve", "decidedBy": "ada", "digest": found["spec"]["digest"]}
    patch = json.dumps({"spec": {"decision": decision}})
    installed.kubectl("patch", "aappr", found["metadata"]["name"], "--type=merge", "-p", patch)
    installed.finish(run)
    assert installed.ledger.count(run) == {"refund": 1}
