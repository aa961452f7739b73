"""A WorkerPool's Deployment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rowlock.errors import RowlockError
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.kube.resources import DEPLOYMENTS, DISRUPTION_BUDGETS
from rowlock_operator.kube.specs import labels
from rowlock_operator.kube.specs.template import merge

CONTAINER = "worker"
METRICS_PORT = 9464
#: Between the end of the drain and SIGKILL: the last commit, the last beat, the exit.
_GRACE_AFTER_DRAIN = 30
_DATABASE_VARIABLE = "ROWLOCK_DATABASE_URL"


class PoolRefused(RowlockError):
    """The WorkerPool can never become a Deployment as it is."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PoolIdentity:
    """Which WorkerPool it is for."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One entry of a Secret in the pool's namespace."""

    name: str
    key: str = "url"


def deployment(
    pool: PoolIdentity,
    spec: WorkerPoolSpec,
    *,
    replicas: int,
    database: SecretKey | None,
    log_format: str = "json",
    cluster: str = "",
) -> dict[str, Any]:
    """Return the Deployment of a pool.

    Parameters
    ----------
    database
        The Secret with the database URL, if the pool or the installation names one.
    cluster
        Name of this cluster in the database, so that its operator alone judges these workers.

    Raises
    ------
    PoolRefused
        Its workers would not know their database, or the podTemplate has no valid shape.
    """
    template = _template(
        pool, spec, database, {"ROWLOCK_LOG_FORMAT": log_format, "ROWLOCK_CLUSTER": cluster}
    )
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": metadata(pool),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": labels.selector_labels(pool.name)},
            # A new Pod is ready before an old one begins to drain.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": template,
        },
    }


def disruption_budget(pool: PoolIdentity) -> dict[str, Any]:
    """Return the PodDisruptionBudget of a pool: one Pod at a time may go, also the only one."""
    return {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": metadata(pool),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels.selector_labels(pool.name)},
        },
    }


def metadata(pool: PoolIdentity) -> dict[str, Any]:
    """Return name, labels and owner of whatever belongs to a pool."""
    return {
        "name": labels.object_name(pool.name),
        "namespace": pool.namespace,
        "labels": labels.labels(pool.name),
        "ownerReferences": [labels.owner(pool.name, pool.uid)],
    }


def _template(
    pool: PoolIdentity, spec: WorkerPoolSpec, database: SecretKey | None, common: Mapping[str, str]
) -> dict[str, Any]:
    generated = {
        "metadata": {
            "labels": labels.labels(pool.name),
            "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
        },
        "spec": _pod(pool, spec, database, common),
    }
    template = merge(generated, spec.pod_template or {})
    metadata = template.get("metadata")
    if not isinstance(metadata, Mapping):
        raise _invalid("podTemplate.metadata must be an object")
    # The selector must go on finding the Pods, whatever the template says.
    template["metadata"] = merge(metadata, {"labels": labels.labels(pool.name)})
    _check(template.get("spec"))
    template["metadata"] = merge(
        template["metadata"], {"annotations": {labels.TEMPLATE_ANNOTATION: _digest(template)}}
    )
    return template


def _digest(template: Mapping[str, Any]) -> str:
    """Return what tells Pods of this template from those of another."""
    return hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:16]


def _check(pod: Any) -> None:
    """Refuse what the operator itself relies on; all else the API server checks."""
    if not isinstance(pod, Mapping):
        raise _invalid("podTemplate.spec must be an object")
    worker = _named(pod.get("containers"), CONTAINER)
    if worker is None:
        raise _invalid(f"podTemplate must keep the container {CONTAINER}")
    if _named(worker.get("env"), _DATABASE_VARIABLE) is None:
        raise PoolRefused(
            "NoDatabase", "no databaseSecretRef here, and the installation names no Secret either"
        )


def _named(entries: Any, name: str) -> Mapping[str, Any] | None:
    found = entries if isinstance(entries, list) else ()
    return next((it for it in found if isinstance(it, Mapping) and it.get("name") == name), None)


def _invalid(why: str) -> PoolRefused:
    return PoolRefused("InvalidPodTemplate", why)


def _pod(
    pool: PoolIdentity, spec: WorkerPoolSpec, database: SecretKey | None, common: Mapping[str, str]
) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.drain.deadline_seconds + _GRACE_AFTER_DRAIN,
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_worker(pool, spec, database, common)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if spec.service_account_name:
        pod["serviceAccountName"] = spec.service_account_name
    return pod


def _worker(
    pool: PoolIdentity, spec: WorkerPoolSpec, database: SecretKey | None, common: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": spec.image,
        "command": ["rowlock", "worker"],
        # The line with which a worker ends shows on its Pod, and on the pool.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": _environment(pool, spec, database, common),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "livenessProbe": _probe(period=10, failures=6),
        "readinessProbe": _probe(period=2, failures=3),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  inside the container
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(*, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/livez", "port": METRICS_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _environment(
    pool: PoolIdentity, spec: WorkerPoolSpec, database: SecretKey | None, common: Mapping[str, str]
) -> list[dict[str, Any]]:
    values = {
        "ROWLOCK_POOL": pool.name,
        "ROWLOCK_NAMESPACE": pool.namespace,
        "ROWLOCK_SLOTS": spec.slots_per_worker,
        "ROWLOCK_PROCESSES": spec.processes_per_worker,
        "ROWLOCK_LEASE_SECONDS": spec.lease.duration_seconds,
        "ROWLOCK_RENEW_SECONDS": spec.lease.renew_period_seconds,
        "ROWLOCK_STALL_CEILING_SECONDS": spec.stall_ceiling_seconds,
        "ROWLOCK_DRAIN_SECONDS": spec.drain.deadline_seconds,
        "ROWLOCK_CONTAINER": CONTAINER,
        "ROWLOCK_BUILD": spec.image,
        "ROWLOCK_METRICS_PORT": METRICS_PORT,
        **common,
    }
    fields = {
        "ROWLOCK_POD_NAME": "metadata.name",
        "ROWLOCK_POD_UID": "metadata.uid",
        "ROWLOCK_NODE": "spec.nodeName",
    }
    env: list[dict[str, Any]] = [
        {"name": name, "value": str(value)}
        for name, value in values.items()
        if value not in (None, "")
    ]
    env += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    if database:
        reference = {"name": database.name, "key": database.key}
        env.append({"name": _DATABASE_VARIABLE, "valueFrom": {"secretKeyRef": reference}})
    return env
