"""Nodes for a local cluster: containerd, kubelet and kube-proxy in namespaces of their own.

A node is one process, `_agent`, in a PID, mount and network namespace that end with it.
So whatever ends the keeper ends every container, and takes mounts, interfaces and firewall rules
along; only empty control groups stay, which the keeper removes, and the next start if it cannot.

`network` joins the nodes, the host and its API server by cables (veth) to a switch, which is a
bridge in a namespace of its own. `files` says what the programs are told, `images` brings images
in, `requirements` says why a machine cannot have nodes, `place` keeps a second cluster out,
`groups` makes control groups, `node` starts and ends one, `nodes` all of a cluster.
"""

from .commands import load_into, states
from .node import Node
from .nodes import Nodes
from .place import clear, take
from .requirements import install, missing_packages, why_not

__all__ = [
    "Node",
    "Nodes",
    "clear",
    "install",
    "load_into",
    "missing_packages",
    "states",
    "take",
    "why_not",
]
