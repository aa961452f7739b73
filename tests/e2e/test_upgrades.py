"""New images of operator and workers roll out under load, and no run notices."""

from __future__ import annotations

import subprocess

import pytest

from tests.e2e.installation import Installation, eventually, fresh, pool

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def test_an_upgrade_of_operator_and_workers_fails_no_run(installed: Installation) -> None:
    old, new = installed.tag, f"{installed.tag}-next"
    for part in ("operator", "worker"):
        image = f"{installed.images}/rowlock-{part}"
        subprocess.run(["buildah", "tag", f"{image}:{old}", f"{image}:{new}"], check=True)
        installed.cluster.load_image(f"{image}:{new}")
    before = [installed.run("walker", fresh("moved"), steps=30, seconds=0.5) for _ in range(6)]
    for run in before:
        installed.ledger.wait(run, "step-1")
    installed.tag = new
    values = installed.values()
    values["database"]["dev"]["image"] = f"{installed.images}/rowlock-postgres:{old}"
    installed.release("upgrade", **values)
    during = [installed.run("walker", fresh("newer"), steps=10, seconds=0.2) for _ in range(6)]
    for run in [*before, *during]:
        status = installed.finish(run)
        assert (status["takeovers"], status["attempt"]) == (0, 1), installed.story(run)
        assert set(installed.ledger.count(run).values()) == {1}
    installed.ready()

    def images() -> bool:
        selector = "rowlock.dev/pool=e2e"
        pods = [*installed.pods(selector), *installed.pods("app.kubernetes.io/component=operator")]
        stay = [
            each
            for each in pods
            if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
        ]
        used = [each["spec"]["containers"][0]["image"] for each in stay]
        return len(used) == 3 and all(image.endswith(f":{new}") for image in used)

    eventually(images, f"all Pods on {new}")
    installed.tag = old
    installed.release("upgrade")
    installed.ready()
    eventually(lambda: not images(), "the old images again")
    assert pool()["replicas"] == 2
