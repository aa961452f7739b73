"""What follows a failed try is decided by tables, without doing anything."""

from __future__ import annotations

import pytest

from rowlock.agents.problems import Misfit
from rowlock.agents.record import OutcomeUnknown
from rowlock.agents.retry import Next, Policy, SideEffects, after_failure, wait_seconds
from rowlock.errors import NotStarted, PermanentError, StepFailed


class Busy(Exception):
    """What a provider raises when it has had enough."""

    def __init__(self, retry_after: object) -> None:
        super().__init__("429")
        self.retry_after = retry_after


@pytest.mark.parametrize(
    ("error", "repeatable", "once"),
    [
        (PermanentError("no"), Next.FAIL, Next.FAIL),
        (Misfit("no"), Next.FAIL, Next.UNKNOWN),
        (StepFailed("no"), Next.FAIL, Next.UNKNOWN),
        (OutcomeUnknown("no"), Next.FAIL, Next.UNKNOWN),
        (NotStarted("no"), Next.RETRY, Next.RETRY),
        (ConnectionError("no"), Next.RETRY, Next.UNKNOWN),
        (TimeoutError("no"), Next.RETRY, Next.UNKNOWN),
        (ValueError("no"), Next.RETRY, Next.UNKNOWN),
        (SystemExit(1), Next.FAIL, Next.UNKNOWN),
    ],
)
def test_after_failure(error: BaseException, repeatable: Next, once: Next) -> None:
    """Only what may be repeated is repeated."""
    classes: tuple[SideEffects, ...] = ("none", "idempotent")

    for side_effects in classes:
        assert after_failure(error, policy=Policy(side_effects), tries=1) is repeatable
    assert after_failure(error, policy=Policy("non_idempotent"), tries=1) is once


def test_five_tries_are_all() -> None:
    """Four retries after the first try, then it has failed."""
    outcomes = [after_failure(OSError(), policy=Policy(), tries=tries) for tries in range(1, 6)]

    assert outcomes == [Next.RETRY] * 4 + [Next.FAIL]


def test_no_retries_fail_at_once() -> None:
    """`retries=0`, also for what has surely not begun."""
    assert after_failure(OSError(), policy=Policy(retries=0), tries=1) is Next.FAIL
    once = Policy("non_idempotent", retries=0)
    assert after_failure(NotStarted(), policy=once, tries=1) is Next.FAIL


def test_waits_double_within_a_quarter() -> None:
    """1, 2, 4, 8 s; runs that failed together come back apart, and each always alike."""
    waits = [wait_seconds(OSError(), tries=tries, seed="7/a/1") for tries in (1, 2, 3, 4)]

    assert all(0.75 * 2**n <= wait <= 1.25 * 2**n for n, wait in enumerate(waits))
    assert waits[0] == wait_seconds(OSError(), tries=1, seed="7/a/1")
    assert waits[0] != wait_seconds(OSError(), tries=1, seed="8/a/1")


def test_waits_are_bounded() -> None:
    """A step with many retries is asked for again every minute or so."""
    assert wait_seconds(OSError(), tries=100, seed="") <= 75


@pytest.mark.parametrize("asked", [0, 17, 0.5, 3600])
def test_what_the_provider_asks_for_wins(asked: float) -> None:
    """Retry-After is neither shortened nor shifted."""
    assert wait_seconds(Busy(asked), tries=1, seed="x") == asked


@pytest.mark.parametrize("asked", [-1, float("nan"), float("inf"), "soon", None])
def test_a_retry_after_that_makes_no_sense_is_ignored(asked: object) -> None:
    """The usual wait is taken instead."""
    assert 0.75 <= wait_seconds(Busy(asked), tries=1, seed="x") <= 1.25
