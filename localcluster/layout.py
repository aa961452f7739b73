"""Where things lie: the cache of binaries, the state of named clusters, one cluster's folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def cache_folder() -> Path:
    """Return the folder of what can be built again: ``${XDG_CACHE_HOME:-~/.cache}/rowlock``."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "rowlock"


def clusters_folder() -> Path:
    """Return the folder of the clusters that `up` started, one sub-folder each."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "rowlock" / "clusters"


def _xdg(variable: str, fallback: str) -> Path:
    # The specification tells programs to ignore a relative path in these variables.
    value = Path(os.environ.get(variable, ""))
    return value if value.is_absolute() else Path.home() / fallback


def checked_name(name: str) -> str:
    """Return the name if it can name a cluster, a folder and a kubeconfig context.

    Raises:
        UsageError: The name is not 1 to 40 lower-case letters, digits and inner hyphens.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot name a cluster: use 1 to 40 lower-case letters, digits and hyphens"
        )
    return name


@dataclass(frozen=True)
class Layout:
    """The files of one cluster below its own folder, readable by its owner only."""

    root: Path

    @property
    def pki(self) -> Path:
        """Folder of certificates and keys."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """Folder of one log a component, and the keeper's."""
        return self.root / "logs"

    @property
    def ca(self) -> Path:
        """Certificate of the cluster's own authority."""
        return self.pki / "ca.crt"

    @property
    def tokens(self) -> Path:
        """Token file of the API server."""
        return self.root / "tokens.csv"

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return the kubeconfig of a user of `credentials.USERS`."""
        return self.root / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self.logs / f"{component}.log"

    def make(self) -> None:
        """Make the folders, each with mode 0700."""
        for folder in (self.root, self.pki, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, at no moment open to others."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def last_lines(path: Path, count: int = 15) -> str:
    """Return the last lines of a text file, or a remark if there are none."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-count:]) or "(nothing was logged)"
