"""What a shell asks of the nodes of a cluster that another process started."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from localcluster.access import Access, run_kubectl
from localcluster.errors import UsageError

from . import images


@dataclass(frozen=True)
class NodeState:
    """A Node object of the cluster, and whether it is Ready."""

    name: str
    ready: bool


def load_into(folder: Path, image: str) -> int:
    """Bring an image of buildah's store into the nodes of a cluster.

    Args:
        folder: The cluster's folder.
        image: Its name in buildah's store.

    Returns:
        How many nodes have it now.

    Raises:
        ImageError: There is no buildah, or no such image.
        UsageError: The cluster has no nodes.
    """
    sockets = sorted(folder.glob("node-*/containerd.sock"))
    if not sockets:
        raise UsageError("this cluster has no nodes to load an image into: start it with --nodes 1")
    images.import_built(image, sockets)
    return len(sockets)


def states(access: Access) -> tuple[NodeState, ...]:
    """Return the nodes that the API server knows; none if it does not answer."""
    asked = run_kubectl(access, "get", "nodes", "-o", "json", "--request-timeout=5s", check=False)
    if asked.returncode != 0:
        return ()
    return tuple(
        NodeState(node["metadata"]["name"], _is_ready(node))
        for node in json.loads(asked.stdout)["items"]
    )


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
