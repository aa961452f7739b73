"""Becomes the embedded server: drops root, ties itself to its parent's life, and executes it.

`python -I -S embedded_launch.py PARENT_PID POSTGRES ARGUMENT…`

It is run as a file, with nothing but the standard library, because it stands before every start.
"""

import ctypes
import os
import pwd
import signal
import sys

_PR_SET_PDEATHSIG = 1
_UNPRIVILEGED = "nobody"


def become_server(parent: int, command: list[str]) -> None:
    """Execute `command`; the order of the steps matters.

    A change of credentials clears the parent-death signal.
    """
    if os.geteuid() == 0:
        account = pwd.getpwnam(_UNPRIVILEGED)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  the command is our own list


if __name__ == "__main__":
    become_server(int(sys.argv[1]), sys.argv[2:])
