"""Nodes for a local cluster: containerd, kubelet and kube-proxy in namespaces of their own.

A node is one process, `_agent`, in a PID, mount and network namespace that end with it.
So whatever ends the keeper ends every container, and takes mounts, interfaces and firewall rules
along; only empty control groups stay, which the next start and the regular end remove.

`network` joins the nodes, the host and its API server by cables (veth) to a switch, which is a
bridge in a namespace of its own. `files` says what the programs are told, `images` brings images
in, `requirements` says why a machine cannot have nodes, `node` starts and ends one,
`nodes` all of a cluster.
"""

from .node import Node
from .nodes import BINARIES, Nodes, remove_leftovers
from .requirements import missing_packages, why_not

__all__ = ["BINARIES", "Node", "Nodes", "missing_packages", "remove_leftovers", "why_not"]
