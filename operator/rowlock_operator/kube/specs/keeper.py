"""The Deployment that keeps workers of an older build for the runs that are pinned to it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

from rowlock_operator.kube.specs import labels
from rowlock_operator.kube.specs.deployment import CONTAINER, PoolIdentity, metadata

_BUILD_VARIABLE, _RESERVED_VARIABLE = "ROWLOCK_BUILD", "ROWLOCK_RESERVED"
_BUILD_ANNOTATION = "rowlock.dev/build"


def build_of(item: Mapping[str, Any]) -> str | None:
    """Return which build the workers of a Deployment or ReplicaSet are; None if it does not say."""
    for container in item["spec"]["template"]["spec"].get("containers") or ():
        if container.get("name") == CONTAINER:
            for variable in container.get("env") or ():
                if variable.get("name") == _BUILD_VARIABLE:
                    found: str | None = variable.get("value")
                    return found
    return None


def keeper_name(pool: str, build: str) -> str:
    """Return the name of the Deployment that keeps a build."""
    return f"{labels.object_name(pool)}-{build_digest(build)}"


def build_digest(build: str) -> str:
    """Return what stands for a build where an image's name would be too long."""
    return hashlib.sha256(build.encode()).hexdigest()[:10]


def keeper(
    pool: PoolIdentity, build: str, template: Mapping[str, Any], *, replicas: int
) -> dict[str, Any]:
    """Return the Deployment that keeps workers of `build`.

    Parameters
    ----------
    template
        Of the Pods that ran that build: these are the same, but for that they begin no runs.
    """
    kept = {labels.KEPT_LABEL: build_digest(build)}
    about = metadata(pool)
    about |= {
        "name": keeper_name(pool.name, build),
        "labels": about["labels"] | kept,
        "annotations": {_BUILD_ANNOTATION: build},
    }
    selector = labels.selector_labels(pool.name) | kept
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": about,
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": selector},
            "template": _reserved(template, kept),
        },
    }


def _reserved(template: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    made = copy.deepcopy(dict(template))
    about = made["metadata"]
    about.pop("creationTimestamp", None)
    # What a ReplicaSet adds to the template that it was made from.
    own = {key: it for key, it in about["labels"].items() if key != "pod-template-hash"}
    about["labels"] = own | dict(kept)
    for container in made["spec"]["containers"]:
        if container["name"] == CONTAINER:
            others = [it for it in container["env"] if it["name"] != _RESERVED_VARIABLE]
            container["env"] = [*others, {"name": _RESERVED_VARIABLE, "value": "true"}]
    return made
