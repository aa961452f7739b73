"""Says the text of many scripted turns at a model's pace, on one tick for all of them.

A turn waits once, for all of its time; its text comes out piece by piece meanwhile.
So a thousand turns that are being spoken wake up one task ten times a second,
and not a thousand tasks: the load is the agent's, not the script's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from rowlock.clock import Clock

TICK_SECONDS = 0.1


class _Voice:
    """One text on its way out."""

    __slots__ = ("_began", "_emit", "_seconds", "_text", "_uttered", "failure")

    def __init__(
        self, text: str, emit: Callable[[str], None], *, began: float, seconds: float
    ) -> None:
        self._text = text
        self._emit = emit
        self._began = began
        self._seconds = seconds
        self._uttered = 0
        #: What `emit` raised; nothing more is said then.
        self.failure: Exception | None = None

    def say(self, now: float) -> None:
        """Emit what is due at `now` and was not said yet."""
        elapsed = now - self._began
        share = min(1.0, elapsed / self._seconds) if self._seconds > 0 else 1.0
        if share > 0:
            self._say_up_to(int(len(self._text) * share))

    def finish(self) -> None:
        """Emit what is left."""
        self._say_up_to(len(self._text))

    def _say_up_to(self, end: int) -> None:
        piece = self._text[self._uttered : end]
        if not piece or self.failure is not None:
            return
        self._uttered = end
        try:
            self._emit(piece)
        except Exception as error:  # raised in the turn that it belongs to, not in the tick
            self.failure = error


class Voices:
    """All texts that one model is saying."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._speaking: set[_Voice] = set()
        self._ticking: asyncio.Task[None] | None = None

    async def speak(
        self, text: str, emit: Callable[[str], None], *, silent_seconds: float, seconds: float
    ) -> None:
        """Say nothing for `silent_seconds`, then `text` evenly over `seconds`."""
        began = self._clock.monotonic() + silent_seconds
        voice = _Voice(text, emit, began=began, seconds=seconds)
        if text:
            self._speaking.add(voice)
            self._tick_on()
        try:
            await self._clock.sleep(silent_seconds + seconds)
        finally:
            self._speaking.discard(voice)
        voice.finish()
        if voice.failure is not None:
            raise voice.failure

    def tick(self) -> None:
        """Emit what is due now."""
        now = self._clock.monotonic()
        for voice in list(self._speaking):
            voice.say(now)

    def _tick_on(self) -> None:
        if self._ticking is None or self._ticking.done():
            # In a context of its own: the tick belongs to no run.
            context = contextvars.Context()
            self._ticking = asyncio.get_running_loop().create_task(self._tick(), context=context)

    async def _tick(self) -> None:
        while self._speaking:
            await self._clock.sleep(TICK_SECONDS)
            self.tick()
