"""The Lease of the leader, as it stands on the API server; pure.

Its times are written for people and for `kubectl`, and never read: whether a holder is still there
is judged by how long we ourselves have seen nothing new, so no clock but our own matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rowlock_operator.api import names
from rowlock_operator.kube.conditions import micro_timestamp
from rowlock_operator.kube.resources import LEASES

#: Stands on the Lease while its holder cannot reach PostgreSQL.
AILING = f"{names.GROUP}/database-away"


@dataclass(frozen=True, slots=True)
class Lease:
    """What one answer of the API server said.

    Parameters
    ----------
    holder
        Identity of the leader; empty for none.
    seconds
        For how long the holder wants to be believed after a renewal.
    renewed
        The text of the last renewal's time: another text is a sign of life, whatever it says.
    transitions
        How often the leader has changed.
    ailing
        Whether the holder says that it cannot reach PostgreSQL.
    raw
        The whole object, to be written back with what others put into it.
    """

    holder: str
    seconds: float
    renewed: str
    transitions: int
    ailing: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def lease_from(item: Mapping[str, Any]) -> Lease:
    """Return what an object says; fields that are missing or make no sense count as absent."""
    spec = item.get("spec") or {}
    annotations = item.get("metadata", {}).get("annotations") or {}
    return Lease(
        holder=str(spec.get("holderIdentity") or ""),
        seconds=float(spec.get("leaseDurationSeconds") or 0),
        renewed=str(spec.get("renewTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
        ailing=AILING in annotations,
        raw=item,
    )


def new_object(namespace: str, name: str) -> dict[str, Any]:
    """Return a Lease that nobody holds, for where there is none."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"namespace": namespace, "name": name},
    }


def held(lease: Lease, *, by: str, seconds: float, now: datetime, ailing: bool) -> dict[str, Any]:
    """Return the object that says that `by` holds the Lease from now on.

    It carries the resourceVersion of what was read, so the API server refuses it with 409
    if anybody was faster.

    Parameters
    ----------
    seconds
        The term; the API server takes whole seconds.
    now
        The wall clock, for people.
    """
    spec = dict(lease.raw.get("spec") or {})
    changed = lease.holder != by
    spec |= {
        "holderIdentity": by,
        "leaseDurationSeconds": math.ceil(seconds),
        "renewTime": micro_timestamp(now),
        "leaseTransitions": lease.transitions + (1 if changed else 0),
    }
    if changed or "acquireTime" not in spec:
        spec["acquireTime"] = spec["renewTime"]
    return {**lease.raw, "metadata": _marked(lease.raw, ailing), "spec": spec}


def released(lease: Lease, *, now: datetime) -> dict[str, Any]:
    """Return the object that says that nobody holds the Lease any more."""
    spec = dict(lease.raw.get("spec") or {})
    spec |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_timestamp(now)}
    return {**lease.raw, "metadata": _marked(lease.raw, False), "spec": spec}


def _marked(raw: Mapping[str, Any], ailing: bool) -> dict[str, Any]:
    metadata = dict(raw.get("metadata") or {})
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != AILING}
    if ailing:
        annotations[AILING] = "true"
    metadata["annotations"] = annotations
    return metadata
