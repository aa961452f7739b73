"""What a watch or a list showed of one object: slim, frozen, cheap to hand to another thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.states import ConditionType
from rowlock_operator.api.names import HOLD
from rowlock_operator.kube.conditions import holds
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as it was at `version`.

    Parameters
    ----------
    kind
        `AgentRun`, `Agent`, `WorkerPool` or `AgentRunApproval`.
    version
        Its resourceVersion: a write that tests it cannot overwrite anything newer.
    gone
        A watch said that it was deleted.
    deleting
        It has a deletionTimestamp: it will go, whatever happens.
    owner
        Uid of the AgentRun that it belongs to; empty for none.
    held
        Our own finalizer is on it.
    spec, status
        As decoded from JSON; never changed by us.
    """

    kind: str
    key: ObjectKey
    generation: int
    version: str
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)
    status: Mapping[str, Any] = field(default_factory=dict, repr=False)
    gone: bool = False
    deleting: bool = False
    owner: str = ""
    held: bool = False

    @property
    def run_id(self) -> str | None:
        """Return the number of its row, if its status names one."""
        return self.status.get("runID")

    @property
    def observed(self) -> int:
        """Return the generation that its status answers."""
        return int(self.status.get("observedGeneration") or 0)

    @property
    def finished(self) -> bool:
        """Tell whether its status says that the run is over."""
        return holds(self.status, ConditionType.FINISHED)

    @property
    def cancelled(self) -> bool:
        """Tell whether its owner wants it cancelled."""
        return self.spec.get("desiredState") == "Cancel"

    @property
    def suspended(self) -> bool:
        """Tell whether its owner wants it held."""
        return self.spec.get("desiredState") == "Suspend"

    @property
    def priority(self) -> int:
        """Return its place among the queued runs."""
        return int(self.spec.get("priority") or 0)

    @property
    def ttl(self) -> int | None:
        """Return for how many seconds after its end it stays, if it says so itself."""
        return self.spec.get("ttlSecondsAfterFinished")

    @property
    def redrive(self) -> int:
        """Return which further attempt its owner asks for that its status does not answer; or 0."""
        asked = int(self.spec.get("redrive") or 0)
        return asked if asked > int(self.status.get("redrive") or 0) else 0

    @property
    def settled(self) -> bool:
        """Tell whether its status already answers all that its spec asks."""
        if self.gone or self.deleting or self.observed < self.generation or self.redrive:
            return False
        if self.finished:
            return True
        held = holds(self.status, ConditionType.SUSPENDED)
        return self.run_id is not None and not self.cancelled and self.suspended == held


def seen_from(item: Mapping[str, Any], kind: str, *, gone: bool = False) -> Seen:
    """Return what there is to know of an object as decoded from JSON."""
    metadata = item["metadata"]
    return Seen(
        kind=kind,
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"], metadata["uid"]),
        generation=metadata.get("generation", 0),
        version=metadata.get("resourceVersion", ""),
        spec=item.get("spec") or _NOTHING,
        status=item.get("status") or _NOTHING,
        gone=gone,
        deleting="deletionTimestamp" in metadata,
        owner=_owner(metadata),
        held=HOLD in (metadata.get("finalizers") or ()),
    )


def _owner(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or ()
    return next((str(it["uid"]) for it in owners if it["kind"] == AGENT_RUNS.kind), "")
