"""The workers of a soak: real ones, of which some are being killed at any time."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.workers import LocalWorker

#: Short, so that a soak of minutes sees hundreds of takeovers.
FLAGS = (
    *("--lease-seconds", "3", "--renew-seconds", "0.8", "--stall-ceiling-seconds", "3"),
    *("--processes", "2", "--slots", "96", "--executors", "2", "--drain-seconds", "20"),
    *("--connect-timeout", "300", "--log-level", "INFO"),
)


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; was there anybody to take it?"""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


class Fleet:
    """So many workers, each with a name that stays over its restarts.

    Attributes
    ----------
    leaving
        Those that were told to leave and have been replaced.
    unclean
        Exit codes of those that left of their own accord and not well.
    """

    def __init__(self, dsn: str, folder: Path, *, size: int) -> None:
        self._dsn = dsn
        self._folder = folder
        self._started = 0
        self._names: dict[LocalWorker, str] = {}
        self.leaving: list[LocalWorker] = []
        self.unclean: list[int] = []
        self.workers = [self._start(f"soak-{place}") for place in range(size)]

    def _start(self, name: str) -> LocalWorker:
        self._started += 1
        log = self._folder / f"worker-{self._started:04}-{name}.log"
        environment = {"SOAK_LEDGER": str(self._folder / "ledger"), "ROWLOCK_PARK_SECONDS": "0.2"}
        worker = LocalWorker(self._dsn, log, *FLAGS, "--instance", name, environment=environment)
        self._names[worker] = name
        return worker

    def replace(self, place: int, *, name: str | None = None) -> LocalWorker:
        """Start the next boot in the place of a worker, and return the one that was there."""
        old = self.workers[place]
        self.workers[place] = self._start(name or self._names[old])
        return old

    def dismiss(self, place: int) -> LocalWorker:
        """Roll one worker out: its successor, of another name, starts while it drains."""
        old = self.replace(place, name=f"soak-{place}-{self._started}")
        send(old.pid, signal.SIGTERM)
        self.leaving.append(old)
        return old

    def kill(self, place: int) -> None:
        """End supervisor and loops at one instant, as the end of a container does."""
        self.workers[place].destroy()
        self.replace(place)

    def behead(self, place: int) -> None:
        """End a supervisor alone; its loops follow it."""
        send(self.workers[place].pid, signal.SIGKILL)
        self.workers[place].process.wait()
        self.replace(place)

    def loops(self) -> list[int]:
        """Return all loop processes."""
        return [loop for worker in self.workers for loop in children(worker.pid)]

    def executors(self) -> list[int]:
        """Return all executor processes."""
        return [executor for loop in self.loops() for executor in children(loop)]

    def look(self) -> None:
        """Bury who has left, and replace who ended without being asked, which is no good sign."""
        for old in [one for one in self.leaving if one.process.poll() is not None]:
            self.leaving.remove(old)
            self._note(old)
        for place, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                self._note(worker)
                self.replace(place)

    def _note(self, worker: LocalWorker) -> None:
        # 1 says that it could not hand everything over: PostgreSQL was away at that moment.
        # Who is told to leave while it still imports has begun nothing, and dies of the signal.
        if worker.process.returncode not in {0, 1, -signal.SIGKILL, -signal.SIGTERM}:
            self.unclean.append(int(worker.process.returncode))

    def leave(self) -> list[int]:
        """Tell everybody to leave, and return the exit codes."""
        everybody = self.workers + self.leaving
        for worker in everybody:
            send(worker.pid, signal.SIGTERM)
        return [worker.process.wait(60) for worker in everybody]

    def destroy(self) -> None:
        """End whatever is left."""
        for worker in self._names:
            worker.destroy()
