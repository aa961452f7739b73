"""A throw-away Kubernetes control plane for demos and tests, real and without containers.

::

    from localcluster import start

    with start(name="demo") as cluster:
        cluster.kubectl("apply", "-f", "-", input=manifest)

What it runs are etcd, the API server, the controller manager and the scheduler, built from
Go modules.
There is no node, so pods are made but never run.

How the parts hang together: `binaries` provides what `controlplane` starts through the keeper
of `processes`; `cluster` is the face towards Python, `standing` and `__main__` the one towards
a shell, `pytest_plugin` the one towards tests.
"""

from .cluster import Cluster, start
from .components import COMPONENTS
from .errors import LocalClusterError

__all__ = ["COMPONENTS", "Cluster", "LocalClusterError", "start"]
