"""What a machine needs to run nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from localcluster.addresses import MOST_NODES
from localcluster.errors import PackageError

_PACKAGES_OF_DEBIAN = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Programs that a node calls, and the package of Debian that brings each."""

CNI_FOLDER = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins puts its plugins."""

_CNI_PACKAGE = "containernetworking-plugins"
_PLUGINS = ("bridge", "host-local", "loopback", "portmap")


def missing_packages() -> list[str]:
    """Return the packages of Debian that are still to be installed, sorted."""
    packages = {package for tool, package in _PACKAGES_OF_DEBIAN.items() if find(tool) is None}
    if not all((CNI_FOLDER / plugin).exists() for plugin in _PLUGINS):
        packages.add(_CNI_PACKAGE)
    return sorted(packages)


def find(tool: str) -> Path | None:
    """Return the path of a program, also one that only root has on PATH."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = shutil.which(tool, path=path)
    return Path(found) if found else None


def why_not(count: int = 1) -> str:
    """Return why this machine can not have that many nodes, in one line; empty if it can."""
    if count > MOST_NODES:
        return f"a cluster has at most {MOST_NODES} nodes"
    if not sys.platform.startswith("linux"):
        return "nodes need Linux"
    if os.geteuid() != 0:
        return "nodes need root"
    if missing := missing_packages():
        return f"nodes need {' '.join(missing)}: make node-packages"
    return ""


def install(packages: list[str]) -> None:
    """Install packages of Debian, its output going to standard error.

    Raises:
        PackageError: This is no root, no Debian, or the installation failed.
    """
    if os.geteuid() != 0 or (apt := find("apt-get")) is None:
        raise PackageError(f"install {' '.join(packages)}: that needs root and apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        command = [str(apt), "-qq", *arguments]
        if subprocess.run(command, env=quiet, stdout=sys.stderr, check=False).returncode != 0:
            raise PackageError(f"{' '.join(command)} failed")
