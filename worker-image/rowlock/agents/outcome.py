"""How an agent's run ends: its result as JSON, or one run error with its causes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rowlock.agents.codec import PlainCodec, TypedCodec
from rowlock.agents.problems import Misfit, as_run_error, describe_error
from rowlock.errors import AgentError, InvalidOutput, RunError


@contextmanager
def outcome_errors() -> Iterator[None]:
    """Turn whatever agent code raises into the run error that it means."""
    try:
        yield
    except RunError:
        raise
    except (Exception, SystemExit) as error:
        meant = as_run_error(error)
        if meant is not None:
            raise meant from error
        raise AgentError(describe_error(error)) from error


def output_body(codec: PlainCodec[Any] | TypedCodec[Any], value: Any, *, agent: str) -> bytes:
    """Return an agent's result as JSON.

    Raises
    ------
    InvalidOutput
        It is not what the return annotation promises.
    """
    try:
        return codec.accept(value)[0]
    except Misfit as error:
        raise InvalidOutput(
            f"Agent {agent!r} returned something else than it declares: {error}"
        ) from error


def read_result(codec: PlainCodec[Any] | TypedCodec[Any], body: bytes, *, agent: str) -> Any:
    """Return an agent's result as its declared type.

    Raises
    ------
    InvalidOutput
        The code that stored it declared another type.
    """
    try:
        return codec.read(body)
    except Misfit as error:
        raise InvalidOutput(
            f"The stored result of agent {agent!r} is none that it declares now: {error}"
        ) from error
