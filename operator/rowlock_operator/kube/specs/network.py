"""What the network knows of a WorkerPool: a Service for metrics, and who may connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from rowlock_operator.kube.resources import NETWORK_POLICIES, SERVICES
from rowlock_operator.kube.specs import labels
from rowlock_operator.kube.specs.deployment import METRICS_PORT, PoolIdentity, metadata


def metrics_service(pool: PoolIdentity) -> dict[str, Any]:
    """Return the headless Service by which Prometheus finds each worker."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata(pool),
        "spec": {
            "clusterIP": "None",
            "selector": labels.selector_labels(pool.name),
            "ports": [
                {
                    "name": "metrics",
                    "port": METRICS_PORT,
                    "targetPort": METRICS_PORT,
                    "protocol": "TCP",
                }
            ],
        },
    }


def network_policy(pool: PoolIdentity, template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the NetworkPolicy: in through declared ports only, out to anywhere.

    Workers call models and tools that nobody here knows, so what goes out is not narrowed.
    A policy of one's own beside this one may do that.

    Parameters
    ----------
    template
        The pool's Pod template: a sidecar's ports are declared there.
    """
    ports = list(_ports(template))
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": metadata(pool),
        "spec": {
            "podSelector": {"matchLabels": labels.selector_labels(pool.name)},
            "policyTypes": ["Ingress"],
            # A rule without ports would let everything in; no rule lets nothing in.
            "ingress": [{"ports": ports}] if ports else [],
        },
    }


def _ports(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each declared port once; what makes no sense is for the API server to refuse."""
    seen = set()
    for port in chain.from_iterable(map(_declared, template["spec"]["containers"])):
        found = (port.get("containerPort"), port.get("protocol") or "TCP")
        if isinstance(found[0], int) and isinstance(found[1], str) and found not in seen:
            seen.add(found)
            yield {"port": found[0], "protocol": found[1]}


def _declared(container: Any) -> list[Mapping[str, Any]]:
    ports = container.get("ports") if isinstance(container, Mapping) else None
    return [it for it in ports if isinstance(it, Mapping)] if isinstance(ports, list) else []
