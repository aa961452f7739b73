"""What follows a failed try, decided without doing anything.

| the function raised | side effects none or idempotent | non_idempotent |
|---|---|---|
| `PermanentError` | failed | failed |
| a result that does not fit its annotation | failed | unknown |
| an error of a run (`AgentError`) | failed | unknown |
| `NotStarted` | again, while tries are left | again, while tries are left |
| anything else | again, while tries are left | unknown |
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from enum import Enum, unique
from typing import Literal

from rowlock.agents import checks
from rowlock.agents.problems import Misfit
from rowlock.errors import AgentError, NotStarted, PermanentError

SideEffects = Literal["none", "idempotent", "non_idempotent"]

SIDE_EFFECTS: tuple[SideEffects, ...] = ("none", "idempotent", "non_idempotent")

#: For so long a provider is taken to know an idempotency key.
KEY_TTL_SECONDS = 24 * 3600.0

#: A longer wait between two tries may be spent without a worker.
LONG_WAIT_SECONDS = 60.0

#: Waits double from a second to this bound; the usual four retries wait 1, 2, 4 and 8 s.
MAX_WAIT_SECONDS = 60.0

_JITTER = 0.25


@dataclass(frozen=True, slots=True)
class Policy:
    """How a step is tried.

    Parameters
    ----------
    retries
        Further tries after the first.
    timeout
        Seconds for each try; None for no limit but the run's own.
    key_ttl
        Seconds after which an idempotent call must not be repeated under its old key.
    """

    side_effects: SideEffects = "none"
    retries: int = 4
    timeout: float | None = None
    key_ttl: float = KEY_TTL_SECONDS


def checked(policy: Policy, *, owner: str) -> Policy:
    """Return `policy` if its numbers make sense.

    Raises
    ------
    AgentDefinitionError
        One does not; the message names it.
    """
    checks.whole_number(policy.retries, "retries", least=0, owner=owner)
    checks.seconds(policy.timeout, "timeout", owner=owner)
    checks.seconds(policy.key_ttl, "key_ttl", owner=owner)
    return policy


@unique
class Next(Enum):
    """What a step does after a failed try."""

    RETRY = "retry"
    FAIL = "fail"
    #: The effect may or may not have happened: never try again.
    UNKNOWN = "unknown"


def after_failure(error: BaseException, *, policy: Policy, tries: int) -> Next:
    """Decide what follows the failure of the try with the number `tries`, counted from 1."""
    if isinstance(error, PermanentError):
        return Next.FAIL
    if policy.side_effects == "non_idempotent" and not isinstance(error, NotStarted):
        return Next.UNKNOWN
    if isinstance(error, Misfit | AgentError | SystemExit) or tries > policy.retries:
        return Next.FAIL
    return Next.RETRY


def wait_seconds(error: BaseException, *, tries: int, seed: str) -> float:
    """Return how long to wait after the failure of the try with the number `tries`.

    What the error says in `retry_after` (seconds, from a Retry-After header) wins.
    Else the wait is doubled for each try and shifted by up to a quarter, by `seed`:
    runs that failed together do not come back together, and a test can know the wait.
    """
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and math.isfinite(asked) and asked >= 0:
        return float(asked)
    doubled = min(2.0 ** (tries - 1), MAX_WAIT_SECONDS)
    share = zlib.crc32(f"{seed}/{tries}".encode()) / 2**32
    return doubled * (1 - _JITTER + 2 * _JITTER * share)
