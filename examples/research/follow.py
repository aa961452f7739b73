"""Start a run of the research agent, or look at one, and follow it to its end.

    python -m research.follow                            40 pages of 2.5 s
    python -m research.follow --pages 40 --seconds 0.1   the same, quicker
    python -m research.follow --run 253181               one that was started before

Exit codes: 0 the run succeeded, 1 it did not, 130 after Ctrl-C. ROWLOCK_DATABASE_URL says where.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from research.agent import Summary, Task, research
from rowlock import Client, RowlockError, RunEnded, RunEvent, RunHandle


class Story:
    """What has happened to a run, told as it comes."""

    def __init__(self) -> None:
        #: Pages by the number of the attempt that read them.
        self._read: Counter[int] = Counter()
        self._attempt = 0

    def tell(self, event: RunEvent) -> Iterator[str]:
        """Yield the lines that an event is worth."""
        if event.kind not in ("step_done", "step_failed"):
            return
        if event.attempt != self._attempt:
            self._attempt = event.attempt
            yield f"attempt {event.attempt}: {self._reused()} pages are there already"
        if event.kind == "step_done":
            self._read[event.attempt] += 1
            took = (event.duration_ms or 0) / 1000
            yield f"  {event.step} in {took:.1f} s"
        else:
            yield f"  {event.step} failed after {event.tries} tries"

    def end(self) -> str:
        """Return the count of the last attempt."""
        return f"{self._reused()} pages reused, {self._read[self._attempt]} read"

    def _reused(self) -> int:
        return sum(count for attempt, count in self._read.items() if attempt < self._attempt)


async def follow(run: RunHandle[Any]) -> int:
    """Tell what happens to `run` until it has ended; return the exit code."""
    story = Story()
    async for event in run.events():
        for line in story.tell(event):
            print(line, flush=True)
    try:
        # A handle made from a number knows no types: its result is plain data.
        result = Summary.model_validate(await run.wait())
    except RunEnded as error:
        print(f"run {run.id} failed: {error.reason}: {error.detail}")
        print(f"{story.end()}; when the cause is mended: rowlock retry {run.id}")
        return 1
    print(f"run {run.id} succeeded: {story.end()}")
    print(result.text)
    return 0


async def main(arguments: argparse.Namespace) -> int:
    """Start or find the run, and follow it."""
    async with Client() as client:
        if arguments.run is not None:
            return await follow(client.run(arguments.run))
        task = Task(pages=arguments.pages, seconds=arguments.seconds)
        run = await client.start(research, task)
        print(f"run {run.id} is queued", flush=True)
        return await follow(run)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        "python -m research.follow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=2.5, help="that a page takes")
    parser.add_argument("--run", type=int, help="number of a run that was started before")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(parse())))
    except RowlockError as problem:
        sys.exit(f"research: {problem}")
    except KeyboardInterrupt:
        print("research: the run goes on; --run NUMBER finds it again", file=sys.stderr)
        sys.exit(130)
