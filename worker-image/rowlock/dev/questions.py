"""Tool calls that wait for a person, asked in the terminal."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import msgspec

from rowlock.client.client import Client
from rowlock.client.wishes import PendingApproval
from rowlock.commands.screen import Screen
from rowlock.errors import WishRefused
from rowlock.store.types import RunId

_NOBODY = "nobody is at the terminal to ask"


@dataclass(frozen=True, slots=True)
class Said:
    """What a person said; `reason` is for the model."""

    yes: bool
    reason: str = ""


def understood(line: str | None) -> Said:
    """Return what a line means: a yes, a no, or a no with its reason; None is the end of input."""
    if line is None:
        return Said(yes=False, reason=_NOBODY)
    words = line.strip()
    if words.lower() in ("y", "yes"):
        return Said(yes=True)
    no = words.lower() in ("", "n", "no")
    return Said(yes=False, reason="denied in the terminal" if no else words)


class Lines:
    """Lines of a file descriptor, without a thread that an interrupt would have to wait for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read = b""
        self._ended = False

    async def next(self) -> str | None:
        """Return the next line; None at the end."""
        while b"\n" not in self._read and not self._ended:
            await self._readable()
            more = os.read(self._fd, 4096)
            self._read += more
            self._ended = not more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace") if line or not self._ended else None

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except (OSError, ValueError):  # a plain file or nothing at all: reading never waits
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)


class Asker:
    """Asks what a run wants to know, one question after the other."""

    def __init__(self, client: Client, screen: Screen, lines: Lines) -> None:
        self._client = client
        self._screen = screen
        self._lines = lines

    async def ask(self, run_id: RunId) -> None:
        """Ask and answer all open questions of a run."""
        for question in await self._client.approvals(run_id):
            self._show(question)
            said = understood(await self._lines.next())
            try:
                await self._answer(question, said)
            except WishRefused as error:
                self._screen.warn(str(error))

    def _show(self, question: PendingApproval) -> None:
        arguments = msgspec.json.encode(question.arguments).decode()
        note = f" ({question.note})" if question.note else ""
        self._screen.warn(f"? {question.tool} {arguments}{note}")
        self._screen.warn("  allow it? y, n, or a reason to deny it:")

    async def _answer(self, question: PendingApproval, said: Said) -> None:
        if said.yes:
            await self._client.approve(question)
            return
        await self._client.deny(question, reason=said.reason)
        self._screen.note(f"denied: {said.reason}")
