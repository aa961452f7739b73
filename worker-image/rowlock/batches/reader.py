"""The agent that reads a batch's items from a URI: each chunk is a step that records how far it is.

A worker that dies is followed by another one at the last offset. What it reads again it adds
again, which changes nothing: an item is told by its id and its line.
The batch starts when the last line was read; a wrong line refuses all of it before that.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import BaseModel

from rowlock.agents.function import agent
from rowlock.agents.run import Run
from rowlock.batches.chunks import Chunk, next_chunk
from rowlock.batches.lines import BrokenItem, broken, doubled, read_line
from rowlock.batches.source import opened
from rowlock.batches.way import into_the_store
from rowlock.settings import BatchSettings, load
from rowlock.states import BatchStop
from rowlock.store import batches, bodies
from rowlock.store.batches import BatchId, Reader
from rowlock.store.types import PoolId

#: No name of an Agent: those are DNS labels.
_AGENT: Final = "rowlock/read-items"
_ENTRYPOINT: Final = "rowlock.batches.reader:read_items"
#: Of the agent's revision; a new one is needed where the steps change.
_DIGEST: Final = "read-items-1"
#: A file that cannot be reached for a quarter of an hour.
_RETRIES: Final = 20


class Task(BaseModel):
    """What to read."""

    batch: int
    uri: str


class Position(BaseModel):
    """How far a reader is: so many bytes and lines are read.

    Parameters
    ----------
    version
        Of the file when reading began.
    ended
        There is nothing more, or nobody wants it.
    """

    offset: int = 0
    lines: int = 0
    version: str | None = None
    ended: bool = False


@agent(name="read-items")
async def read_items(run: Run, task: Task) -> Position:
    """Read all items, and seal the batch."""
    at = Position()
    while not at.ended:
        at = await run.step(
            f"after line {at.lines}", _read_on, task, at, key=at.offset, retries=_RETRIES
        )
        run.progress(f"{at.lines} lines read")
    return at


def reader(namespace: str, pool: PoolId, options: bytes) -> Reader:
    """Return what a batch needs to have its items read."""
    return Reader(namespace, _AGENT, _ENTRYPOINT, _DIGEST, pool, options)


def task(batch: BatchId, uri: str) -> bytes:
    """Return the input of the run that reads a batch."""
    return bodies.encode(Task(batch=batch, uri=uri).model_dump())


async def _read_on(task: Task, at: Position) -> Position:
    folder = load(BatchSettings).batch_folder
    try:
        version, chunk = await asyncio.to_thread(_fetch, task.uri, at, folder)
        items = [item for line in chunk.lines if (item := read_line(*line)) is not None]
    except BrokenItem as error:
        return await _refuse(task, at, error)
    async with into_the_store() as conn:
        added = await batches.add_items(conn, BatchId(task.batch), items)
        if added.open and not added.doubled and chunk.last:
            await batches.seal(conn, BatchId(task.batch))
    if added.doubled:
        return await _refuse(task, at, doubled(*added.doubled))
    return Position(
        offset=at.offset + chunk.length,
        lines=at.lines + len(chunk.lines),
        version=version,
        ended=chunk.last or not added.open,
    )


def _fetch(uri: str, at: Position, folder: str) -> tuple[str, Chunk]:
    with opened(uri, at.offset, folder=folder) as found:
        if at.version is not None and found.version != at.version:
            raise broken(
                f"line {at.lines + 1}", "the file changed while it was read; apply the batch anew"
            )
        return found.version, next_chunk(found.blocks, at.lines + 1)


async def _refuse(task: Task, at: Position, error: BrokenItem) -> Position:
    async with into_the_store() as conn:
        await batches.stop(conn, BatchId(task.batch), BatchStop.INVALID_ITEMS, str(error))
    return at.model_copy(update={"ended": True})
