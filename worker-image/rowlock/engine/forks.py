"""What becomes of a loop process that somebody forks.

The child of a bare `os.fork()` would go on as this worker: with the same connections to PostgreSQL,
on which two processes would then talk at once, and with an event loop that shares its poll set.
So such a child ends before it runs another line. Children that never come back to the loop live:
those that `subprocess` and `multiprocessing` fork go on to their own program or function.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

#: Exit code of a child that was not let live.
EXIT_FORKED = 70
#: Modules whose children never return into the code that forked.
_HARMLESS = frozenset({"subprocess", "multiprocessing.popen_fork", "multiprocessing.forkserver"})
_MESSAGE = (
    b"A forked child of a worker's loop process was ended: it would share the worker's connections."
    b" Fork in a plain `def` tool or a step with blocking=True, or start a program instead.\n"
)


def guard_forks() -> None:
    """End forked children of this process, and have `multiprocessing` start fresh ones."""
    if multiprocessing.get_start_method(allow_none=True) is None:
        multiprocessing.set_start_method("spawn")
    os.register_at_fork(after_in_child=_end_unless_harmless)


def _end_unless_harmless() -> None:
    # The frame that forked: this hook is called from C, right above it.
    forker = sys._getframe(1).f_globals.get("__name__")
    if forker not in _HARMLESS:
        os.write(2, _MESSAGE)
        os._exit(EXIT_FORKED)
