"""Become another program that the kernel kills as soon as the parent is gone.

Started as ``python -I -S _child.py PARENT_PID PROGRAM ARGUMENT...``; it imports nothing of
this package.
The death signal is set here, after the exec of a fresh interpreter, because the time between
fork and exec is no place to run Python in.
It survives the second exec.
The kernel ties it to the parent *thread* that forked, which is why only a process with one
thread, or a caller that waits for the child, starts programs this way.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arm the death signal, then exec the program of the command line."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent is already gone")
    try:
        os.execv(program, sys.argv[2:])  # noqa: S606
    except OSError as error:
        sys.exit(f"cannot run {program}: {error.strerror}")


if __name__ == "__main__":
    main()
