"""Runs the parts until a signal, or until one of them ends, which none ever should."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import structlog

from rowlock.errors import RowlockError

log = structlog.get_logger(__name__)

_STOP_SECONDS = 10.0


class PartEnded(RowlockError):
    """A part of the operator ended by itself; the process must be started anew."""


class Supervisor:
    """The tasks of this process."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._stop = asyncio.Event()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` for as long as the process lives."""
        self._tasks[asyncio.create_task(work, name=name)] = name

    def stop(self) -> None:
        """End orderly."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        """End orderly on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    async def watch(self, until: Coroutine[Any, Any, Any] | None = None) -> bool:
        """Return False when told to stop, or True when `until` has come to its end.

        Raises
        ------
        PartEnded
            A task ended, whether with an error or without.
        """
        ours = {asyncio.create_task(self._stop.wait(), name="stop")}
        goal = asyncio.create_task(until, name="goal") if until else None
        if goal:
            ours.add(goal)
        try:
            done, _ = await asyncio.wait({*ours, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ours:
                task.cancel()
        for task in done - ours:
            raise PartEnded(f"{self._tasks[task]} ended: {_end_of(task)}")
        if goal in done and not self._stop.is_set():
            goal.result()
            return True
        return False

    async def cancel(self, *, but: frozenset[str] = frozenset()) -> None:
        """Cancel the tasks and wait for them."""
        doomed = [task for task, name in self._tasks.items() if name not in but]
        for task in doomed:
            task.cancel()
        if doomed:
            await asyncio.wait(doomed, timeout=_STOP_SECONDS)
        for task in doomed:
            self._tasks.pop(task)


def _end_of(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return "it was cancelled"
    error = task.exception()
    if error is None:
        return str(task.result() or "without an error")
    log.error("A part of the operator failed", part=task.get_name(), exc_info=error)
    return f"{type(error).__name__}: {error}"
