"""What all parts of one operator are made with."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Connections:
    """The database connections of one operator.

    Each loop has one of its own, so that none waits for another's statement.
    """

    intake: Connection
    mirror: Connection
    sweep: Connection
    upkeep: Connection
    pools: Connection
    limits: Connection
    approvals: Connection
    pods: Connection
    endings: Connection
    pulse: Connection
    batches: Connection
    traces: Connection | None = None


@dataclass(frozen=True, slots=True)
class Means:
    """What parts take from outside.

    Parameters
    ----------
    cluster
        Name of this Kubernetes cluster in the database.
    """

    settings: OperatorSettings
    client: KubeClient
    connections: Connections
    cluster: str
    metrics: m.Metrics
