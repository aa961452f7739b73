"""Several coroutines at once, all of which end before the first error is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def settle(coros: Sequence[Coroutine[Any, Any, T]], *, limit: int | None = None) -> list[T]:
    """Return all results in the order of `coros`; raise the first error in that order.

    Nothing is cancelled when one fails: what its siblings have begun is finished and recorded.

    Parameters
    ----------
    limit
        How many may run at once.
    """
    if limit is not None and limit < 1:
        for coro in coros:
            coro.close()
        raise ValueError(f"limit must be at least 1, not {limit}")
    if limit is not None and limit < len(coros):
        gate = asyncio.Semaphore(limit)
        coros = [_behind(gate, coro) for coro in coros]
    settled = await asyncio.gather(*coros, return_exceptions=True)
    for outcome in settled:
        if isinstance(outcome, BaseException):
            raise outcome
    return settled  # type: ignore[return-value]  # all of them are results now


async def _behind(gate: asyncio.Semaphore, coro: Coroutine[Any, Any, T]) -> T:
    try:
        async with gate:
            return await coro
    finally:
        coro.close()  # one that was cancelled while it waited was never started
