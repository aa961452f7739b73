"""One loop process, seen from its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from rowlock.engine import messages
from rowlock.engine.board import (
    COMMIT_MS,
    DRAINING,
    LAG_US,
    REFUSED,
    RUN,
    RUNNING,
    SLOTS,
    TICK,
    TRIES,
    Board,
)
from rowlock.engine.messages import LINE_LIMIT, Boot, Drain, FromLoop, Stop, ToLoop
from rowlock.store.types import Beat, WorkerId

#: Variables that hold or hint at the way into the database.
_LAST_WORDS_SECONDS = 1.0
_SECRET_VARIABLES = (
    "ROWLOCK_DATABASE_URL",
    "DATABASE_URL",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
)


def child_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return `environment` without the way into the database: agents are imported there."""
    return {name: value for name, value in environment.items() if name not in _SECRET_VARIABLES}


class Child:
    """A started loop process.

    Parameters
    ----------
    boot
        What it was told to be.
    exited
        Set when the process has ended, to its return code (negative: the signal).
    """

    def __init__(self, boot: Boot, process: subprocess.Popen[bytes], board: Board) -> None:
        self.boot = boot
        self.worker_id = WorkerId(boot.worker_id)
        self.process = process
        self.board = board
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        #: Killed by us because it did not tick.
        self.stalled = False
        #: PostgreSQL refused its beat.
        self.fenced = False
        #: Killed by us at the end of a drain: what it held is handed over.
        self.dismissed = False
        #: Told by us to leave; one that leaves unasked was ended by what it ran.
        self.told = False
        self.started_at = time.monotonic()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, boot: Boot, on_report: Callable[[Child, FromLoop], None], *, registered_ns: int
    ) -> Child:
        """Start a loop process and tell it who it is; its registration was its first beat.

        A new program and never a fork: a copy of this process would share its connections.
        """
        board = Board.create()
        board.accepted(registered_ns)
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220  returns at once
                _command(theirs.fileno(), board.fd),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), board.fd),
                env=child_environment(dict(os.environ)),
            )
        child = cls(boot, process, board)
        child._watch_end()
        await child._open(ours, on_report)
        return child

    async def _open(
        self, control: socket.socket, on_report: Callable[[Child, FromLoop], None]
    ) -> None:
        reader, self._writer = await asyncio.open_connection(sock=control, limit=LINE_LIMIT)
        self._reading = asyncio.create_task(self._read(reader, on_report))
        self.send(self.boot)

    async def _read(
        self, reader: asyncio.StreamReader, on_report: Callable[[Child, FromLoop], None]
    ) -> None:
        try:
            while raw := await reader.readline():
                on_report(self, messages.from_loop(raw))
        except ConnectionError:
            pass  # its end is noticed by its exit, which comes at the same time

    def _watch_end(self) -> None:
        pidfd = os.pidfd_open(self.process.pid)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self.exited.set_result(self.process.wait())

        loop.add_reader(pidfd, ended)

    def send(self, message: ToLoop) -> None:
        """Tell it something; a dead one hears nothing and that is fine."""
        self.told = self.told or isinstance(message, Drain | Stop)
        if self._writer and not self._writer.is_closing():
            self._writer.write(messages.line(message))

    def kill(self) -> None:
        """End it now; works on a stopped process too."""
        if not self.exited.done():
            self.process.send_signal(signal.SIGKILL)

    def kill_executors(self) -> None:
        """End what its executors' tools have started; only after its end."""
        for group in self.board.groups():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    async def close(self) -> None:
        """Read what it said last and give its memory back; only after its end."""
        if self._reading:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reading, _LAST_WORDS_SECONDS)
        if self._writer:
            self._writer.close()
        self.board.close()

    @property
    def ticks(self) -> int:
        """How often its loop has ticked."""
        return self.board.cells[TICK]

    @property
    def run_on_loop(self) -> int:
        """The run whose code its loop executes at this instant; 0 for none."""
        return self.board.cells[RUN]

    def beat(self) -> Beat:
        """Return what a beat says of it."""
        cells = self.board.cells
        return Beat(
            worker_id=self.worker_id,
            slots=cells[SLOTS],
            running=cells[RUNNING],
            lag_ms=cells[LAG_US] // 1000,
            draining=bool(cells[DRAINING]),
            tries=cells[TRIES],
            refused=cells[REFUSED],
            commit_ms=cells[COMMIT_MS],
        )


def _command(control: int, board: int) -> list[str]:
    arguments = [str(control), str(board), str(os.getpid())]
    return [sys.executable, "-m", "rowlock.engine.process", *arguments]
