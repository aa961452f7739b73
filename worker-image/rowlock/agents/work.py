"""One step, described: what it is called, what to call, how to try and how to read its result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rowlock.agents.blocking import Crossing
from rowlock.agents.codec import Codec
from rowlock.agents.protocol import Question
from rowlock.agents.retry import Policy

T = TypeVar("T")

_NONE: Mapping[str, Any] = {}


@dataclass(slots=True)
class Work(Generic[T]):
    """One step, ready to be asked for.

    Parameters
    ----------
    key, args_digest
        Its identity, and what its arguments were.
    fn, args, is_async
        What to call here; a plain `def` runs in a thread.
    crossing
        Returns how to call it in an executor instead; None: it is called here.
    question
        What a person must answer before it may be done.
    """

    key: str
    args_digest: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    codec: Codec[T]
    policy: Policy
    is_async: bool = True
    crossing: Callable[[], Crossing] | None = None
    question: Question | None = None

    async def call(self) -> Any:
        """Call the function once, within the policy's timeout.

        Raises
        ------
        TimeoutError
            It did not return in time; a thread cannot be stopped and runs on.
        """
        seconds = self.policy.timeout
        if seconds is None:
            return await call_function(self.fn, self.args, is_async=self.is_async)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await call_function(self.fn, self.args, is_async=self.is_async)
        except TimeoutError:
            if not limit.expired():
                raise
            # What asyncio raised says only that it cancelled the call.
            raise TimeoutError(f"no result within its timeout of {seconds:g} s") from None


async def call_function(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] = _NONE,
    *,
    is_async: bool,
) -> Any:
    """Call `fn` on the loop, or in a thread when it is a plain `def`."""
    if is_async:
        return await fn(*args, **kwargs)
    result = await asyncio.to_thread(fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result
