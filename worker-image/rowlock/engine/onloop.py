"""Which run is on the event loop: what a supervisor blames when the loop stops or dies."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any

from rowlock.engine.board import RUN


class OnLoop(Coroutine[Any, Any, None]):
    """A run's coroutine that shows its run on the board for as long as it is being executed.

    Costs one call of a Python function for each time that the task is resumed.
    """

    __slots__ = ("_cells", "_inner", "_run_id", "_send")

    def __init__(
        self, inner: Coroutine[Any, Any, None], cells: memoryview[int], run_id: int
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

    def __await__(self) -> Generator[Any, None, None]:
        return self._inner.__await__()
