"""A throw-away Kubernetes for demos and tests: a real control plane, and nodes where asked for.

::

    from localcluster import start

    with start(name="demo") as cluster:
        cluster.kubectl("apply", "-f", "-", input=manifest)

What it runs are etcd, the API server, the controller manager and the scheduler, built from
Go modules.
Without nodes, pods are made but never run; `start(nodes=1)` runs them in containers.

How the parts hang together: `binaries` provides what `controlplane` starts through the keeper
of `processes`; `cluster` is the face towards Python, `standing` and `__main__` the one towards
a shell, `pytest_plugin` the one towards tests.
"""

from .cluster import Cluster, start
from .components import COMPONENTS
from .errors import LocalClusterError

__all__ = ["COMPONENTS", "Cluster", "LocalClusterError", "start"]
