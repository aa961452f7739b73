"""Agents that do what no agent should, for a test of what becomes of their neighbours.

They stand at the top of a module, because executors find their plain functions by name.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rowlock import Run, agent
from tests.agents_for_tests import Task, leave_effect

_BIG = 17 * 1024 * 1024


class Unpicklable(Exception):
    """Can neither be pickled nor made again without its lock."""

    def __init__(self, lock: object) -> None:
        super().__init__("it holds a lock")
        self.lock = lock


class Speechless(Exception):
    """Cannot say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Rude(BaseException):
    """Is no `Exception`."""


def raise_unpicklable() -> None:
    """Raise in an executor what cannot cross to the loop as an object."""
    raise Unpicklable(threading.Lock())


def exit_in_executor() -> None:
    """Leave the interpreter of an executor."""
    sys.exit(3)


def vanish_in_executor() -> None:
    """End an executor without a word."""
    os._exit(3)


def fork_in_executor() -> int:
    """Return twice."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return 1


def triple(number: int) -> int:
    """Multiply, in a process of `multiprocessing`."""
    return number * 3


@agent(name="bad")
async def bad(run: Run, task: Task) -> Any:
    """Do the bad thing that the last part of the folder's name says."""
    kind = task.folder.name
    if kind in _STEPS:
        name, function, *arguments = _STEPS[kind]
        return await run.step(name, function, *arguments, retries=0)
    return await _OUTSIDE[kind]()


@agent(name="good")
async def good(run: Run, task: Task) -> int:
    """Do two steps with an effect each."""

    async def effect(number: int) -> int:
        leave_effect(task.folder, run.id, f"step-{number}", run.call_id)
        await asyncio.sleep(0.05)
        return number

    return sum([await run.step(f"step-{number}", effect, number) for number in (1, 2)])


async def _give(value: Any) -> Any:
    return value


async def _give_surrogate() -> str:
    return "\ud800"


async def _give_big() -> str:
    return "x" * _BIG


async def _give_object() -> Any:
    return object()


async def _give_coroutine() -> Any:
    return _give(1)  # nobody awaits it


async def _exit() -> None:
    sys.exit(3)


async def _fork() -> int:
    child = os.fork()  # the child must not come back from this
    _, status = os.waitpid(child, 0)  # noqa: ASYNC222  it ends at once
    return os.waitstatus_to_exitcode(status)


async def _processes() -> list[int]:
    with multiprocessing.Pool(1) as pool:
        return await asyncio.to_thread(pool.map, triple, [1, 2])


async def _program() -> int:
    return subprocess.run(["/bin/true"], preexec_fn=os.getpid, check=True).returncode  # noqa: ASYNC221


async def _swallow() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)


async def _deep(level: int) -> int:
    return await _deep(level + 1)


async def _return_big() -> str:
    return "x" * _BIG


async def _raise(error: BaseException) -> None:
    raise error


#: Kinds that are a step: its name, function and arguments.
_STEPS: dict[str, tuple[Any, ...]] = {
    "nul": ("nul", _give, "a\0b"),
    "nul-name": ("a\0b", _give, 1),
    "surrogate": ("surrogate", _give_surrogate),
    "big-step": ("big", _give_big),
    "object": ("object", _give_object),
    "coroutine": ("coroutine", _give_coroutine),
    "unpicklable": ("raise", raise_unpicklable),
    "exit": ("exit", _exit),
    "exit-executor": ("exit", exit_in_executor),
    "vanish-executor": ("vanish", vanish_in_executor),
    "fork": ("fork", _fork),
    "fork-executor": ("fork", fork_in_executor),
    "processes": ("processes", _processes),
    "program": ("program", _program),
    "never": ("never", asyncio.Event().wait),
}
#: Kinds that the agent does itself.
_OUTSIDE: dict[str, Callable[[], Awaitable[Any]]] = {
    "big-result": _return_big,
    "object-result": _give_object,
    "swallow": _swallow,
    "speechless": partial(_raise, Speechless()),
    "rude": partial(_raise, Rude("out of my way")),
    "interrupt": partial(_raise, KeyboardInterrupt()),
    "cancelled": partial(_raise, asyncio.CancelledError()),
    "group": partial(_raise, ExceptionGroup("several", [ValueError("one"), KeyError("two")])),
    "deep": partial(_deep, 0),
}
