"""Plain functions that tests run in executor processes, and agents that call them.

They stand at the top of a module, because an executor finds a function by its module and name.
They speak with their test through files, as `tests.agents_for_tests` does.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import BaseModel

from rowlock import NotStarted, PermanentError, Run, agent, tool
from tests.agents_for_tests import Task, leave_effect


class Note(BaseModel):
    """Some model."""

    text: str
    on: date = date(2026, 1, 1)


@dataclass
class Pair:
    """Some dataclass."""

    left: int
    right: int


class Slow(Exception):
    """Says how long to wait."""

    retry_after = 7.5


class Unreadable(Exception):
    """Cannot even say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def add(left: int, right: int) -> int:
    """Add."""
    return left + right


def later(note: Note, pair: Pair, days: list[date]) -> Note:
    """Take and return typed values; fails if one arrives as a dict."""
    return Note(text=f"{note.text} {pair.left + pair.right} {days[0].year}", on=note.on)


def loose(value):  # type: ignore[no-untyped-def]
    """Return what came; nothing is annotated."""
    return value


def every(*numbers: float) -> list[float]:
    """Return all of them."""
    return list(numbers)


async def double(number: int) -> int:
    """Double on a loop."""
    return number * 2


def wrapped(number: int):  # type: ignore[no-untyped-def]
    """Return a coroutine, as a careless decorator does."""
    return double(number)


def named(run: Run, text: str) -> list[str]:
    """Return what a plain function knows of its run, and say something of the call."""
    run.mark_degraded("a guess")
    run.count_usage(3, 4, 5)
    return [run.id, str(run.attempt), run.call_id, text]


def asks(run: Run, what: str) -> None:
    """Ask the run for what only the loop has."""
    if what == "step":
        run.step("inner", double, 1).close()
    elif what == "progress":
        run.progress("half")
    elif what == "text":
        run.text("piece")
    else:
        _ = run.usage


def fails(how: str) -> str:
    """Raise one of many things."""
    if how == "chain":
        try:
            raise KeyError("order 1001")
        except KeyError as error:
            raise ValueError("the order is not there") from error
    if how == "misfit":
        return 5  # type: ignore[return-value]
    if how == "fatal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "leaves":
        os._exit(9)
    raise {
        "permanent": PermanentError("never"),
        "not_started": NotStarted("busy"),
        "slow": Slow("later"),
        "exit": SystemExit(7),
        "unreadable": Unreadable(),
        "surrogate": ValueError("\ud800"),
    }[how]


def who() -> int:
    """Return the process that made the call."""
    return os.getpid()


def oom_score() -> int:
    """Return how readily the kernel ends the process that made the call."""
    return int(Path("/proc/self/oom_score_adj").read_text())


def spin(folder: str) -> None:
    """Hold the GIL for ever."""
    leave_effect(Path(folder), "spin", os.getpid())
    while True:
        pass


def grind(folder: str) -> None:
    """Stay in one C function that never looks at signals nor lets the GIL go."""
    leave_effect(Path(folder), "grind", os.getpid())
    re.match(r"(a+)+$", "a" * 64 + "b")


def hash_long(folder: str) -> None:
    """Stay in a C function that lets the GIL go."""
    leave_effect(Path(folder), "hash", os.getpid())
    hashlib.pbkdf2_hmac("sha256", b"x", b"salt", 2**31 - 1)


def grow_tree(folder: str) -> None:
    """Wait for a child that ignores SIGTERM and has a child of its own."""
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "me = [sys.executable, '-c', sys.orig_argv[2]]\n"
        "if len(sys.argv) == 1: subprocess.Popen([*me, 'leaf'])\n"
        "with open('tree', 'a') as file: file.write(f'{os.getpid()}\\n')\n"
        "time.sleep(3600)\n"
    )
    leave_effect(Path(folder), "tree", os.getpid())
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=False)


def cleans_up(folder: str) -> None:
    """Leave something behind when it is told to end."""
    leave_effect(Path(folder), "begun", os.getpid())
    try:
        signal.pause()
    finally:
        leave_effect(Path(folder), "cleaned")


def waits(folder: str, gate: str) -> int:
    """Wait until the test opens a gate; return the process that waited."""
    leave_effect(Path(folder), gate, os.getpid())
    while not (Path(folder) / f"gate-{gate}").exists():
        time.sleep(0.01)
    return os.getpid()


def forks(folder: str) -> int:
    """Return twice: a careless fork."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    leave_effect(Path(folder), "parent" if child else "child")
    return 1


def prints(text: str) -> None:
    """Say something on every way out."""
    sys.stdout.write(f"out {text}\nno end")
    sys.stderr.write(f"err {text}\n")
    logging.getLogger("customer").warning("logged %s", text)
    subprocess.run(["/bin/sh", "-c", f"echo child {text}"], check=True)


def fills(length: int) -> str:
    """Return a long text."""
    return "x" * length


def descriptors() -> list[str]:
    """Return what of environment, arguments and open files leads into the database."""
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    told = Path("/proc/self/environ").read_text() + Path("/proc/self/cmdline").read_text()
    words = [*told.split("\0"), *os.environ.values(), *os.environ]
    hints = [word for word in words if "postgres" in word or "DATABASE_URL" in word]
    return [*hints, *sorted(link for link in links if not link.startswith(("/", "pipe:")))]


@agent(name="caller")
async def caller(run: Run, task: Task) -> int:
    """Call one function that waits for its gate, twice."""
    await run.step("waits", waits, str(task.folder), "one", retries=1)
    return await run.step("waits", waits, str(task.folder), "two")


@agent(name="spinner")
async def spinner(run: Run, task: Task) -> None:
    """Never come back from a call that holds the GIL."""
    await run.step("spin", spin, str(task.folder))


@agent(name="grinder")
async def grinder(run: Run, task: Task) -> None:
    """Never come back from a call into C."""
    await run.step("grind", grind, str(task.folder))


@agent(name="impatient")
async def impatient(run: Run, task: Task) -> None:
    """Give a call that holds the GIL one try of half a second."""
    await run.step("spin", spin, str(task.folder), timeout=0.5, retries=0)


@agent(name="planter")
async def planter(run: Run, task: Task) -> None:
    """Wait for a tree of processes."""
    await run.step("tree", grow_tree, str(task.folder))


@agent(name="once")
async def once(run: Run, task: Task) -> int:
    """Call once what may not be repeated."""
    return await run.step(
        "waits", waits, str(task.folder), "one", side_effects="non_idempotent", retries=3
    )


@agent(name="looker")
async def looker(run: Run, task: Task) -> list[str]:
    """Look around in an executor."""
    return await run.step("look", descriptors)


def burn(seconds: float) -> int:
    """Count for a while, without ever letting the GIL go for long."""
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        count += 1
    return count


@agent(name="burner")
async def burner(run: Run, task: Task) -> int:
    """Burn CPU in an executor."""
    leave_effect(task.folder, run.id, "burns")
    return await run.step("burn", burn, float(task.steps))


@tool(side_effects="none")
def weigh(order_id: str, note: Note) -> Note:
    """Weigh an order."""
    if not order_id:
        raise PermanentError("There is no order.")
    return Note(text=f"{order_id} {note.text} {type(note).__name__}", on=note.on)


@tool(side_effects="idempotent", timeout=30)
def charge(run: Run, cents: int) -> str:
    """Charge a card."""
    return f"{run.call_id} {cents}"
