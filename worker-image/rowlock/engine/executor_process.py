"""One executor process, seen from the loop process that started it.

Ending one: SIGTERM to its whole process group, two seconds, SIGKILL to the group.
The group gets SIGKILL in any case: a child of a tool must not outlive the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys

from rowlock.agents.crossing import BlockingAnswer
from rowlock.engine.frames import (
    OVERHEAD,
    BadFrame,
    Begun,
    Ended,
    Execute,
    FromExecutor,
    Setup,
    frame,
    read_frame,
)
from rowlock.errors import ExecutorLost, NotStarted

#: Between SIGTERM and SIGKILL.
GRACE_SECONDS = 2.0
#: For starting, and for importing an agent's modules.
BEGIN_SECONDS = 60.0
#: After its end, what it has sent is still read for so long.
_LAST_WORDS_SECONDS = 0.1


class NeverBegan(NotStarted):
    """The executor ended before it called the function."""


def how_it_died(code: int) -> str:
    """Return what a return code says, in words.

    Parameters
    ----------
    code
        As `Popen.returncode`: negative for a signal.
    """
    if code >= 0:
        return f"it left with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
    return f"{name} ended it{hint}"


class ExecutorProcess:
    """A started executor.

    Attributes
    ----------
    pid
        Its process id, and that of its group.
    calls
        How many calls it was given.
    ended
        Set when it and its group are gone, to its return code.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        max_frame: int,
    ) -> None:
        self.pid = process.pid
        self.calls = 0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._max_frame = max_frame
        self._dead = False
        self._last_resort: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, setup: Setup) -> ExecutorProcess:
        """Start one and tell it who it is.

        Started from the loop's own thread: the kernel ends it with the thread that started it.

        Raises
        ------
        OSError
            The machine refuses another process.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                process = subprocess.Popen(  # noqa: ASYNC220  returns within milliseconds
                    _command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,
                )
            except OSError:
                writer.close()
                raise
        started = cls(process, reader, writer, max_frame=setup.max_result_bytes + OVERHEAD)
        started._watch_end()
        writer.write(frame(setup))
        return started

    def _watch_end(self) -> None:
        pidfd = os.pidfd_open(self.pid)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self._signal_group(signal.SIGKILL)  # not yet reaped, so no other group has its number
            self._dead = True
            code = self._process.wait()
            # A forked copy may hold the channel open, so we end it ourselves;
            # a little later, because what was sent last may not have been read.
            loop.call_later(_LAST_WORDS_SECONDS, self._bury, code)

        loop.add_reader(pidfd, ended)

    def _bury(self, code: int) -> None:
        if self._last_resort:
            self._last_resort.cancel()
        self._writer.close()
        self.ended.set_result(code)

    @property
    def usable(self) -> bool:
        """Is it neither dead nor about to be?"""
        return not self._dead and self._last_resort is None

    async def call(self, message: Execute) -> BlockingAnswer:
        """Make one call; whatever ends it early, a cancel too, ends the process.

        Raises
        ------
        TimeoutError
            It took longer than it may; the process is gone.
        NeverBegan
            The function was not called.
        ExecutorLost
            The process died in the call.
        """
        self.calls += 1
        try:
            self._writer.write(frame(message))
            first = await self._begun()
            last = first if isinstance(first, Ended) else await self._over(message.call.timeout)
        except BaseException:
            self.end()
            raise
        return last.answer

    async def _begun(self) -> FromExecutor:
        """Return `Begun`, or the answer if the call could not be prepared."""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                return await self._receive()
        except TimeoutError as error:
            text = f"no executor imported the agent's modules within {BEGIN_SECONDS:g} s"
            raise NeverBegan(text) from error
        except (EOFError, BadFrame) as error:
            raise NeverBegan(f"the executor process is gone: {await self._why(error)}") from error

    async def _over(self, seconds: float | None) -> Ended:
        try:
            async with asyncio.timeout(seconds):
                message = await self._receive()
            if isinstance(message, Begun):
                raise BadFrame("it began twice")
        except TimeoutError as error:
            self.end()
            await self._gone()  # the next try must not overlap with this one
            raise TimeoutError(f"no result within its timeout of {seconds:g} s") from error
        except (EOFError, BadFrame) as error:
            text = f"the executor process died in the call: {await self._why(error)}"
            raise ExecutorLost(text) from error
        return message

    async def _receive(self) -> FromExecutor:
        return await read_frame(self._reader, limit=self._max_frame)

    async def _why(self, error: Exception) -> str:
        self.end()
        code = await self._gone()
        return str(error) if isinstance(error, BadFrame) else how_it_died(code)

    async def _gone(self) -> int:
        return await asyncio.shield(self.ended)

    def end(self) -> None:
        """Begin its end, and that of all it has started; `ended` says when it is over."""
        if self.usable:
            self._signal_group(signal.SIGTERM)
            self._kill_later()

    def retire(self) -> None:
        """Let it leave by itself; it is idle."""
        if self.usable:
            self._writer.close()
            self._kill_later()

    def _kill_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_resort = loop.call_later(GRACE_SECONDS, self.kill)

    def kill(self) -> None:
        """End it without grace."""
        if not self._dead:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _command(channel: int) -> list[str]:
    return [sys.executable, "-m", "rowlock.engine.executor", str(channel), str(os.getpid())]
