"""How a run's stay ends, decided without I/O."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.agents.protocol import Result
from rowlock.engine import endings
from rowlock.errors import (
    ActiveDeadlineExceeded,
    AgentError,
    AgentLoadError,
    InvalidInput,
    InvalidOutput,
    NonDeterministic,
    RowRejected,
    StepFailed,
    TooLarge,
)
from rowlock.options import RunOptions
from rowlock.states import FailureReason, FinalStatus, Outcome

THREE = RunOptions(max_attempts=3, retry_backoff_seconds=10, max_retry_backoff_seconds=15)


@pytest.mark.parametrize(
    ("error", "reason", "retried"),
    [
        (AgentError("x"), FailureReason.AGENT_ERROR, True),
        (StepFailed("x"), FailureReason.AGENT_ERROR, True),
        (ValueError("x"), FailureReason.AGENT_ERROR, True),
        (SystemExit(1), FailureReason.AGENT_ERROR, True),
        (asyncio.CancelledError(), FailureReason.AGENT_ERROR, True),
        (InvalidInput("x"), FailureReason.INVALID_INPUT, False),
        (InvalidOutput("x"), FailureReason.INVALID_OUTPUT, False),
        (NonDeterministic("x"), FailureReason.NON_DETERMINISTIC, False),
        (AgentLoadError("x"), FailureReason.AGENT_LOAD_ERROR, False),
        (TooLarge("x"), FailureReason.TOO_LARGE, False),
        (ActiveDeadlineExceeded("x"), FailureReason.ACTIVE_DEADLINE_EXCEEDED, False),
    ],
)
def test_only_the_agents_own_errors_are_tried_again(
    error: BaseException, reason: FailureReason, retried: bool
) -> None:
    ending = endings.raised(error, attempt=1, options=THREE)
    assert (ending.status, ending.reason) == (FinalStatus.FAILED, reason)
    assert (ending.retry_in_seconds is not None) == retried


def test_the_last_attempt_is_not_followed_by_another() -> None:
    assert endings.raised(AgentError("x"), attempt=3, options=THREE).retry_in_seconds is None
    assert endings.raised(AgentError("x"), attempt=1, options=RunOptions()).retry_in_seconds is None


@pytest.mark.parametrize(("attempt", "wait"), [(1, 10), (2, 15), (5000, 15)])
def test_waits_between_attempts_double_up_to_their_bound(attempt: int, wait: float) -> None:
    assert wait <= endings.retry_seconds(attempt, THREE) <= wait * 1.1


def test_a_message_names_all_causes_outermost_first() -> None:
    error = ValueError("no order")
    error.__cause__ = KeyError("order")
    assert endings.chain(error) == "ValueError: no order <- KeyError: 'order'"


def test_a_run_error_has_said_its_causes_itself() -> None:
    error = AgentError("said already")
    error.__cause__ = ValueError("said already")
    assert endings.chain(error) == "said already"


def test_causes_that_go_round_in_a_circle_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert len(endings.chain(first)) < 1000


class Mute(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def test_an_error_without_a_readable_message_still_ends_its_run() -> None:
    assert endings.chain(Mute()) == "Mute: (its message cannot be read)"


@pytest.mark.parametrize(
    ("text", "stored"), [("a\0b", "a\ufffdb"), ("a\ud800b", "a?b"), ("x" * 5000, "x" * 3999 + "…")]
)
def test_a_message_is_made_storable(text: str, stored: str) -> None:
    assert endings.readable(text) == stored


def test_a_result_ends_the_run_well() -> None:
    ending = endings.returned(Result(b"1"), max_result_bytes=10)
    assert ending == endings.End(FinalStatus.SUCCEEDED, outcome=Outcome.OK)


def test_a_degraded_result_says_why() -> None:
    ending = endings.returned(Result(b"1", degraded=("no index", "old data")), max_result_bytes=10)
    assert (ending.status, ending.outcome) == (FinalStatus.SUCCEEDED, Outcome.DEGRADED)
    assert ending.message == "no index; old data"


def test_a_result_over_its_cap_fails_the_run() -> None:
    ending = endings.returned(Result(b"x" * 11), max_result_bytes=10)
    assert (ending.reason, ending.message) == (
        FailureReason.TOO_LARGE,
        "the result has 11 bytes, at most 10 are stored",
    )


def test_a_step_that_postgresql_calls_too_large_fails_as_too_large() -> None:
    assert endings.unstorable("k", RowRejected(sqlstate="54000")).reason == "TooLarge"
    assert endings.unstorable("k", RowRejected(sqlstate="22021")).reason == "AgentError"
