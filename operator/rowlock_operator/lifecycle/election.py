"""Who leads: the decisions of the election, over what was seen of the Lease and when; pure.

::

    standby ──take──▶ leader ──lost──▶ the process ends
       ▲ │                 └──SIGTERM──▶ released
       └─┘ wait

All times are seconds of this process's own monotonic clock. A leader trusts its Lease for
`renew` seconds from the *start* of the last request that renewed it; a standby believes in a holder
for `lease` seconds from the *answer* that last showed something new of it. As `renew` is shorter
than `lease`, a leader has stopped before anybody else may begin, however slow the requests were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowlock_operator.lifecycle.lease import Lease

#: A wait that floats cannot tell from none would never end.
_SHORTEST = 0.001


@dataclass(frozen=True, slots=True)
class Term:
    """How long things last, in seconds.

    Parameters
    ----------
    lease
        Without a sign of life for so long, a holder is gone.
    renew
        For how long a leader trusts its Lease after it began to renew it.
    retry
        Time between two renewals.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    @property
    def look(self) -> float:
        """Longest time between two looks of a standby: a released Lease is taken within `retry`."""
        return 0.8 * self.retry

    @property
    def ailing(self) -> float:
        """For how long a leader may be without PostgreSQL while a standby has it.

        Longer than the leader needs to notice that PostgreSQL is back.
        """
        return 2 * self.lease


@dataclass(frozen=True, slots=True)
class Sighting:
    """The Lease as last seen.

    Parameters
    ----------
    since
        When an answer first showed it as it is: since then its holder gave no sign of life.
    ailing_since
        Since when its holder has been without PostgreSQL and we were not; None if that is not so.
    """

    lease: Lease | None
    since: float
    ailing_since: float | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """Try to become the leader now."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after so many seconds at most."""

    seconds: float


def see(before: Sighting | None, lease: Lease | None, *, at: float, fit: bool = True) -> Sighting:
    """Return what is known after an answer that came in `at`.

    Parameters
    ----------
    fit
        Whether we ourselves could do the work.
    """
    ailing = fit and lease is not None and lease.ailing
    if before is None or before.lease is None or lease is None or _lives(before.lease, lease):
        seen = Sighting(lease, at)
    else:
        seen = Sighting(lease, before.since)
    if not ailing:
        return seen
    known = before.ailing_since if before and _same_holder(before.lease, lease) else None
    return replace(seen, ailing_since=at if known is None else known)


def decide(me: str, seen: Sighting, *, now: float, term: Term, fit: bool = True) -> Take | Wait:
    """Return what a standby does.

    Parameters
    ----------
    me
        Our identity.
    fit
        Whether we could do the work: who cannot reach PostgreSQL does not stand for election.
    """
    lease = seen.lease
    if not fit:
        return Wait(term.look)
    if lease is None or not lease.holder:
        return Take("it was released" if lease else "there was no Lease")
    if lease.holder == me:
        return Take("it is ours: an earlier attempt was carried out, and its answer was lost")
    return _beside(lease, seen, now=now, term=term)


def _beside(lease: Lease, seen: Sighting, *, now: float, term: Term) -> Take | Wait:
    """Return what a standby does while somebody else holds the Lease."""
    silent = now - seen.since
    left = max(term.lease, lease.seconds) - silent
    if left <= 0:
        return Take(f"{lease.holder} gave no sign of life for {silent:.1f} s")
    if seen.ailing_since is not None and now - seen.ailing_since >= term.ailing:
        return Take(f"{lease.holder} has been without PostgreSQL for {term.ailing:g} s")
    return Wait(min(max(left, _SHORTEST), term.look))


def trusted_until(began: float, *, term: Term) -> float:
    """Return until when a leader trusts a Lease that a request renewed which `began` then."""
    return began + term.renew


def _lives(before: Lease, now: Lease) -> bool:
    """Tell whether the holder gave a sign of life between two answers."""
    return (before.holder, before.renewed, before.transitions) != (
        now.holder,
        now.renewed,
        now.transitions,
    )


def _same_holder(before: Lease | None, now: Lease | None) -> bool:
    return before is not None and now is not None and before.holder == now.holder
