"""What history says of a step decides what happens to it: the table in `record`, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.agents.protocol import Entry
from rowlock.agents.record import Decision, Record, Verdict, encode, judge
from rowlock.agents.retry import Policy, SideEffects
from rowlock.errors import NonDeterministic
from rowlock.states import EventKind

INTENT, DONE, FAILED = EventKind.STEP_INTENT, EventKind.STEP_DONE, EventKind.STEP_FAILED


def decide(
    kind: EventKind,
    *,
    args: str = "same",
    attempt: int = 1,
    effects: SideEffects = "none",
    **more: Any,
) -> Decision:
    """Judge an entry that attempt 1 wrote about the arguments "same"."""
    entry = Entry(kind, "pay:1", 1, encode(Record(args="same", **more)))
    return judge(entry, args=args, attempt=attempt, policy=Policy(effects))


def test_a_new_step_runs() -> None:
    """Nothing is known of it."""
    assert judge(None, args="a", attempt=1, policy=Policy()) == Decision(Verdict.RUN)


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_finished_step_is_used_in_every_attempt(attempt: int) -> None:
    """It is never run again."""
    assert decide(DONE, attempt=attempt).verdict is Verdict.REUSE


@pytest.mark.parametrize("kind", [DONE, FAILED])
def test_other_arguments_in_one_attempt_are_an_error(kind: EventKind) -> None:
    """The message names the step."""
    with pytest.raises(NonDeterministic, match="'pay:1'"):
        decide(kind, args="other")


def test_other_arguments_in_a_later_attempt_are_another_call() -> None:
    """The call's number rises after a success: a provider must not take it for the first call."""
    decision = decide(DONE, args="other", attempt=2)

    assert (decision.verdict, decision.number) == (Verdict.RUN, 2)


def test_a_failed_step_stays_failed_in_its_attempt() -> None:
    """A replay raises again what the first pass raised."""
    assert decide(FAILED, error="gone").verdict is Verdict.FAIL


@pytest.mark.parametrize("args", ["same", "other"])
def test_a_failed_step_runs_again_in_the_next_attempt(args: str) -> None:
    """With the same call number: nothing was recorded as done."""
    decision = decide(FAILED, args=args, attempt=2)

    assert (decision.verdict, decision.number) == (Verdict.RUN, 1)


def test_what_surely_did_not_begin_runs_again() -> None:
    """Even if it may happen only once."""
    assert decide(FAILED, again=True, effects="non_idempotent").verdict is Verdict.RUN


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_unknown_outcome_stays_unknown(attempt: int) -> None:
    """No attempt may repeat it."""
    assert decide(FAILED, unknown=True, attempt=attempt).verdict is Verdict.UNKNOWN


def test_an_idempotent_intent_is_repeated() -> None:
    """Without a second intent, with the number that the first had."""
    decision = decide(INTENT, effects="idempotent", number=3)

    assert (decision.verdict, decision.number, decision.intended) == (Verdict.RUN, 3, True)


@pytest.mark.parametrize(("once", "effects"), [(True, "none"), (False, "non_idempotent")])
def test_an_intent_of_what_may_happen_once_is_unknown(once: bool, effects: SideEffects) -> None:
    """The stricter of what the code said then and says now counts."""
    assert decide(INTENT, once=once, effects=effects).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_intent_with_other_arguments_is_an_error(attempt: int) -> None:
    """Something may be out in the world that this code knows nothing of."""
    with pytest.raises(NonDeterministic):
        decide(INTENT, args="other", attempt=attempt, effects="idempotent")
    with pytest.raises(NonDeterministic):
        decide(FAILED, args="other", attempt=attempt, unknown=True)
