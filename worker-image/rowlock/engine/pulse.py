"""The loop's pulse: it ticks for the supervisor and measures how late it ticks.

Lag is the one honest sign of saturation: a busy core is fine, a loop that wakes up late is not.
A loop that was blocked missed ticks; each missed tick counts as a sample,
else one long block would look better than many short ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from rowlock.engine.board import LAG_US, TICK, Board

PERIOD = 0.02
_WINDOW = 250
_RECENT = 5
_PUBLISH_EVERY = 10


class Pulse:
    """Ticks every 20 ms on the running loop.

    Parameters
    ----------
    on_tick
        Called at each tick; must be quick.
    """

    def __init__(self, board: Board, on_tick: Callable[[], None] = lambda: None) -> None:
        self._cells = board.cells
        self._on_tick = on_tick
        self._lags: deque[float] = deque([0.0] * _WINDOW, maxlen=_WINDOW)
        self._due = 0.0
        self._count = 0
        self._handle: asyncio.TimerHandle | None = None
        #: p99 of the last 5 s, in seconds: for people.
        self.lag = 0.0

    def start(self) -> None:
        """Tick from now on."""
        self._due = time.monotonic()
        self._tick()

    def stop(self) -> None:
        """Tick no more."""
        if self._handle:
            self._handle.cancel()

    def recent(self) -> float:
        """Return the worst lag of the last tenth of a second: for decisions.

        A longer memory would keep a worker idle for seconds after one hiccup of the machine.
        """
        return max(islice(reversed(self._lags), _RECENT))

    def _tick(self) -> None:
        now = time.monotonic()
        self._note(now - self._due)
        self._cells[TICK] += 1
        self._count += 1
        if self._count % _PUBLISH_EVERY == 0:
            self.lag = sorted(self._lags)[int(_WINDOW * 0.99)]
            self._cells[LAG_US] = int(self.lag * 1e6)
        self._on_tick()
        self._due = now + PERIOD
        self._handle = asyncio.get_running_loop().call_later(PERIOD, self._tick)

    def _note(self, lag: float) -> None:
        lag = min(lag, PERIOD * _WINDOW)
        missed = int(lag / PERIOD)
        self._lags.extend(PERIOD * tick for tick in range(1, missed))
        self._lags.append(lag)
