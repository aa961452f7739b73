"""Clusters that outlive the command that started them, known by name.

Each has a folder below `layout.clusters_folder` and, beside it, a lock that its keeper holds.
The lock says whether the cluster lives; a folder without a held lock is what a crash left.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import select
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .access import Access
from .cluster import Running, run
from .components import COMPONENTS
from .errors import AlreadyRunningError, NotRunningError
from .layout import Layout, checked_name, clusters_folder, write_private
from .locks import is_locked, try_lock
from .node import clear as clear_nodes
from .progress import Reporter

_RECORD = "cluster.json"


@dataclass(frozen=True)
class Standing:
    """What is written down about a cluster that is up.

    Args:
        name: Its name.
        url: Address of the API server.
        started: When it became ready, as ISO 8601 in UTC.
        keeper: Process id of its keeper.
        components: Process ids by component.
        kubectl: The kubectl that fits it.
    """

    name: str
    url: str
    started: str
    keeper: int
    components: dict[str, int]
    kubectl: str

    @property
    def layout(self) -> Layout:
        """The cluster's folder."""
        return Layout(clusters_folder() / self.name)

    @property
    def access(self) -> Access:
        """Address and credentials."""
        layout = self.layout
        config = json.loads(layout.kubeconfig().read_text())
        token = config["users"][0]["user"]["token"]
        cache = layout.root / "kubectl"
        return Access(layout.kubeconfig(), self.url, token, layout.ca, Path(self.kubectl), cache)

    def lives(self, component: str) -> bool:
        """Tell whether a component still runs, as a child of the keeper."""
        return _parent_of(self.components[component]) == self.keeper


def up(
    name: str,
    *,
    components: Sequence[str] = COMPONENTS,
    nodes: int = 0,
    within: float = 60,
    reporter: Reporter | None = None,
) -> Standing:
    """Start a cluster that stays until `down`, and return it once it is ready.

    Args:
        name: Its name; what a crashed cluster of this name left behind is removed first.
        components: Some of `COMPONENTS`; etcd and the API server are always needed.
        nodes: How many nodes run its pods.
        within: Seconds that starting may take, building left out.
        reporter: Told what takes long; by default standard error.

    Raises:
        AlreadyRunningError: A cluster of this name is up or being started, or another has nodes.
        LocalClusterError: Whatever `cluster.start` raises.
    """
    layout = _layout(name)
    lock = try_lock(_lock_file(name))
    if lock is None:
        raise AlreadyRunningError(f"cluster {name} is already up or being started")
    try:
        shutil.rmtree(layout.root, ignore_errors=True)
        running = run(
            layout,
            name=name,
            components=components,
            nodes=nodes,
            within=within,
            reporter=reporter,
            held=[lock],
        )
        return _leave_running(running, name)
    finally:
        # The keeper holds a copy, and with it the lock.
        os.close(lock)


def _leave_running(running: Running, name: str) -> Standing:
    processes = running.plane.processes
    try:
        standing = Standing(
            name=name,
            url=running.access.url,
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            keeper=processes.keeper_pid,
            components=processes.pids(),
            kubectl=str(running.access.kubectl),
        )
        _write_record(standing)
        processes.detach()
    except BaseException:
        processes.end()
        raise
    return standing


def find(name: str) -> Standing:
    """Return the cluster of that name, removing what a crashed one left behind.

    Raises:
        NotRunningError: None is up; the message tells one that is being started from a crash.
    """
    record = _layout(name).root / _RECORD
    if not is_locked(_lock_file(name)):
        crashed = _remove_stale(name)
        reason = "ended unexpectedly; its files were removed" if crashed else "is not running"
        raise NotRunningError(f"cluster {name} {reason}")
    if not record.exists():
        raise NotRunningError(f"cluster {name} is being started or ended")
    return Standing(**json.loads(record.read_text()))


def down(name: str) -> bool:
    """End a cluster and return once all its processes are gone.

    Returns:
        Whether one was running.

    Raises:
        AlreadyRunningError: It is being started, so there is nothing to end yet.
    """
    try:
        standing = find(name)
    except NotRunningError:
        if is_locked(_lock_file(name)):
            raise AlreadyRunningError(f"cluster {name} is being started: try again") from None
        return False
    _end_process(standing.keeper)
    shutil.rmtree(standing.layout.root, ignore_errors=True)
    return True


def _layout(name: str) -> Layout:
    return Layout(clusters_folder() / checked_name(name))


def _lock_file(name: str) -> Path:
    # Never removed: two processes could then hold locks on two files of the same name.
    return clusters_folder() / f".{name}.lock"


def _write_record(standing: Standing) -> None:
    record = standing.layout.root / _RECORD
    unfinished = record.with_suffix(".part")
    write_private(unfinished, json.dumps(dataclasses.asdict(standing), indent=2).encode())
    unfinished.rename(record)


def _remove_stale(name: str) -> bool:
    root = _layout(name).root
    # Held while removing, so that an `up` at this moment does not lose its fresh folder.
    lock = try_lock(_lock_file(name)) if root.exists() else None
    if lock is None:
        return False
    try:
        shutil.rmtree(root, ignore_errors=True)
        clear_nodes()
    finally:
        os.close(lock)
    return True


def _end_process(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended, _, _ = select.select([process], [], [], 60)
        if not ended:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], 10)
    finally:
        os.close(process)


def _parent_of(pid: int) -> int | None:
    try:
        # The program's name stands in parentheses and may hold spaces, so count from its end.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[1])
