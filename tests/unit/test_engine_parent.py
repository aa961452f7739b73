"""What a child process owes its parent: tested on children that are programs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rowlock.engine import parent

SECRET = "postgresql://ada:secret@db/runs"
NOBODY = 65534

#: The superuser may read everything, so the tests' processes become somebody else;
#: that alone would hide them, so they first show themselves again.
LEAVE_ROOT = f"""
import ctypes, os, runpy, sys
parent = runpy.run_path({parent.__file__!r})
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
"""


@contextmanager
def holder(code: str) -> Iterator[int]:
    """Run `code` in a process that holds the secret; yield its process id when it has run."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{LEAVE_ROOT}{code}\nprint('ready', flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"SECRET": SECRET},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate("\n")


def read_by_neighbour(pid: int) -> str:
    """Read a process's environment as another process of its user; return all that is said."""
    code = "print(open(f'/proc/{sys.argv[1]}/environ').read())"
    done = subprocess.run(
        [sys.executable, "-c", f"{LEAVE_ROOT}{code}", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_neighbour_cannot_read_the_environment_of_a_process_that_hides() -> None:
    with holder("pass") as pid:
        assert SECRET in read_by_neighbour(pid)  # else the rest would show nothing
    with holder("parent['hide_memory']()") as pid:
        told = read_by_neighbour(pid)
    assert "PermissionError" in told
    assert SECRET not in told


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    code = f"{LEAVE_ROOT}\nparent['die_with_parent'](1 << 22, code=3)\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
