"""Agents that the tests of workers run in real worker processes.

They speak with their test through files in the folder that their input names:
`effects` gets a line for each effect, `gate-NAME` lets a step go on when the test makes it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rowlock import NotStarted, Run, agent
from rowlock.agents.protocol import Journal, Result
from rowlock.errors import ModelUnavailable
from rowlock.states import EventKind


class Task(BaseModel):
    """What the test wants.

    Parameters
    ----------
    steps
        How many steps to do, named step-0 and so on.
    gates
        Numbers of steps that wait for their gate after their effect and before they return.
    """

    folder: Path
    steps: int = 3
    gates: list[int] = []


def leave_effect(folder: Path, *fields: object) -> None:
    """Append one line in one write, so that lines of many processes never mix."""
    line = " ".join(str(field) for field in fields) + "\n"
    fd = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


async def gate(folder: Path, name: str) -> None:
    """Wait until the test opens the gate `name`; say that somebody waits."""
    (folder / f"waiting-{name}").touch()
    while not (folder / f"gate-{name}").exists():  # noqa: ASYNC110  the test is another process
        await asyncio.sleep(0.01)


@agent(name="walker")
async def walker(run: Run, task: Task) -> int:
    """Do steps one after the other, each with one effect that carries its call id."""

    async def effect(number: int) -> int:
        leave_effect(task.folder, run.id, f"step-{number}", run.call_id, os.getpid())
        if number in task.gates:
            await gate(task.folder, str(number))
        return number

    done = [await run.step(f"step-{n}", effect, n) for n in range(task.steps)]
    return sum(done)


@agent(name="payer")
async def payer(run: Run, task: Task) -> str:
    """Pay once: the provider keeps one payment for each call id, however often it is asked."""

    async def pay(cents: int) -> str:
        leave_effect(task.folder, run.id, "pay", run.call_id, os.getpid())
        payment = task.folder / f"payment-{run.call_id.replace('/', '-')}"
        payment.write_text(str(cents))
        if 0 in task.gates:
            await gate(task.folder, "0")
        return payment.name

    return await run.step("pay", pay, 1200, side_effects="idempotent")


@agent(name="branches")
async def branches(run: Run, task: Task) -> list[int]:
    """Do one quick step and one that waits for its gate, at once; then another."""

    async def effect(number: int) -> int:
        leave_effect(task.folder, run.id, f"step-{number}", run.call_id, os.getpid())
        if number in task.gates:
            await gate(task.folder, str(number))
        return number

    await run.gather(*(run.step(f"step-{n}", effect, n) for n in range(2)))
    return [await run.step("step-2", effect, 2)]


@agent(name="stubborn")
async def stubborn(run: Run, task: Task) -> str:
    """Swallow every cancel."""
    (task.folder / "waiting-stubborn").touch()
    while not (task.folder / "gate-stubborn").exists():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            leave_effect(task.folder, run.id, "swallowed")
    return "late"


@agent(name="hog")
async def hog(run: Run, task: Task) -> str:
    """Hold the loop until the gate opens."""

    async def block() -> str:
        leave_effect(task.folder, run.id, "block", os.getpid())
        while not (task.folder / "gate-hog").exists():
            time.sleep(0.01)  # noqa: ASYNC251  to hold the loop is the point
        return "released"

    return await run.step("block", block)


@agent(name="quitter")
async def quitter(run: Run, task: Task) -> str:
    """Leave the interpreter in the middle of the agent's own code."""
    leave_effect(task.folder, run.id, "quit")
    raise SystemExit(7)


@agent(name="failing")
async def failing(run: Run, task: Task) -> str:
    """Raise with a cause, at every attempt but the third."""
    leave_effect(task.folder, run.id, f"attempt-{run.attempt}")
    if run.attempt >= task.steps:
        return f"attempt {run.attempt}"
    try:
        raise KeyError("order 1001")
    except KeyError as error:
        raise ValueError("the order is not there") from error


class _Forbidden:
    """Writes a key that PostgreSQL can never store, as no agent of our own layer would."""

    name = "forbidden"

    def check_input(self, value: Any) -> Any:
        """Take anything."""
        return value

    async def execute(self, journal: Journal, value: Any) -> Result:
        """Write and, against all promises, go on."""
        await journal.boundary()
        journal.note(EventKind.PROGRESS, "fine", b"1")
        try:
            await journal.write(EventKind.STEP_DONE, "a\0b", b"1")
        except BaseException:
            leave_effect(Path(value["folder"]), "stopped")
            raise
        return Result(b"1")


forbidden = _Forbidden()


class _Labelled(_Forbidden):
    """Notes a progress label that PostgreSQL can never store."""

    name = "labelled"

    async def execute(self, journal: Journal, value: Any) -> Result:  # noqa: ARG002
        """Lose the label and nothing else."""
        journal.note(EventKind.PROGRESS, "a\0b", b"1")
        await journal.boundary()
        await journal.write(EventKind.STEP_DONE, "step", b"1")
        return Result(b"1")


labelled = _Labelled()


@agent(name="flaky")
async def flaky(run: Run, task: Task) -> str:
    """Fail a step before its effect begins, for ever."""

    async def effect() -> str:
        (task.folder / "waiting-flaky").touch()
        raise NotStarted("not today")

    return await run.step("flaky", effect, retries=100)


@agent(name="refused")
async def refused(run: Run, _task: Task) -> str:
    """Ask a model that has too much to do, for ever."""

    async def ask() -> str:
        raise ModelUnavailable("429", retry_after=0.1)

    return await run.step("ask", ask, retries=100)


@agent(name="snooper")
async def snooper(run: Run, task: Task) -> list[str]:
    """Return what of the environment leads into the database."""

    async def look() -> list[str]:
        told = await asyncio.to_thread(Path(f"/proc/{os.getpid()}/environ").read_text)
        return [line for line in [*told.split("\0"), *os.environ.values()] if "postgres" in line]

    return await run.step("look", look)


@agent(name="ambler")
async def ambler(run: Run, task: Task) -> int:
    """Do steps that take a little while, so that many runs are in the middle at any time."""

    async def effect(number: int) -> int:
        leave_effect(task.folder, run.id, f"step-{number}", run.call_id, os.getpid())
        await asyncio.sleep(0.05)
        return number

    return sum([await run.step(f"step-{n}", effect, n) for n in range(task.steps)])
