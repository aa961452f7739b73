"""The executor processes of one loop process: started when needed, used again, replaced when dead.

A call has a seat before its effect is announced; so what waits here has not begun,
and a drain or a cancel leaves no doubt about it.
A seat is free again when its process is idle or gone: there are never more processes than seats.
"""

from __future__ import annotations

import asyncio

import structlog

from rowlock import metrics
from rowlock.agents.crossing import BlockingAnswer, BlockingCall
from rowlock.engine.board import Groups
from rowlock.engine.executor_process import GRACE_SECONDS, ExecutorProcess, NeverBegan
from rowlock.engine.frames import Execute, Setup
from rowlock.errors import ExecutorLost, NotStarted
from rowlock.metrics import Tally

log = structlog.get_logger(__name__)


class Executors:
    """A pool of executor processes.

    Parameters
    ----------
    size
        How many calls at once.
    max_calls
        After so many calls a process is replaced: tools leak.
    groups
        Where the supervisor finds what to kill if this process dies.
    """

    def __init__(
        self, setup: Setup, *, size: int, max_calls: int, groups: Groups, tally: Tally
    ) -> None:
        self._setup = setup
        self._size = size
        self._max_calls = max_calls
        self._groups = groups
        self._tally = tally
        self._seats = asyncio.Semaphore(size)
        self._idle: list[ExecutorProcess] = []
        self._living: set[ExecutorProcess] = set()
        self._owed = 0
        #: Calls under way, and calls that wait for a seat.
        self.busy = self.waiting = 0

    async def seat(self, entrypoint: str) -> ExecutorSeat:
        """Wait for a seat; first come, first served.

        Parameters
        ----------
        entrypoint
            Module that names the agent.
        """
        self.waiting += 1
        try:
            await self._seats.acquire()
        finally:
            self.waiting -= 1
        self.busy += 1
        return ExecutorSeat(self, entrypoint, self._tally)

    async def take(self) -> ExecutorProcess:
        """Return a process for a seat: the one used last, or a new one.

        Raises
        ------
        NotStarted
            The machine refuses another process.
        """
        while self._idle:
            process = self._idle.pop()
            if process.usable:
                return process
        try:
            process = await ExecutorProcess.start(self._setup)
        except OSError as error:
            raise NotStarted(f"no executor process can be started: {error.strerror}") from error
        self._note_start(process)
        return process

    def give_back(self, process: ExecutorProcess | None) -> None:
        """A seat is left."""
        self.busy -= 1
        if process is None or process.ended.done():
            self._seats.release()
        elif process.usable and process.calls < self._max_calls:
            self._idle.append(process)
            self._seats.release()
        else:
            process.retire()
            process.ended.add_done_callback(lambda _: self._seats.release())

    def _note_start(self, process: ExecutorProcess) -> None:
        again = self._owed > 0
        self._owed -= again
        self._tally.add(metrics.EXECUTOR_STARTS, "respawn" if again else "first")
        self._living.add(process)
        self._groups.add(process.pid)
        process.ended.add_done_callback(lambda _: self._note_end(process))

    def _note_end(self, process: ExecutorProcess) -> None:
        self._owed += 1
        self._living.discard(process)
        self._groups.discard(process.pid)
        if process in self._idle:
            self._idle.remove(process)

    async def close(self) -> None:
        """End all: the idle at once, those in a call after their grace."""
        for process in self._living:
            process.kill() if process in self._idle else process.end()
        if self._living:
            gone = [process.ended for process in self._living]
            await asyncio.wait(gone, timeout=GRACE_SECONDS + 0.5)
        self.kill()

    def kill(self) -> None:
        """End all without grace and without waiting."""
        for process in list(self._living):
            process.kill()


class ExecutorSeat:
    """`rowlock.agents.protocol.Seat` in a pool."""

    __slots__ = ("_entrypoint", "_left", "_pool", "_process", "_tally")

    def __init__(self, pool: Executors, entrypoint: str, tally: Tally) -> None:
        self._pool = pool
        self._entrypoint = entrypoint
        self._tally = tally
        self._process: ExecutorProcess | None = None
        self._left = False

    async def call(self, call: BlockingCall) -> BlockingAnswer:
        """Make the call; see `rowlock.agents.protocol.Seat.call`."""
        try:
            answer = await self._call(Execute(self._entrypoint, call))
        except BaseException as error:
            result = _result(error)
            self._tally.add(metrics.EXECUTOR_CALLS, result)
            if result in metrics.KILLS:
                self._tally.add(metrics.EXECUTOR_KILLS, result)
                self._say(call, result)
            raise
        self._tally.add(metrics.EXECUTOR_CALLS, "failed" if answer.trouble else "done")
        return answer

    async def _call(self, message: Execute) -> BlockingAnswer:
        self._process = process = await self._pool.take()
        try:
            return await process.call(message)
        except NeverBegan:
            if process.calls == 1:
                raise
        # It had died since its last call, which says nothing about this one.
        self._process = process = await self._pool.take()
        return await process.call(message)

    def _say(self, call: BlockingCall, why: str) -> None:
        log.warning(
            "An executor is killed in a call",
            run=str(call.run_id),
            call=call.call_id,
            function=f"{call.module}:{call.qualname}",
            why=why,
            timeout=call.timeout,
            pid=self._process.pid if self._process else None,
        )

    def leave(self) -> None:
        """Let the next one have it."""
        if not self._left:
            self._left = True
            self._pool.give_back(self._process)


def _result(error: BaseException) -> str:
    if isinstance(error, NotStarted):
        return "not_started"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "lost" if isinstance(error, ExecutorLost) else "cancelled"
