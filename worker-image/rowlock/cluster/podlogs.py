"""What the Pods of a run's workers have logged about it.

A worker logs a JSON object a line, and each line about a run carries its number: those are shown.
What a Pod printed beside its log belongs to no run, and the log of a Pod that is gone is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.objects import Object, moment, run_shape, status_of
from rowlock.cluster.watching import finished, states
from rowlock.cluster.wishes import read
from rowlock.commands.shapes import LogLine
from rowlock.errors import NotInCluster, RowlockError

_CONTAINER: Final = "worker"
#: After the end of a run, for lines that are still on their way.
_LATE_SECONDS: Final = 2.0
_KNOWN: Final = {"timestamp", "level", "logger", "message", "run"}


def pods(item: Object) -> list[str]:
    """Return the Pods that have held the run, the first one first."""
    workers = [one.get("worker") for one in status_of(item).get("history") or ()]
    workers.append(status_of(item).get("worker"))
    return list(dict.fromkeys(str(one).partition("/")[0] for one in workers if one))


def log_line(text: str, *, number: int | None, pod: str) -> LogLine | None:
    """Return a line that is about the run; None for any other."""
    if number is None or f'"{number}"' not in text:
        return None
    try:
        said: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("run") != str(number):
        return None
    return LogLine(
        at=moment(said.get("timestamp")),
        level=str(said.get("level", "info")),
        source=str(said.get("logger", "")),
        message=str(said.get("message", "")),
        worker=pod,
        data={name: value for name, value in said.items() if name not in _KNOWN},
    )


async def recorded(kubectl: Kubectl, run: str) -> AsyncIterator[LogLine]:
    """Yield the lines of all Pods that have held the run, Pod after Pod.

    Raises
    ------
    UnknownRun, ClusterError
        It is not there, or we may not read the Pods' logs.
    """
    item = await read(kubectl, run)
    if not pods(item):
        yield LogLine(None, "info", "rowlock", "no worker has held this run yet")
    for pod in pods(item):
        async for line in _of_pod(kubectl, pod, run_shape(item).id, "logs", pod):
            yield line


async def follow(kubectl: Kubectl, run: str) -> AsyncIterator[LogLine]:
    """Yield the lines as they are written, of each Pod that takes the run, until it has ended.

    Raises
    ------
    UnknownRun, ClusterError
        It is not there, or we may not read the Pods' logs.
    """
    news: asyncio.Queue[LogLine | RowlockError | None] = asyncio.Queue()
    watching = asyncio.ensure_future(_watch(kubectl, run, news))
    try:
        while (said := await news.get()) is not None:
            if isinstance(said, RowlockError):
                raise said
            yield said
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(
    kubectl: Kubectl, run: str, news: asyncio.Queue[LogLine | RowlockError | None]
) -> None:
    """Put every line of every Pod into `news`, and None at the end."""
    readers: dict[str, asyncio.Future[None]] = {}
    heard = asyncio.Event()

    async def listen(pod: str, number: int | None) -> None:
        try:
            async for line in _of_pod(kubectl, pod, number, "logs", pod, "--follow"):
                news.put_nowait(line)
                heard.set()
        except RowlockError as error:
            news.put_nowait(error)

    try:
        async with contextlib.aclosing(states(kubectl, run)) as found:  # type: ignore[type-var]
            async for item in found:
                for pod in pods(item):
                    if pod not in readers:
                        readers[pod] = asyncio.ensure_future(listen(pod, run_shape(item).id))
                if finished(item):
                    break
        await _quiet(readers.values(), heard)
        news.put_nowait(None)
    except RowlockError as error:
        news.put_nowait(error)
    finally:
        for reader in readers.values():
            reader.cancel()
        await asyncio.gather(*readers.values(), return_exceptions=True)


async def _quiet(readers: Iterable[asyncio.Future[None]], heard: asyncio.Event) -> None:
    """Wait until no line has come for a while, or no Pod can say any more."""
    pending = set(readers)
    heard.set()
    while pending and heard.is_set():
        heard.clear()
        _, pending = await asyncio.wait(pending, timeout=_LATE_SECONDS)


async def _of_pod(
    kubectl: Kubectl, pod: str, number: int | None, *asked: str
) -> AsyncIterator[LogLine]:
    try:
        lines = kubectl.lines(*asked, f"--container={_CONTAINER}")
        async with contextlib.aclosing(lines) as found:  # type: ignore[type-var]
            async for text in found:
                line = log_line(text, number=number, pod=pod)
                if line is not None:
                    yield line
    except NotInCluster:
        gone = f"Pod {pod} is gone, and its log with it"
        yield LogLine(None, "warning", "rowlock", gone, worker=pod)
