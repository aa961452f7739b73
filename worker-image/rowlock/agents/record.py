"""What history holds of a step, and what that means for the step now.

| newest entry | arguments | recorded in | then |
|---|---|---|---|
| none | | | run |
| done | same | any attempt | use the result |
| done | other | this attempt | NonDeterministic |
| done | other | an earlier attempt | run, with the next call number |
| failed | same | this attempt | raise the same error |
| failed | other | this attempt | NonDeterministic |
| failed | any | an earlier attempt | run, with the same call number |
| failed, surely not started | same | any attempt | run |
| failed, outcome unknown | same | any attempt | still unknown |
| failed, denied by a person | same | this attempt | denied |
| done or failed, dropped | any | an earlier attempt | as with other arguments |
| intent, idempotent | same | any attempt | run with the same call id until its `key_ttl` |
| any other intent | same | any attempt | unknown |
| intent or unknown | other | any attempt | NonDeterministic: its effect may be out in the world |

So finished steps are kept over all attempts of a run, and failed ones run again in the next.

A step that runs again because its arguments changed drops what earlier attempts recorded after it:
those results may rest on its old one. Its own record keeps from where on (`drops`),
so the next worker, which finds the step unchanged, drops the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, unique

import msgspec

from rowlock.agents.context import NO_TOKENS, Tokens
from rowlock.agents.protocol import Entry
from rowlock.agents.retry import Policy
from rowlock.errors import NonDeterministic, StepFailed
from rowlock.states import EventKind

Marks = tuple[tuple[int, int], ...]


class OutcomeUnknown(StepFailed):
    """A step with side effects was interrupted: its effect may or may not have happened."""


class Record(msgspec.Struct, omit_defaults=True):
    """The body of a step's entry.

    Parameters
    ----------
    args
        Digest of the arguments.
    result
        JSON of a finished step.
    number
        The call's number: one more than the successes recorded before.
    error
        Why it failed; of a finished step, why its last failed try did.
    attempt
        The run's attempt that wrote it.
    once
        The effect must not be repeated, for an intent.
    unknown
        The effect may have happened, for a failure.
    again
        For a failure: the effect surely did not begin, or it may be repeated.
    wait
        Seconds from this failure to the next try, if so long that the run may have left its worker.
    denied
        A person said no, for a failure.
    drops
        Marks (number, attempt): what earlier attempts recorded after that number is dropped.
    usage
        Tokens in, tokens out, millionths of a US dollar.
    degraded
        What `run.mark_degraded` said inside the step.
    """

    args: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    number: int = 1
    error: str = ""
    attempt: int = 1
    once: bool = False
    unknown: bool = False
    again: bool = False
    wait: float = 0.0
    denied: bool = False
    drops: Marks = ()
    usage: Tokens = NO_TOKENS
    degraded: tuple[str, ...] = ()


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


@unique
class Verdict(Enum):
    """What to do with a step that the agent's code asks for."""

    RUN = "run"
    REUSE = "reuse"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and what it rests on.

    Parameters
    ----------
    number
        The call's number, for `RUN`.
    intended
        History holds the intent already, so that it need not be written again.
    record
        What was recorded; None for a step that is new.
    tries
        How many were made before, by a worker that the run left to wait for the next.
    drops
        This step changed: see `Record.drops`.
    """

    verdict: Verdict
    number: int = 1
    intended: bool = False
    record: Record | None = None
    tries: int = 0
    drops: Marks = ()


NEW = Decision(Verdict.RUN)


class Dropped:
    """Which results of earlier attempts do not count any more, as far as the code has come."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[tuple[int, int]] = []

    def add(self, marks: Marks) -> None:
        """Drop more."""
        self._marks += [mark for mark in marks if mark not in self._marks]

    def covers(self, seq: int, attempt: int) -> bool:
        """Is an entry with number `seq`, written in `attempt`, dropped?"""
        return any(seq > mark and attempt < since for mark, since in self._marks)


def judge(
    entry: Entry | None,
    *,
    args: str,
    attempt: int,
    policy: Policy,
    dropped: Dropped | None = None,
    age: Callable[[str], float] = lambda _: 0.0,
) -> Decision:
    """Decide by the table above.

    Parameters
    ----------
    age
        Returns how many seconds ago the newest entry of a key was stored.

    Raises
    ------
    NonDeterministic
        The code asks for this step with other arguments than it may.
    """
    if entry is None:
        return NEW
    record = _decode(entry.body)
    if dropped and dropped.covers(entry.seq, record.attempt) and _settled(entry, record):
        return _anew(entry, record)
    if record.args != args:
        return _changed(entry, record, attempt)
    if entry.kind is EventKind.STEP_DONE:
        return Decision(Verdict.REUSE, record=record, drops=record.drops)
    if entry.kind is EventKind.STEP_INTENT:
        return _interrupted(record, policy, age(entry.key))
    return _failed(entry, record, attempt)


def _settled(entry: Entry, record: Record) -> bool:
    """Is it known what became of the step?"""
    return entry.kind is not EventKind.STEP_INTENT and not record.unknown


def _anew(entry: Entry, record: Record) -> Decision:
    done = entry.kind is EventKind.STEP_DONE
    return Decision(Verdict.RUN, number=record.number + done, record=record)


def _changed(entry: Entry, record: Record, attempt: int) -> Decision:
    if _settled(entry, record) and record.attempt < attempt:
        return replace(_anew(entry, record), drops=(*record.drops, (entry.seq, attempt)))
    raise NonDeterministic(
        f"Step {entry.key!r} stands in the history with other arguments. "
        "Outside its steps an agent may depend on nothing but its input and their results; "
        "steps of one name that have different arguments need different keys."
    )


def _interrupted(record: Record, policy: Policy, age: float) -> Decision:
    if record.once or policy.side_effects == "non_idempotent" or age > policy.key_ttl:
        return Decision(Verdict.UNKNOWN, number=record.number, record=record, drops=record.drops)
    return Decision(
        Verdict.RUN, number=record.number, intended=True, record=record, drops=record.drops
    )


def _failed(entry: Entry, record: Record, attempt: int) -> Decision:
    known = Decision(Verdict.FAIL, number=record.number, record=record, drops=record.drops)
    if record.unknown:
        return replace(known, verdict=Verdict.UNKNOWN)
    if record.attempt < attempt:
        return replace(known, verdict=Verdict.RUN)
    if record.again:
        return replace(known, verdict=Verdict.RUN, tries=entry.tries if record.wait else 0)
    return known
