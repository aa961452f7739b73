"""An installation of the charts for the whole session, on a cluster with a real node."""

from __future__ import annotations

import os

import pytest

from localcluster import Cluster
from tests.e2e.installation import Installation

# Taken when the module is read: a fixture hides ROWLOCK_… from the tests.
IMAGES, TAG = os.environ.get("ROWLOCK_E2E_IMAGES", ""), os.environ.get("ROWLOCK_E2E_TAG", "e2e")


@pytest.fixture(scope="session")
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """The charts, installed once; each test leaves two ready workers in the pool `e2e`."""
    if not IMAGES:
        pytest.skip("images are built by `make e2e`, which sets ROWLOCK_E2E_IMAGES")
    cluster: Cluster = request.getfixturevalue("node_cluster")
    for part in ("operator", "worker", "postgres"):
        cluster.load_image(f"{IMAGES}/rowlock-{part}:{TAG}")
    home = tmp_path_factory.mktemp("release")
    # Pods look into it as other users than root.
    for folder in (home, *list(home.parents)[:2]):
        folder.chmod(0o755)
    here = Installation(cluster, home, IMAGES, TAG)
    here.install()
    return here
