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
| intent | same | any attempt | idempotent: run with the same call id; else unknown |
| intent or unknown | other | any attempt | NonDeterministic: its effect may be out in the world |

So finished steps are kept over all attempts of a run, and failed ones run again in the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

import msgspec

from rowlock.agents.context import NO_TOKENS, Tokens
from rowlock.agents.protocol import Entry
from rowlock.agents.retry import Policy
from rowlock.errors import NonDeterministic, StepFailed
from rowlock.states import EventKind


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
        The effect surely did not begin, for a failure.
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
    """

    verdict: Verdict
    number: int = 1
    intended: bool = False
    record: Record | None = None


NEW = Decision(Verdict.RUN)


def judge(entry: Entry | None, *, args: str, attempt: int, policy: Policy) -> Decision:
    """Decide by the table above.

    Raises
    ------
    NonDeterministic
        The code asks for this step with other arguments than it may.
    """
    if entry is None:
        return NEW
    record = _decode(entry.body)
    if record.args != args:
        return _changed(entry, record, attempt)
    if entry.kind is EventKind.STEP_DONE:
        return Decision(Verdict.REUSE, record=record)
    if entry.kind is EventKind.STEP_INTENT:
        return _interrupted(record, policy)
    return _failed(record, attempt)


def _changed(entry: Entry, record: Record, attempt: int) -> Decision:
    settled = entry.kind is not EventKind.STEP_INTENT and not record.unknown
    if settled and record.attempt < attempt:
        done = entry.kind is EventKind.STEP_DONE
        return Decision(Verdict.RUN, number=record.number + done, record=record)
    raise NonDeterministic(
        f"Step {entry.key!r} stands in the history with other arguments. "
        "Outside its steps an agent may depend on nothing but its input and their results; "
        "steps of one name that have different arguments need different keys."
    )


def _interrupted(record: Record, policy: Policy) -> Decision:
    if record.once or policy.side_effects == "non_idempotent":
        return Decision(Verdict.UNKNOWN, number=record.number, record=record)
    return Decision(Verdict.RUN, number=record.number, intended=True, record=record)


def _failed(record: Record, attempt: int) -> Decision:
    if record.unknown:
        return Decision(Verdict.UNKNOWN, number=record.number, record=record)
    if record.again or record.attempt < attempt:
        return Decision(Verdict.RUN, number=record.number, record=record)
    return Decision(Verdict.FAIL, number=record.number, record=record)
