"""From how a run ended to what its caller gets: a value, or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rowlock.agents.problems import Misfit
from rowlock.errors import InvalidOutput, RunCancelled, RunEnded, RunFailed
from rowlock.states import FinalStatus
from rowlock.store.bodies import unpack
from rowlock.store.reading import RunEnd

R = TypeVar("R")


def check_succeeded(end: RunEnd) -> None:
    """Return if the run has a result.

    Raises
    ------
    RunFailed, RunCancelled
        It has none.
    """
    if end.status is FinalStatus.SUCCEEDED:
        return
    detail, reason = end.message or "", end.reason or ""
    if end.status is FinalStatus.CANCELLED:
        text = f"run {end.run_id} was {detail or 'cancelled'}"
        raise _ended(RunCancelled, text, end, reason, detail)
    raise _ended(RunFailed, f"run {end.run_id} failed: {reason}: {detail}", end, reason, detail)


def value(end: RunEnd, body: bytes | None, read: Callable[[bytes], R]) -> R:
    """Return the result of a run.

    Raises
    ------
    InvalidOutput
        It was written by code with another type.
    """
    try:
        return read(unpack(body or b"null"))
    except (InvalidOutput, Misfit) as error:
        problem = error.__cause__ if isinstance(error.__cause__, Misfit) else error
        raise InvalidOutput(
            f"the result of run {end.run_id} was written by other code: {problem}"
        ) from error


def _ended(kind: type[RunEnded], text: str, end: RunEnd, reason: str, detail: str) -> RunEnded:
    return kind(text, run_id=end.run_id, reason=reason, detail=detail)
