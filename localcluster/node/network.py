"""The network between nodes, pods, and the API server on the host.

::

    host rowlock0 10.201.0.1 ──┐
    node-1 eth0  10.201.0.11 ──┼── bridge in the switch's namespace
    node-2 eth0  10.201.0.12 ──┘        pods of node-N: 10.201.N.0/24, routed by way of their node

A cable ends with the namespace at either of its ends, so nothing has to be removed.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from localcluster.addresses import HOST, address_of, pods_of
from localcluster.errors import ComponentError
from localcluster.processes import Processes

from .requirements import find

_INTERFACE = "rowlock0"


class Network:
    """The switch of one cluster and the host's cable to it.

    Its addresses are the same for every cluster, so `place` lets one have it.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._switch = 0
        self._nodes: dict[int, int] = {}

    def start(self) -> None:
        """Make the switch and join the host.

        Raises:
            ComponentError: A command of the network failed.
        """
        # The kernel takes a moment to end the namespace of a cluster that crashed just now. Mostly
        # there is none; /sys could not tell, since it shows the namespace that mounted it.
        _try(["link", "delete", _INTERFACE])
        unshare, sleep = str(find("unshare")), str(find("sleep"))
        self._switch = self._processes.start("switch", [unshare, "--net", sleep, "infinity"])
        _await_namespace(self._switch)
        self._in_switch("link", "add", "nodes", "type", "bridge")
        self._in_switch("link", "set", "nodes", "up")
        _ip("link", "add", _INTERFACE, "type", "veth", *self._plug("host"))
        self._join("host")
        _ip("addr", "add", f"{HOST}/24", "dev", _INTERFACE)
        _ip("link", "set", _INTERFACE, "up")

    def connect(self, number: int, pid: int) -> None:
        """Join node `number`, whose namespace is that of process `pid`."""
        cable = f"node-{number}"
        _ip("link", "add", "eth0", "netns", str(pid), "type", "veth", *self._plug(cable))
        self._join(cable)
        for command in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{address_of(number)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", HOST),
        ):
            _inside(pid, *command)
        _ip("route", "replace", *_way_to(number), "dev", _INTERFACE)
        for other, other_pid in self._nodes.items():
            _inside(pid, "route", "replace", *_way_to(other))
            _inside(other_pid, "route", "replace", *_way_to(number))
        self._nodes[number] = pid

    def forget(self, number: int) -> None:
        """Take note that node `number` is gone, and its cable with it."""
        self._nodes.pop(number, None)

    def cut(self, number: int) -> None:
        """Cut node `number` off from the host, the API server and the other nodes."""
        self._in_switch("link", "set", f"node-{number}", "down")

    def mend(self, number: int) -> None:
        """Undo `cut`."""
        self._in_switch("link", "set", f"node-{number}", "up")

    def _plug(self, cable: str) -> list[str]:
        return ["peer", "name", cable, "netns", str(self._switch)]

    def _join(self, cable: str) -> None:
        self._in_switch("link", "set", cable, "master", "nodes")
        self._in_switch("link", "set", cable, "up")

    def _in_switch(self, *command: str) -> None:
        _inside(self._switch, *command)


def _way_to(number: int) -> tuple[str, str, str]:
    return pods_of(number), "via", address_of(number)


def _await_namespace(pid: int) -> None:
    """Return once process `pid` has left the network namespace of this one."""
    own = Path("/proc/self/ns/net").readlink()
    for _ in range(2000):
        try:
            if Path(f"/proc/{pid}/ns/net").readlink() != own:
                return
        except FileNotFoundError as error:
            raise ComponentError("the switch ended") from error
        time.sleep(0.005)
    raise ComponentError("the switch got no network namespace of its own")


def _try(command: list[str]) -> None:
    subprocess.run([str(find("ip")), *command], capture_output=True, check=False)


def _ip(*command: str) -> None:
    _run([str(find("ip")), *command])


def _inside(pid: int, *command: str) -> None:
    _run([str(find("nsenter")), "--target", str(pid), "--net", str(find("ip")), *command])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ComponentError(f"{' '.join(command)} failed: {done.stderr.strip()}")
