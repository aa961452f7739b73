"""Ids of a run's trace and spans, and the way to have what a step calls join that trace.

The ids follow from the run alone, so that every worker and the operator know them without a word
to each other: a span of a worker that was killed is exported by somebody else under the same id.
Needs OpenTelemetry's API (`rowlock[traces]`) only where steps are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any

from rowlock.errors import ConfigurationError

#: Enters the span of a step, given the run, the step's key, the call's number and the attempt.
Join = Callable[[int, str, int, int], AbstractContextManager[Any]]

_LOW_HALF = 2**64 - 1


def trace_id(run_id: int) -> int:
    """Return the id of the run's trace, 128 bits."""
    return _digest(16, "run", run_id)


def run_span(run_id: int) -> int:
    """Return the id of the span from apply to finish, 64 bits; so are all below."""
    return _digest(8, "run", run_id)


def queue_span(run_id: int) -> int:
    """Return the id of the wait for the first worker."""
    return _digest(8, "queue", run_id)


def lease_span(run_id: int, epoch: int) -> int:
    """Return the id of one worker's time with the run."""
    return _digest(8, "lease", run_id, epoch)


def step_span(run_id: int, key: str, number: int, attempt: int) -> int:
    """Return the id of one call of a step in one attempt, over all its tries."""
    return _digest(8, "step", run_id, key, number, attempt)


def interrupted_span(step: int, epoch: int) -> int:
    """Return the id of what a lease that ended had done of the step with id `step`."""
    return _digest(8, "interrupted", step, epoch)


def is_kept(trace_id: int, ratio: float) -> bool:
    """Tell whether a trace is one of the share `ratio` that is sent.

    As OpenTelemetry's `TraceIdRatioBased` decides, so that everybody comes to the same answer.
    """
    return trace_id & _LOW_HALF < round(ratio * (_LOW_HALF + 1))


class Joining:
    """How this process lets what a step calls join its run's trace; by default not at all."""

    join: Join | None = None


def join_steps(*, ratio: float = 1.0) -> Join:
    """Return what makes spans of instrumented libraries inside a step its children.

    Parameters
    ----------
    ratio
        Share of the traces that are sent.

    Raises
    ------
    ConfigurationError
        OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace  # noqa: PLC0415  an extra
    except ImportError:
        raise ConfigurationError(
            "ROWLOCK_TRACES needs OpenTelemetry: pip install 'rowlock[traces]'"
        ) from None

    def join(run_id: int, key: str, number: int, attempt: int) -> AbstractContextManager[Any]:
        span = step_span(run_id, key, number, attempt)
        of_run = trace_id(run_id)
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if is_kept(of_run, ratio) else 0)
        here = trace.SpanContext(of_run, span, is_remote=True, trace_flags=flags)
        return trace.use_span(
            trace.NonRecordingSpan(here), record_exception=False, set_status_on_exception=False
        )

    return join


def _digest(size: int, *parts: object) -> int:
    # Zero is no valid id; nobody meets it in 2**64 runs.
    text = "\0".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest()) or 1
