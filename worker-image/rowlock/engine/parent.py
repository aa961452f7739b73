"""What a child process owes its parent, by the kernel's own means."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def die_with_parent(parent: int, *, code: int) -> None:
    """Be killed when the process `parent` ends; end at once, with `code`, if it has ended already.

    The kernel watches the *thread* that started us, so that must be one that lasts.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(code)


def hide_memory() -> None:
    """Let no other process of this user read our memory or environment, nor trace us.

    The database URL is in there, and tools run beside us under the same user.
    (The superuser may still; images run as somebody else.)
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"prctl({option}, {value})")
