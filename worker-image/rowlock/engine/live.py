"""Live text on its way from a watched run to whoever looks: never stored, dropped when it is late.

Pieces are joined for a moment, so that a model that says a token at a time costs few lines;
what is said after a silence goes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rowlock.engine.messages import Live, line

_JOIN_SECONDS: Final = 0.03
#: Characters that wait for the next line; older ones make room for newer ones.
_MOST_WAITING: Final = 64 * 1024
#: A reader that lets so many bytes stand does not read: what is said meanwhile is lost.
_MOST_UNREAD: Final = 256 * 1024


class LiveText:
    """Sends what runs say.

    Parameters
    ----------
    write
        Takes a line for the supervisor.
    unread
        Returns how many bytes it has not taken yet.
    """

    def __init__(self, write: Callable[[bytes], None], unread: Callable[[], int]) -> None:
        self._write = write
        self._unread = unread
        self._pieces: deque[Live] = deque()
        self._waiting = 0
        self._due: asyncio.TimerHandle | None = None
        self._sent_at = 0.0

    def say(self, run: int, step: str, text: str) -> None:
        """Send `text` soon."""
        if not text:
            return
        self._pieces.append(Live(run, step, text[-_MOST_WAITING:]))
        self._waiting += len(self._pieces[-1].text)
        while self._waiting > _MOST_WAITING:
            self._waiting -= len(self._pieces.popleft().text)
        if self._due is None:
            loop = asyncio.get_running_loop()
            quiet = loop.time() - self._sent_at
            self._due = loop.call_later(max(0.0, _JOIN_SECONDS - quiet), self.flush)

    def flush(self) -> None:
        """Send what waits, or drop it where nobody reads."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
            self._sent_at = asyncio.get_running_loop().time()
        pieces, self._pieces, self._waiting = self._pieces, deque(), 0
        if self._unread() > _MOST_UNREAD:
            return
        for piece in joined(pieces):
            self._write(line(piece))


def joined(pieces: deque[Live]) -> list[Live]:
    """Return pieces that follow each other in one step of one run as one."""
    found: list[Live] = []
    texts: list[str] = []
    for piece in pieces:
        if not found or (found[-1].run, found[-1].step) != (piece.run, piece.step):
            if found:
                found[-1] = Live(found[-1].run, found[-1].step, "".join(texts))
            found.append(piece)
            texts = []
        texts.append(piece.text)
    if found:
        found[-1] = Live(found[-1].run, found[-1].step, "".join(texts))
    return found
