"""Helm as the tests call it: real, built from its Go module."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from localcluster.binaries import provide

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "rowlock"
CRDS = ROOT / "charts" / "rowlock-crds"


@cache
def helm_binary() -> Path:
    """Return helm, built once."""
    return provide(["helm"])["helm"]


def helm(
    *arguments: str | Path, home: Path, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm with all of its files below `home`, and return how it ended.

    Without a kubeconfig it knows no cluster, whatever the developer's shell says.
    """
    folders = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [helm_binary(), *arguments],
        env={**os.environ, **folders, "KUBECONFIG": str(kubeconfig or os.devnull)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def done(ended: subprocess.CompletedProcess[str]) -> str:
    """Return what it printed; it must have gone well."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def objects(rendered: str) -> list[dict[str, Any]]:
    """Return the objects of a rendered chart."""
    return [each for each in yaml.safe_load_all(rendered) if each]


def pods(rendered: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the spec of every Pod that the objects ask for, by kind and name.

    A volume that a StatefulSet would claim is an empty one.
    """
    found = {}
    for each in rendered:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            spec = each["spec"]["template"]["spec"]
            claims = each["spec"].get("volumeClaimTemplates", [])
            volumes = [{"name": one["metadata"]["name"], "emptyDir": {}} for one in claims]
            found[name] = {**spec, "volumes": [*spec.get("volumes", []), *volumes]}
        elif each["kind"] == "Pod":
            found[name] = each["spec"]
    return found
