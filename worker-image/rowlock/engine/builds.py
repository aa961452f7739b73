"""Which build of the workers wrote what a run's history holds: decided from facts alone.

Code that asks for other steps than its history holds may be the code of another build:
the one that wrote those steps goes on with the run, as long as a worker of it lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rowlock.states import FIRST_LIFECYCLE_KIND
from rowlock.store.bodies import unpack
from rowlock.store.types import Carry, Event


class _Lease(msgspec.Struct):
    """What an entry about the end of a lease says of it."""

    epoch: int = 0
    build: str = ""


_lease = msgspec.json.Decoder(_Lease)


def writer_of(history: Sequence[Event], carried: Iterable[Carry]) -> str:
    """Return the build that wrote the newest step; empty if nobody knows or there is none.

    Parameters
    ----------
    carried
        Ends of leases that are not in history yet.
    """
    epoch = next((one.epoch for one in reversed(history) if one.kind < FIRST_LIFECYCLE_KIND), None)
    if epoch is None:
        return ""
    for carry in carried:
        if carry.epoch == epoch and carry.build:
            return carry.build
    for event in reversed(history):
        if event.kind >= FIRST_LIFECYCLE_KIND and event.body:
            lease = _lease.decode(unpack(event.body))
            if lease.epoch == epoch and lease.build:
                return lease.build
    return ""


def why(error: BaseException, *, ours: str, theirs: str) -> str:
    """Return what is said of a run that goes back to the build which wrote its history."""
    return f"{error} Build {theirs!r} wrote that history, this worker is {ours!r}."


def why_none(error: BaseException, *, ours: str, theirs: str) -> str:
    """Return what is said of a run that no living build can go on with."""
    return (
        f"{why(error, ours=ours, theirs=theirs)} "
        f"No worker of build {theirs!r} lives, nor did in the last minute."
    )
