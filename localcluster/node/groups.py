"""Make and remove the control groups of nodes.

Also a script, which the keeper runs at the end: ``python -I -S groups.py GROUP`` removes GROUP.
So it must import nothing of this package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_UNIFIED = _ROOT / "unified"


def make_groups(name: str) -> None:
    """Make a control group, such as ``/rowlock/node-1``, in every hierarchy."""
    for hierarchy in _hierarchies():
        above = hierarchy
        for part in name.strip("/").split("/"):
            _hand_down_controllers(above)
            group = above / part
            group.mkdir(exist_ok=True)
            _inherit_cpus(above, group)
            above = group
        _hand_down_controllers(above)


def remove_groups(name: str) -> None:
    """Remove a control group and all below it, killing what should be dead already."""
    # The runtime makes them in the unified hierarchy, too, if that is there beside version 1.
    for hierarchy in (*_hierarchies(), _UNIFIED):
        root = hierarchy / name.strip("/")
        if not root.is_dir():
            continue
        for path in sorted((it for it in root.rglob("*") if it.is_dir()), reverse=True):
            _remove(path)
        _remove(root)


def _hierarchies() -> Iterator[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        yield _ROOT
        return
    for path in _ROOT.iterdir():
        # Links are second names, and the unified one has no controllers beside version 1.
        if path.is_dir() and not path.is_symlink() and path != _UNIFIED:
            yield path


def _hand_down_controllers(group: Path) -> None:
    """Let the groups below have controllers, where that is to be said (version 2)."""
    with contextlib.suppress(FileNotFoundError):
        controllers = (group / "cgroup.controllers").read_text().split()
        switches = " ".join(f"+{controller}" for controller in controllers)
        (group / "cgroup.subtree_control").write_text(switches)


def _inherit_cpus(above: Path, group: Path) -> None:
    # In version 1 these are empty at first, and a group without them takes no process.
    if (group / "cgroup.controllers").exists():
        return
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists():
            (group / name).write_text((above / name).read_text())


def _remove(group: Path) -> None:
    # A process that is being killed leaves its group a moment later.
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            _kill_all(group)
            time.sleep(0.01)
        else:
            return


def _kill_all(group: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for line in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGKILL)


if __name__ == "__main__":
    remove_groups(sys.argv[1])
