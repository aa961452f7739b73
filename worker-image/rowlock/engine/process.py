"""A loop process, started by a supervisor.

`python -m rowlock.engine.process CONTROL_FD BOARD_FD PARENT_PID`

It learns who it is from its control socket before it imports any customer's code,
hosts runs until it is told to leave, and ends with one of the codes in `messages`.
It dies with its supervisor: by the kernel's parent-death signal, or when the control socket closes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import NoReturn

import structlog
import uvloop

from rowlock import logs
from rowlock.batches import way
from rowlock.engine import collector
from rowlock.engine.board import Board
from rowlock.engine.forks import guard_forks
from rowlock.engine.host import Host
from rowlock.engine.live import LiveText
from rowlock.engine.messages import (
    EXIT_FENCED,
    LINE_LIMIT,
    Boot,
    Cancel,
    Capped,
    Drain,
    Fence,
    Look,
    Stop,
    Suspend,
    ToLoop,
    line,
    read_boot,
    to_loop,
)
from rowlock.engine.parent import die_with_parent, hide_memory
from rowlock.engine.rehearsal import Rehearsal
from rowlock.traces import Joining, join_steps

log = structlog.get_logger(__name__)

_REPORT_SECONDS = 1.0


def ignore_stop_signals() -> None:
    """Leave SIGINT and SIGTERM to the supervisor: a terminal sends them to all of us.

    A handler that does nothing and not SIG_IGN, which what agents start would inherit.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


async def obey(reader: asyncio.StreamReader, host: Host) -> None:
    """Carry out what the supervisor says; when it is gone, so are we."""
    try:
        while raw := await reader.readline():
            _carry_out(to_loop(raw), host)
    except Exception:
        log.exception("The supervisor was not understood")
    os._exit(EXIT_FENCED)


def _carry_out(message: ToLoop, host: Host) -> None:
    if isinstance(message, Cancel):
        host.cancel(message.runs)
    elif isinstance(message, Capped):
        host.capped(message.agents)
    elif isinstance(message, Look):
        host.look()
    elif isinstance(message, Suspend):
        host.suspend(message.runs)
    elif isinstance(message, Drain):
        host.drain()
    elif isinstance(message, Stop):
        host.stop()
    elif isinstance(message, Fence):
        host.fenced()


async def report(writer: asyncio.StreamWriter, host: Host) -> None:
    """Tell the supervisor once a second what was counted."""
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        writer.write(line(host.report()))
        await writer.drain()


async def serve(boot: Boot, board: Board, control: socket.socket) -> int:
    """Host runs; return the exit code."""
    control.setblocking(False)
    way.use(boot.database_url)
    reader, writer = await asyncio.open_connection(sock=control, limit=LINE_LIMIT)
    host = Host(boot, board, rehearsal=_rehearsal(boot, writer))
    tasks = [asyncio.create_task(obey(reader, host)), asyncio.create_task(report(writer, host))]
    code = await host.run()
    tasks[1].cancel()
    writer.write(line(host.report()))
    await writer.drain()
    return code


def _rehearsal(boot: Boot, writer: asyncio.StreamWriter) -> Rehearsal | None:
    if not (boot.watched or boot.crash_at):
        return None
    live = LiveText(writer.write, writer.transport.get_write_buffer_size)
    return Rehearsal(live, crash_at=boot.crash_at)


def main() -> None:
    """Run a loop process to its end."""
    control_fd, board_fd, parent = (int(argument) for argument in sys.argv[1:4])
    for fd in (control_fd, board_fd):
        os.set_inheritable(fd, False)  # what agents start has no part in this
    die_with_parent(parent, code=EXIT_FENCED)
    hide_memory()
    guard_forks()
    ignore_stop_signals()
    control = socket.socket(fileno=control_fd)
    boot = read_boot(control)
    logs.configure(log_format=boot.log_format, level=boot.log_level, process=boot.index)
    collector.set_up()
    if boot.trace_ratio is not None:
        Joining.join = join_steps(ratio=boot.trace_ratio)
    uvloop.run(_to_the_end(boot, Board(board_fd), control))


async def _to_the_end(boot: Boot, board: Board, control: socket.socket) -> NoReturn:
    try:
        code = await serve(boot, board, control)
    except Exception:
        log.exception("The loop process failed")
        code = 1
    sys.stderr.flush()
    # Not a return: an agent's thread or a task that ignores its end must not keep the process.
    os._exit(code)


if __name__ == "__main__":
    main()
