"""How a run's stay in this process ends: decided here, from facts alone.

If the task was asked to end, that decides, whatever the agent made of it;
else what it returned or raised.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from rowlock.agents.protocol import Result
from rowlock.engine.waits import Wait
from rowlock.errors import AgentError, RowRejected, RunError
from rowlock.options import RunOptions
from rowlock.states import FailureReason, FinalStatus, Outcome
from rowlock.store.types import Misfit

_MAX_MESSAGE = 4000
_MAX_CAUSES = 8


@dataclass(frozen=True, slots=True)
class End:
    """The attempt ends.

    Parameters
    ----------
    retry_in_seconds
        Another attempt follows after so long; None ends the run.
    """

    status: FinalStatus
    reason: str | None = None
    message: str | None = None
    outcome: str | None = None
    retry_in_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """The run goes back to the queue as it is.

    Parameters
    ----------
    misfit
        Only another build can go on with it.
    """

    misfit: Misfit | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """The run waits without a worker.

    Parameters
    ----------
    waits
        What its branches wait for; none if it leaves only because somebody suspends it.
    """

    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """Somebody else decides about the run: write nothing."""


Ending = End | HandOver | Park | Nothing


def cancelled(why: str | None) -> End:
    """Return the ending of a run that somebody asked to cancel."""
    return End(FinalStatus.CANCELLED, FailureReason.CANCELLED, readable(why or "cancelled"))


def overdue(options: RunOptions) -> End:
    """Return the ending of a run that was active for too long."""
    limit = options.active_deadline_seconds
    text = f"the run was active for more than its activeDeadlineSeconds ({limit:g})"
    return End(FinalStatus.FAILED, FailureReason.ACTIVE_DEADLINE_EXCEEDED, text)


def unstorable(key: str | None, error: RowRejected) -> End:
    """Return the ending of a run whose step cannot be stored: it cannot go on without."""
    too_large = error.sqlstate.startswith("54")
    reason = FailureReason.TOO_LARGE if too_large else FailureReason.AGENT_ERROR
    text = f"step {key!r} can never be stored (SQLSTATE {error.sqlstate}): {error}"
    return End(FinalStatus.FAILED, reason, readable(text))


def missing() -> End:
    """Return the ending of a run whose input is gone from the database."""
    return End(FinalStatus.FAILED, FailureReason.ROW_MISSING, "the run's input is gone")


def bad_options(error: Exception) -> End:
    """Return the ending of a run whose stored limits make no sense."""
    return End(FinalStatus.FAILED, FailureReason.INVALID_SPEC, readable(f"options: {error}"))


def returned(result: Result, *, max_result_bytes: int) -> End:
    """Return the ending of an agent that returned."""
    if len(result.body) > max_result_bytes:
        text = f"the result has {len(result.body)} bytes, at most {max_result_bytes} are stored"
        return End(FinalStatus.FAILED, FailureReason.TOO_LARGE, text)
    if result.degraded:
        text = readable("; ".join(result.degraded))
        return End(FinalStatus.SUCCEEDED, message=text, outcome=Outcome.DEGRADED)
    return End(FinalStatus.SUCCEEDED, outcome=Outcome.OK)


def raised(error: BaseException, *, attempt: int, options: RunOptions) -> End:
    """Return the ending of an agent that raised.

    Its own errors are tried again while attempts are left.
    """
    reason = error.reason if isinstance(error, RunError) else FailureReason.AGENT_ERROR
    retry = None
    if _is_agents_own(error) and attempt < options.max_attempts:
        retry = retry_seconds(attempt, options)
    return End(FinalStatus.FAILED, reason, chain(error), retry_in_seconds=retry)


def _is_agents_own(error: BaseException) -> bool:
    return isinstance(error, AgentError) or not isinstance(error, RunError)


def retry_seconds(attempt: int, options: RunOptions) -> float:
    """Return the wait after `attempt`: doubling, bounded, up to 10 % longer to spread herds."""
    wait = options.retry_backoff_seconds * 2.0 ** min(attempt - 1, 30)
    return min(wait, options.max_retry_backoff_seconds) * random.uniform(1, 1.1)  # noqa: S311


def chain(error: BaseException) -> str:
    """Return what `error` and its causes say, outermost first; a run error has said it all."""
    links: list[str] = []
    at: BaseException | None = error
    while at is not None and len(links) < _MAX_CAUSES:
        links.append(_describe(at))
        if isinstance(at, RunError):
            break
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return readable(" <- ".join(links))


def _describe(error: BaseException) -> str:
    if isinstance(error, RunError):
        return str(error)
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: the agent's own code cancelled its task"
    try:
        text = str(error)
    except Exception:  # an author's __str__ may raise, and must not take the run's end with it
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def readable(text: str) -> str:
    """Return `text` as PostgreSQL can store it: no NUL, no lone surrogate, not too long."""
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
