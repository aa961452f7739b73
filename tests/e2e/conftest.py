"""A cluster with a real node for the whole session: pods run in containers here.

Without root or a package that a node needs, all is skipped with the reason, but never in CI.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from localcluster import Cluster, start
from localcluster.node import why_not


@pytest.fixture(scope="session")
def node_cluster() -> Iterator[Cluster]:
    """A cluster with one node; the machine has no other with nodes."""
    if (reason := why_not()) and not os.environ.get("CI"):
        pytest.skip(reason)
    with start(name="e2e", nodes=1, within=120) as cluster:
        yield cluster
