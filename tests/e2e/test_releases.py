"""Rights of one namespace, two releases in one cluster, and what an uninstallation leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.charts import CHART
from tests.e2e.installation import Installation, Space, eventually, fresh, pool

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def test_a_second_release_without_cluster_roles_works_beside_the_first_and_goes(
    installed: Installation, tmp_path: Path
) -> None:
    team = Space(installed.cluster, fresh("team"))
    team.create()
    installed.volume(team.name)
    installed.bring_agents(team)
    settings = {"clusterId": team.name}
    rbac = {"namespaces": [team.name], "readCluster": False, "userRoles": False}
    values = installed.values()
    values |= {"rbac": rbac, "workerPools": {"e2e": pool(replicas=1, drain={"deadlineSeconds": 5})}}
    values["operator"]["settings"] = settings
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    where = ("-n", team.name)
    installed.helm("install", "second", CHART, *where, "-f", file)
    mine = [
        name
        for kind in ("clusterrole", "clusterrolebinding")
        for name in team.kubectl("get", kind, "-o", "name").split()
        if name.split("/")[1].startswith("second")
    ]
    assert not mine
    ours, theirs = installed.run("walker", fresh("ours")), team.run("walker", fresh("theirs"))
    installed.finish(ours)
    team.finish(theirs)
    for space, run in ((installed, ours), (team, theirs)):
        pods = [each["metadata"]["name"] for each in space.pods("rowlock.dev/pool=e2e")]
        history = json.dumps(space.status(run))
        assert any(name in history for name in pods), history
    # A run under way and one that waits for a pool that is not there must not hold anything up.
    open_run = team.run("walker", fresh("open"), gates=[1])
    installed.ledger.wait(open_run, "step-1")
    team.run("walker", fresh("waiting"), pool="nowhere")
    installed.helm("uninstall", "second", *where, "--wait")
    team.cluster.kubectl("delete", "namespace", team.name, "--timeout=100s")
    eventually(
        lambda: team.name not in team.cluster.kubectl("get", "namespaces", "-o", "name").stdout,
        "end of the namespace",
    )
    installed.finish(installed.run("walker", fresh("after")))
