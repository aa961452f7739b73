"""Locks between processes that end with the process that holds them.

`flock` is used because the kernel drops it when the last copy of the descriptor is closed.
So a crash never leaves a lock behind, and a lock tells reliably whether its holder lives.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """Take the lock without waiting.

    Returns:
        The descriptor that holds it (close it to let go), or None if someone else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock exclusively."""
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Shared, so that two onlookers never take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def locked(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for the length of a `with` block, waiting for it if need be.

    Args:
        path: The lock file; it is made if missing and never removed.
        on_wait: Called once if another process holds the lock.
    """
    descriptor = try_lock(path)
    if descriptor is None:
        on_wait()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)
