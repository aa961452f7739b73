"""Agents that kill the process they run in, each in its own way, and their bystanders."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from rowlock import Run, agent
from tests.agents_for_tests import gate, leave_effect


class Task(BaseModel):
    """What the test wants.

    Parameters
    ----------
    steps
        How many steps a bystander does.
    gates
        Names of gates before which a bystander stands in its first step.
    lives
        How often a killer dies until it goes well.
    others
        A killer that wants to be unseen waits until so many bystanders stand before their gate.
    """

    folder: Path
    steps: int = 3
    gates: list[str] = []
    lives: int = 1000
    others: int = 0


def died_before(task: Task) -> int:
    """Count how often a killer died so far."""
    file = task.folder / "deaths"
    return len(file.read_text().splitlines()) if file.exists() else 0


def note_death(task: Task, run: Run) -> None:
    """Write down that this process is about to die of this run."""
    with (task.folder / "deaths").open("a") as deaths:
        deaths.write(f"{os.getpid()} {run.id}\n")


_opened: dict[Path, asyncio.Event] = {}


async def quietly(gate: Path) -> None:
    """Wait for a file as hundreds may do at once, leaving the loop idle but for one look."""
    event = _opened.get(gate)
    if event is None:
        event = _opened[gate] = asyncio.Event()
        _look(gate, event)
    await event.wait()


def _look(gate: Path, event: asyncio.Event) -> None:
    if gate.exists():
        event.set()
    else:
        asyncio.get_running_loop().call_later(0.1, _look, gate, event)


async def _die(task: Task, run: Run, how: Callable[[], None]) -> str:
    if died_before(task) >= task.lives:
        return "went well"
    note_death(task, run)
    how()
    await asyncio.sleep(60)
    return "survived"


def _read_nothing() -> None:
    ctypes.string_at(0)


def _when_idle(task: Task, deaths: int) -> None:
    """Die in a thread, when the event loop has nothing to do."""
    effects = task.folder / "effects"
    while deaths < 2 and len(effects.read_text().splitlines()) < task.others * (deaths + 1):
        time.sleep(0.05)
    time.sleep(0.5)
    _read_nothing()


@agent(name="segfaulter")
async def segfaulter(run: Run, task: Task) -> str:
    """Touch forbidden memory in a step, on the loop."""
    await gate(task.folder, "kill")

    async def step() -> str:
        return await _die(task, run, _read_nothing)

    return await run.step("segfault", step)


@agent(name="branching")
async def branching(run: Run, task: Task) -> list[str]:
    """Do the same in one of several branches, which are tasks of their own."""
    await gate(task.folder, "kill")

    async def step(name: str) -> str:
        await asyncio.sleep(0.05)
        return await _die(task, run, _read_nothing) if name == "b" else name

    return await run.gather(*(run.step(name, step, name) for name in "abc"))


@agent(name="threader")
async def threader(run: Run, task: Task) -> str:
    """Do the same in a thread, so that nobody sees whose code it was."""
    await gate(task.folder, "kill")

    async def step() -> str:
        thread = threading.Thread(target=_when_idle, args=(task, died_before(task)))
        return await _die(task, run, thread.start)

    return await run.step("thread", step)


@agent(name="leaver")
async def leaver(run: Run, task: Task) -> str:
    """Leave the process with a good exit code."""
    await gate(task.folder, "kill")

    async def step() -> str:
        return await _die(task, run, lambda: os._exit(0))

    return await run.step("leave", step)


@agent(name="boss")
async def boss(run: Run, task: Task) -> str:
    """Kill the supervisor, and with it the whole worker."""
    await gate(task.folder, "kill")

    async def step() -> str:
        return await _die(task, run, lambda: os.kill(os.getppid(), signal.SIGKILL))

    return await run.step("boss", step)


@agent(name="bystander")
async def bystander(run: Run, task: Task) -> int:
    """Do steps, each with one effect; the first waits for its gates after that."""

    async def effect(number: int) -> int:
        leave_effect(task.folder, run.id, f"step-{number}", os.getpid())
        if number == 0:
            for name in task.gates:
                await quietly(task.folder / f"gate-{name}")
        return number

    return sum([await run.step(f"step-{n}", effect, n) for n in range(task.steps)])


@agent(name="ambling")
async def ambling(run: Run, task: Task) -> int:
    """Do steps that take a little while, for a long time."""

    async def effect(number: int) -> int:
        await asyncio.sleep(0.1)
        return number

    return sum([await run.step(f"step-{n}", effect, n) for n in range(task.steps)])
