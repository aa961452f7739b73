"""How to reach a cluster, whether this package started it or someone else did."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .errors import KubectlError, UsageError
from .layout import write_private


@dataclass(frozen=True)
class Access:
    """Address and credentials of a cluster.

    Args:
        kubeconfig: File whose current context is this cluster.
        url: Address of the API server.
        token: Bearer token, empty where the kubeconfig proves identity otherwise.
        ca_file: Certificate of the cluster's authority, None for a publicly trusted one.
        kubectl: The kubectl binary.
        cache: Folder for kubectl's discovery cache.
    """

    kubeconfig: Path
    url: str
    token: str = field(repr=False)
    ca_file: Path | None
    kubectl: Path
    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point kubectl at this cluster.

        kubectl files its discovery cache under host and port.
        A new cluster on an old port would be taken for the old one, so each has its own cache.
        """
        return {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.cache)}


def run_kubectl(
    access: Access, *arguments: str, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run kubectl against a cluster and return its output as text.

    Args:
        access: The cluster.
        arguments: Arguments of kubectl.
        stdin: Text for its standard input.
        check: Raise if it ends with an exit code other than 0.

    Raises:
        KubectlError: It failed and `check` is set.
    """
    done = subprocess.run(
        [str(access.kubectl), *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | access.environment,
    )
    if check and done.returncode != 0:
        command = " ".join(["kubectl", *arguments])
        raise KubectlError(f"{command} ended with {done.returncode}: {done.stderr.strip()}")
    return done


def start_kubectl(access: Access, *arguments: str, output: IO[str]) -> subprocess.Popen[str]:
    """Start kubectl for what has no end, as ``get -w``, and return its process.

    Args:
        access: The cluster.
        arguments: Arguments of kubectl.
        output: Where its output goes.
    """
    return subprocess.Popen(
        [str(access.kubectl), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        env=os.environ | access.environment,
    )


def read_kubeconfig(kubeconfig: Path, *, kubectl: Path, scratch: Path) -> Access:
    """Return the access that the current context of a kubeconfig gives.

    Args:
        kubeconfig: A file that exists.
        kubectl: The kubectl binary; it does the reading, so every kubeconfig rule holds.
        scratch: Folder for the authority's certificate and kubectl's cache.

    Raises:
        UsageError: The file is missing or its current context names no cluster.
        KubectlError: kubectl cannot read the file.
    """
    if not kubeconfig.is_file():
        raise UsageError(f"there is no kubeconfig at {kubeconfig}")
    blank = Access(kubeconfig, "", "", None, kubectl, scratch / "kubectl")
    view = run_kubectl(blank, "config", "view", "--minify", "--raw", "--flatten", "-o", "json")
    config = json.loads(view.stdout)
    cluster, user = _first(config, "clusters", "cluster"), _first(config, "users", "user")
    if "server" not in cluster:
        raise UsageError(f"the current context of {kubeconfig} names no cluster")
    ca_file = _write_ca(cluster, scratch)
    return Access(
        kubeconfig, cluster["server"], user.get("token", ""), ca_file, kubectl, blank.cache
    )


def _first(config: dict[str, Any], many: str, one: str) -> dict[str, str]:
    entries = config.get(many) or [{}]
    found: dict[str, str] = entries[0].get(one) or {}
    return found


def _write_ca(cluster: dict[str, str], scratch: Path) -> Path | None:
    data = cluster.get("certificate-authority-data")
    if data is None:
        return None
    path = scratch / "ca.crt"
    write_private(path, base64.b64decode(data))
    return path
