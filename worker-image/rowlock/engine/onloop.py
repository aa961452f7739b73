"""Which run is on the event loop: what a supervisor blames when the loop stops or dies.

A run's own task shows it, and so does every task that the run's code starts, and those start:
branches, parallel tool calls, what a client library does in the background.
What a library calls back from the loop itself, or does in a thread, is nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import TracebackType
from typing import Any

from rowlock.engine.board import RUN


class OnLoop(Coroutine[Any, Any, Any]):
    """A run's coroutine that shows its run on the board for as long as it is being executed.

    Costs one call of a Python function for each time that the task is resumed.
    """

    __slots__ = ("_cells", "_inner", "_run_id", "_send")

    def __init__(
        self, inner: Coroutine[Any, Any, Any], cells: memoryview[int], run_id: int
    ) -> None:
        self._inner = inner
        self._send = inner.send
        self._cells = cells
        self._run_id = run_id

    def send(self, value: Any) -> Any:
        """Resume the run."""
        self._cells[RUN] = self._run_id
        try:
            return self._send(value)
        finally:
            self._cells[RUN] = 0

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """Resume the run with an exception."""
        self._cells[RUN] = self._run_id
        try:
            return self._inner.throw(kind, value, traceback) if value else self._inner.throw(kind)
        finally:
            self._cells[RUN] = 0

    def close(self) -> None:
        """End the run's coroutine."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        """Look like the coroutine inside: debuggers and anyio ask for `cr_frame` and its like."""
        return getattr(self._inner, name)


def tasks_on(cells: memoryview[int]) -> Callable[..., asyncio.Task[Any]]:
    """Return a task factory that shows the run whose code starts a task while that is executed."""

    def make(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        run_id = cells[RUN]
        if run_id:
            coro = OnLoop(coro, cells, run_id)
        return asyncio.Task(coro, loop=loop, context=context)

    return make
