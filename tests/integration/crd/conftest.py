"""The definitions of crds/ on the session's API server, and a namespace for each module."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from localcluster import Cluster
from rowlock_operator.api.agent import Agent
from rowlock_operator.api.agentrun import AgentRun
from rowlock_operator.api.agentrunapproval import AgentRunApproval
from rowlock_operator.api.resource import Resource
from rowlock_operator.api.workerpool import WorkerPool

from .server import SMALLEST, KubeApi, Objects

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="module")
def kube(cluster: Cluster) -> Iterator[KubeApi]:
    """The API server with the definitions of crds/ installed."""
    api = KubeApi(cluster)
    for path in sorted(CRDS.glob("*.yaml")):
        api.install(yaml.safe_load(path.read_text()))
    yield api
    api.close()


@pytest.fixture(scope="module")
def namespace(kube: KubeApi) -> Iterator[str]:
    """A namespace of this module's own."""
    name = f"crd-{uuid.uuid4().hex[:8]}"
    made = kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.ok, made.message
    yield name
    kube.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def objects(kube: KubeApi, namespace: str) -> dict[type[Resource], Objects]:
    """The objects of every kind in the module's namespace."""
    return {kind: Objects(kube, kind, namespace) for kind in SMALLEST}


@pytest.fixture(scope="module")
def runs(objects: dict[type[Resource], Objects]) -> Objects:
    """The AgentRuns of the module's namespace."""
    return objects[AgentRun]


@pytest.fixture(scope="module")
def agents(objects: dict[type[Resource], Objects]) -> Objects:
    """The Agents of the module's namespace."""
    return objects[Agent]


@pytest.fixture(scope="module")
def approvals(objects: dict[type[Resource], Objects]) -> Objects:
    """The AgentRunApprovals of the module's namespace."""
    return objects[AgentRunApproval]


@pytest.fixture(scope="module")
def pools(objects: dict[type[Resource], Objects]) -> Objects:
    """The WorkerPools of the module's namespace."""
    return objects[WorkerPool]
