"""The one place for nodes that a network namespace has, and who holds it.

Every cluster with nodes uses the same addresses, so there can be one.
A lock tells: its holder is the keeper, so a crash lets go of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from localcluster.errors import AlreadyRunningError
from localcluster.locks import try_lock

from .groups import remove_groups

_LOCKS = Path("/run/lock/rowlock")


def group() -> str:
    """Return the control group of all nodes of this network namespace."""
    return f"/rowlock-{_namespace()}"


def take() -> int:
    """Take the place, remove what a crashed cluster left there, and return the lock.

    Raises:
        AlreadyRunningError: Another cluster has nodes.
    """
    lock = _try_lock()
    if lock is None:
        raise AlreadyRunningError("another cluster on this machine has nodes: end that one first")
    remove_groups(group())
    return lock


def clear() -> None:
    """Remove what a crashed cluster left, unless another has the place by now."""
    lock = _try_lock() if os.geteuid() == 0 else None
    if lock is not None:
        try:
            remove_groups(group())
        finally:
            os.close(lock)


def _try_lock() -> int | None:
    return try_lock(_LOCKS / f"nodes-{_namespace()}.lock")


def _namespace() -> int:
    return Path("/proc/self/ns/net").stat().st_ino
