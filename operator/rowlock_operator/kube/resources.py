"""The kinds that the operator reads and writes, and their paths on the API server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from rowlock_operator.api import names


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind.

    Parameters
    ----------
    group
        Empty for the core group.
    plural
        Lower-case plural, as in the path.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return what stands in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of a collection (without `name`), an object, or its subresource."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace and self.namespaced:
            parts.append(f"namespaces/{quote(namespace)}")
        parts.append(self.plural)
        parts += [quote(part) for part in (name, subresource) if part]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Which object: a name can be used again, a uid never."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


AGENT_RUNS = Resource(names.GROUP, names.VERSION, names.AGENT_RUNS, "AgentRun")
AGENTS = Resource(names.GROUP, names.VERSION, names.AGENTS, "Agent")
WORKER_POOLS = Resource(names.GROUP, names.VERSION, names.WORKER_POOLS, "WorkerPool")
AGENT_RUN_APPROVALS = Resource(
    names.GROUP, names.VERSION, names.AGENT_RUN_APPROVALS, "AgentRunApproval"
)
AGENT_RUN_BATCHES = Resource(names.GROUP, names.VERSION, names.AGENT_RUN_BATCHES, "AgentRunBatch")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SERVICES = Resource("", "v1", "services", "Service")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
