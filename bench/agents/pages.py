"""Pages read one after the other, a step each; one page fails as long as its provider is out."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from pydantic import BaseModel

from rowlock import PermanentError, Run, agent

_folder = Path(os.environ["BENCH_LEDGER"]).parent
_ledger = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class Pages(BaseModel):
    """How many pages, how long one takes, and which one fails (0 for none)."""

    pages: int
    seconds: float
    failing: int = 0


@agent(name="pages")
async def pages(run: Run, task: Pages) -> int:
    """Read all pages."""
    _note(run, "began")
    for page in range(1, task.pages + 1):
        await run.step("read", read, page, task.seconds, page == task.failing, key=page)
    return task.pages


async def read(run: Run, page: int, seconds: float, fails: bool) -> int:
    """Read a page, which may be that of the provider that is out."""
    _note(run, str(page))
    if fails and not (_folder / "provider").exists():
        raise PermanentError("the provider is out")
    await asyncio.sleep(seconds)
    return page


def _note(run: Run, what: str) -> None:
    os.write(_ledger, f"{run.id} {run.attempt} {what} {time.time()}\n".encode())
