"""Clusters for a test session: load with ``-p localcluster.pytest_plugin``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster, start
from .node import why_not

REUSE = "ROWLOCK_TEST_KUBECONFIG"
"""Variable that names the kubeconfig of a cluster to test against instead of starting one."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Give one running cluster to all tests of the session.

    Tests share it, so each works in a namespace of its own.
    """
    with open_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def node_cluster() -> Iterator[Cluster]:
    """Give one cluster with a node that runs containers to all tests of the session.

    Where there can be none, the tests are skipped with the reason; under ``CI`` they fail.
    """
    require_nodes()
    with start(name="pytest", nodes=1, within=120) as running:
        yield running


def require_nodes() -> None:
    """Skip with the reason where there can be no nodes; under ``CI`` fail."""
    if reason := why_not():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def open_cluster() -> Cluster:
    """Start a cluster, or use the one that `REUSE` names."""
    # KUBECONFIG alone is not enough: a test run must never land in a cluster by accident.
    if kubeconfig := os.environ.get(REUSE):
        return Cluster.from_kubeconfig(Path(kubeconfig))
    return start(name="pytest")
