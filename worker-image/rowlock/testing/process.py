"""A process that can die: whatever it runs stops where it is, and nothing of it runs again.

Raising an exception is no death: `except` and `finally` would run, and other tasks would go on.
So every task of such a process is wrapped. After its death the event loop may still resume one,
but the wrapper ends it without touching what is inside, which stays frozen at its last `await`.
What runs in a thread cannot be stopped and goes on to its end; its result reaches nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator, Iterator
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

T = TypeVar("T")

_CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)
#: What dead processes were doing. To free a coroutine is to run its `finally` blocks.
_GRAVES: Final[list[Coroutine[Any, Any, Any]]] = []


class Died(Exception):
    """The process died before what was asked of it was done."""


class Process:
    """Runs coroutines, and all tasks that they start, until it dies.

    Attributes
    ----------
    dead
        Nothing of it runs any more.
    """

    def __init__(self) -> None:
        self.dead = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Return what `main` returns.

        Raises
        ------
        Died
            The process died meanwhile.
        """
        loop = asyncio.get_running_loop()
        context = copy_context()
        context.run(_CURRENT.set, self)
        with _wrapped_tasks(loop):
            task = loop.create_task(_Mortal(main, self), context=context)
            self.own(task)
            try:
                result: T = await task
            except BaseException:
                self.kill()
                raise
        if self.dead:
            raise Died
        return result

    def own(self, task: asyncio.Task[Any]) -> None:
        """Count `task`, which is wrapped, among those that end with the process."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def die(self) -> NoReturn:
        """Die; called by what runs in the process, to which this never returns."""
        self.kill()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("a dead process was resumed")

    def kill(self) -> None:
        """Let the process die, as from outside."""
        self.dead = True
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()  # wakes the wrapper alone


class _Mortal(Coroutine[Any, Any, Any]):
    """A coroutine that is not resumed after the death of its process."""

    __slots__ = ("_begun", "_inner", "_process")

    def __init__(self, inner: Coroutine[Any, Any, Any], process: Process) -> None:
        self._inner = inner
        self._process = process
        self._begun = False

    def send(self, value: Any) -> Any:
        if self._process.dead:
            self._bury()
        self._begun = True
        waits_for = self._inner.send(value)
        if self._process.dead:
            self._bury()
        return waits_for

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        if self._process.dead:
            self._bury()
        waits_for = self._inner.throw(kind, value, traceback) if value else self._inner.throw(kind)
        if self._process.dead:
            self._bury()
        return waits_for

    def close(self) -> None:
        if not self._process.dead:
            self._inner.close()

    def __await__(self) -> Generator[Any, None, Any]:
        raise TypeError("only a task can run this")

    def _bury(self) -> NoReturn:
        """End the task, and leave what it was doing as it is."""
        if self._begun:
            _GRAVES.append(self._inner)
        else:
            self._inner.close()
        raise StopIteration


class _Births:
    """A task factory that wraps the tasks which a process starts."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.users = 0

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Task[Any]:
        process = _CURRENT.get()
        if process is not None:
            coro = _Mortal(coro, process)
        make = self.before or (lambda loop, coro, **given: asyncio.Task(coro, loop=loop, **given))
        task: asyncio.Task[Any] = make(loop, coro, **options)
        if process is not None:
            process.own(task)
        return task


@contextlib.contextmanager
def _wrapped_tasks(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    known = loop.get_task_factory()
    births = known if isinstance(known, _Births) else _Births(known)
    loop.set_task_factory(births)
    births.users += 1
    try:
        yield
    finally:
        births.users -= 1
        if not births.users and loop.get_task_factory() is births:
            loop.set_task_factory(births.before)
