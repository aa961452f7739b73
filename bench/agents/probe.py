"""What a loop process says of itself once a second: how late it wakes up, how long it collects.

It runs beside the agents of a load, on the same loop, and sends JSON lines to the driver.
With BENCH_PROFILE it also samples where the process spends its CPU time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

_PERIOD_SECONDS = 0.01
_REPORT_SECONDS = 1.0
_SAMPLE_SECONDS = 0.005

_opening: asyncio.Task[Probe] | None = None


async def probe() -> Probe:
    """Return the probe of this process; the first who asks starts it."""
    global _opening  # noqa: PLW0603
    if _opening is None:
        _opening = asyncio.create_task(Probe.start())
    return await asyncio.shield(_opening)


class Probe:
    """Watches the running loop and the collector.

    Parameters
    ----------
    transport
        The way to the driver.
    """

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self.write = transport.write
        self.unread = transport.get_write_buffer_size
        self._loop = asyncio.get_running_loop()
        self._lags: list[float] = []
        self._pauses: list[float] = []
        self._collecting = 0.0
        self._reported = self._due = self._loop.time()

    @classmethod
    async def start(cls) -> Probe:
        """Connect, and watch from now on."""
        loop = asyncio.get_running_loop()
        path = os.environ["BENCH_VIEWER"]
        transport, _ = await loop.create_unix_connection(asyncio.Protocol, path)
        made = cls(transport)
        gc.callbacks.append(made.collected)
        made.tick()
        if folder := os.environ.get("BENCH_PROFILE"):
            Profile(Path(folder) / f"{os.getpid()}.json").start()
        return made

    def tick(self) -> None:
        """Note how late this comes, and report when it is time."""
        now = self._loop.time()
        self._lags.append(now - self._due)
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report()
        self._due = self._loop.time() + _PERIOD_SECONDS
        self._loop.call_at(self._due, self.tick)

    def collected(self, phase: str, _info: dict[str, int]) -> None:
        """Note how long a collection takes."""
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._pauses.append(time.perf_counter() - self._collecting)

    def _report(self) -> None:
        said = {"lags": self._lags, "pauses": self._pauses, "pid": os.getpid()}
        self.write(json.dumps({"type": "Probe", **said}).encode() + b"\n")
        self._lags, self._pauses = [], []


class Profile:
    """Samples of the stack at equal steps of the process's CPU time, kept in a file.

    Parameters
    ----------
    file
        Written anew now and then: [function, samples], innermost and anywhere in the stack.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._leaves: Counter[str] = Counter()
        self._within: Counter[str] = Counter()
        self._samples = 0

    def start(self) -> None:
        """Sample from now on."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None:
            code = frame.f_code
            names.append(f"{Path(code.co_filename).name}:{code.co_qualname}")
            frame = frame.f_back
        self._leaves[names[0]] += 1
        self._within.update(set(names))
        self._samples += 1
        if self._samples % 500 == 0:
            self._file.write_text(json.dumps(self._shown()))

    def _shown(self) -> dict[str, Any]:
        return {
            "samples": self._samples,
            "innermost": self._leaves.most_common(60),
            "anywhere": self._within.most_common(120),
        }
