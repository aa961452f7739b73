"""One node: started, told what to do, killed in part or as a whole."""

from __future__ import annotations

import json
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from localcluster.errors import ComponentError, UsageError
from localcluster.layout import last_lines
from localcluster.processes import Processes

from . import images
from .files import PAUSE_IMAGE, NodeFiles
from .groups import make_groups, remove_groups
from .network import Network
from .requirements import find

_AGENT = Path(__file__).with_name("_agent.py")


class Node:
    """A node of a local cluster.

    Args:
        files: Its folder and configuration.
        processes: The keeper, which owns the node's first process.
        network: Joins it to the host and to other nodes.
        binaries: Paths of kubelet, kube-proxy and pause.
    """

    def __init__(
        self,
        files: NodeFiles,
        *,
        processes: Processes,
        network: Network,
        binaries: Mapping[str, Path],
    ) -> None:
        self._files = files
        self._processes = processes
        self._network = network
        self._binaries = binaries

    @property
    def name(self) -> str:
        """Name of the Node object."""
        return self._files.name

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self._files.socket

    def start(self, *, within: float) -> None:
        """Start namespaces, network, containerd, kubelet and kube-proxy; not until it is Ready.

        Raises:
            ComponentError: A part of it ended or did not answer in time.
        """
        until = time.monotonic() + within
        self._files.folder.mkdir(parents=True)
        self._files.write()
        make_groups(self._files.group)
        pid = self._processes.start(self.name, self._first_process())
        self._await((self._files.folder / "agent.sock").exists, "start", until)
        self._network.connect(self._files.number, _child_of(pid))
        self._run("containerd", self._files.containerd(_program("containerd")))
        self._await(lambda: _listens(self.socket), "run containerd", until)
        self._load_pause()
        self.start_kubelet()
        self._run("kube-proxy", self._files.kube_proxy(self._binaries["kube-proxy"]))

    def load(self, image: str) -> None:
        """Bring an image of buildah's store into this node.

        Raises:
            ImageError: There is no buildah or no such image.
        """
        images.import_built(image, [self.socket])

    def load_archive(self, archive: Path) -> None:
        """Bring the images of an OCI or docker archive into this node."""
        images.import_file(archive, self.socket)

    def kill_kubelet(self) -> None:
        """Kill the kubelet alone: the node goes NotReady, its containers go on."""
        self._ask(do="kill", name="kubelet")

    def start_kubelet(self) -> None:
        """Start the kubelet, also again after `kill_kubelet`."""
        self._run("kubelet", self._files.kubelet(self._binaries["kubelet"]))

    def cut(self) -> None:
        """Cut it off from everything outside; its containers go on."""
        self._network.cut(self._files.number)

    def mend(self) -> None:
        """Undo `cut`."""
        self._network.mend(self._files.number)

    def destroy(self) -> None:
        """Kill it with every container on it, as a power failure does; the Node object stays."""
        self._processes.stop(self.name)
        self._network.forget(self._files.number)
        self.remove()

    def remove(self) -> None:
        """Remove its files and control groups once it has ended."""
        remove_groups(self._files.group)
        shutil.rmtree(self._files.folder, ignore_errors=True)

    def _first_process(self) -> list[str]:
        unshare = [str(find("unshare")), "--fork", "--pid", "--mount-proc", "--mount", "--net"]
        agent = [sys.executable, "-I", "-S", str(_AGENT), str(self._files.folder)]
        return [*unshare, "--kill-child=SIGKILL", *agent]

    def _load_pause(self) -> None:
        archive = self._files.folder / "pause.tar"
        images.write_single(self._binaries["pause"], PAUSE_IMAGE, archive, platform.machine())
        self.load_archive(archive)

    def _run(self, program: str, argv: list[str]) -> None:
        self._ask(do="start", name=program, argv=argv, log=str(self._files.log(program)))

    def _await(self, holds: Callable[[], bool], what: str, until: float) -> None:
        while not holds():
            if self.name in self._processes.exit_codes():
                raise ComponentError(f"{self.name} ended: {last_lines(self._agent_log)}")
            if time.monotonic() > until:
                tail = last_lines(self._files.log("containerd"))
                raise ComponentError(f"{self.name} did not {what} in time:\n{tail}")
            time.sleep(0.01)

    @property
    def _agent_log(self) -> Path:
        return self._processes.log(self.name)

    def _ask(self, **request: object) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self._files.folder / "agent.sock"))
            except OSError as error:
                raise UsageError(f"{self.name} does not run") from error
            with connection.makefile("rw") as file:
                file.write(json.dumps(request) + "\n")
                file.flush()
                answer: dict[str, Any] = json.loads(file.readline())
        if "error" in answer:
            raise ComponentError(f"{self.name} refused {request}: {answer['error']}")
        return answer


def _program(tool: str) -> Path:
    path = find(tool)
    if path is None:
        raise UsageError(f"{tool} is missing")
    return path


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _child_of(pid: int) -> int:
    """Return the one child of a process."""
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
