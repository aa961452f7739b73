"""Whatever ends a cluster with nodes, nothing of it is left on the machine.

Clusters of these tests run in a network namespace of their own, where there is a place for nodes
beside that of the session's cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.node.requirements import find
from localcluster.pytest_plugin import require_nodes
from tests import busybox

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

# It says where its cluster is once a container runs there, then waits for its own end.
LAUNCHER = """
import signal, sys
from localcluster import start
from tests import busybox
with start(name="ends", nodes=1, within=240) as cluster:
    cluster.load_image(busybox.IMAGE)
    busybox.apply(cluster, busybox.pod("one", "default", busybox.spec("sleep", "86427")))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=120s")
    print(cluster.kubeconfig.parent, flush=True)
    signal.pause()
"""
SECOND = """
from localcluster import start
start(name="second", nodes=1)
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[int]:
    """Process that holds a network namespace."""
    require_nodes()
    busybox.build_image()
    # It says so once it is there.
    command = [str(find("unshare")), "--net", "sh", "-c", "ip link set lo up; echo up; exec cat"]
    environment = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"up\n"
        yield holder.pid
        holder.stdin.close()


def inside(namespace: int, *command: str) -> list[str]:
    return [str(find("nsenter")), "--target", str(namespace), "--net", *command]


@contextlib.contextmanager
def launched(namespace: int) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a cluster whose node runs a container, and the cluster's folder."""
    command = inside(namespace, sys.executable, "-c", LAUNCHER)
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert launcher.stdout is not None
        folder = Path(launcher.stdout.readline().strip())
        assert folder.is_absolute(), "the cluster did not start"
        yield launcher, folder
    finally:
        launcher.kill()
        launcher.communicate()


def left(namespace: int, folder: Path, *, also_files: bool = True) -> list[str]:
    """Return what is left of a cluster, a line each."""
    rest = [f"process {line}" for line in processes(folder)]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    rest += [f"mount {line}" for line in mounts if str(folder) in line]
    links = run(namespace, "ip", "-o", "link")
    rest += [f"interface {line}" for line in links.splitlines() if ": lo:" not in line]
    rest += [f"rule {line}" for line in run(namespace, "iptables-save").splitlines()]
    if also_files:
        rest += [f"folder {folder}"] if folder.exists() else []
        rest += [f"group {path}" for path in groups(namespace)]
    return rest


def run(namespace: int, tool: str, *arguments: str) -> str:
    command = inside(namespace, str(find(tool)), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def processes(folder: Path) -> list[str]:
    """Return the command lines that name the folder, and those of the container."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if entry.name.isdigit() and (str(folder) in line or "sleep 86427" in line):
                found.append(line)
    return found


def groups(namespace: int) -> list[Path]:
    own = Path(f"/proc/{namespace}/ns/net").stat().st_ino
    return [
        *Path("/sys/fs/cgroup").glob(f"rowlock-{own}"),
        *Path("/sys/fs/cgroup").glob(f"*/rowlock-{own}"),
    ]


def keeper_of(launcher: int) -> int:
    [keeper] = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return int(keeper)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after(namespace: int, end: signal.Signals) -> None:
    with launched(namespace) as (launcher, folder):
        assert left(namespace, folder), "the check sees nothing even while the cluster runs"
        assert groups(namespace)
        second = subprocess.run(
            inside(namespace, sys.executable, "-c", SECOND),
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.stderr.splitlines()[-1].endswith(
            "another cluster on this machine has nodes: end that one first"
        )
        launcher.send_signal(end)
        launcher.wait()
        busybox.eventually(lambda: not left(namespace, folder), f"nothing left after {end.name}")


def test_what_a_killed_keeper_leaves_is_removed_by_the_next_start(namespace: int) -> None:
    with launched(namespace) as (launcher, folder):
        os.kill(keeper_of(launcher.pid), signal.SIGKILL)
        busybox.eventually(
            lambda: not left(namespace, folder, also_files=False), "nothing runs without a keeper"
        )
        with launched(namespace) as (successor, new_folder):
            successor.send_signal(signal.SIGINT)
            successor.wait()
            busybox.eventually(lambda: not left(namespace, new_folder), "nothing left")
