"""Names and labels of what belongs to a WorkerPool."""

from __future__ import annotations

from typing import Any

from rowlock_operator.api import names
from rowlock_operator.kube.resources import WORKER_POOLS

MANAGED_BY = "rowlock-operator"
POOL_LABEL = f"{names.GROUP}/pool"
#: Of a Pod: which template it was made from.
TEMPLATE_ANNOTATION = f"{names.GROUP}/template"

#: Of what stays behind a rollout for pinned runs: the digest of its build.
KEPT_LABEL = f"{names.GROUP}/kept-build"


def object_name(pool: str) -> str:
    """Return the name of a pool's Deployment and of all that belongs to it."""
    return f"rowlock-{pool}"


def selector_labels(pool: str) -> dict[str, str]:
    """Return the labels by which a pool's Pods are found; a Deployment's selector never changes."""
    return {"app.kubernetes.io/name": "rowlock-worker", POOL_LABEL: pool}


def labels(pool: str) -> dict[str, str]:
    """Return the labels of every object of a pool."""
    return {
        **selector_labels(pool),
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/part-of": "rowlock",
        "app.kubernetes.io/managed-by": MANAGED_BY,
    }


def selector(pool: str) -> str:
    """Return the label selector of a pool's Pods as text, as `/scale` gives it to autoscalers."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector_labels(pool).items()))


def owner(pool: str, uid: str) -> dict[str, Any]:
    """Return the owner reference of what goes away with its pool."""
    return {
        "apiVersion": WORKER_POOLS.api_version,
        "kind": WORKER_POOLS.kind,
        "name": pool,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def is_owned(item: dict[str, Any], uid: str) -> bool:
    """Tell whether an object belongs to the pool with that uid."""
    owners = item.get("metadata", {}).get("ownerReferences") or ()
    return any(reference.get("uid") == uid for reference in owners)
