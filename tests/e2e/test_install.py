"""An installation on real pods carries runs to their end."""

from __future__ import annotations

import pytest

from tests.e2e.installation import Installation, fresh

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def test_a_run_goes_from_kubectl_to_its_end(installed: Installation) -> None:
    run = installed.run("walker", fresh("first"))
    status = installed.finish(run)
    assert installed.ledger.count(run) == {"step-0": 1, "step-1": 1, "step-2": 1}
    assert status["takeovers"] == 0
    assert {each["reason"] for each in installed.events(run)} >= {"RunStarted", "RunSucceeded"}


def test_helm_test_carries_a_run_and_leaves_nothing(installed: Installation) -> None:
    installed.helm("test", "rowlock", "-n", installed.name, "--timeout", "110s")
    assert not installed.get("workerpool", "rowlock-test")
    assert not installed.get("pod", "rowlock-test")
