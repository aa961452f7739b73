"""Stands for election and holds the Lease: the thin shell around `election`."""

from __future__ import annotations

import asyncio
import random
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import RowlockError
from rowlock_operator import metrics as m
from rowlock_operator.kube.errors import Conflict, KubeError, NotFound
from rowlock_operator.lifecycle.election import (
    Sighting,
    Take,
    Term,
    Wait,
    decide,
    see,
    trusted_until,
)
from rowlock_operator.lifecycle.lease import Lease, held, lease_from, new_object, released
from rowlock_operator.lifecycle.lease_access import LeaseAccess, Place

log = structlog.get_logger(__name__)

_TRIES = 3
_RELEASE_SECONDS = 2.0
#: Two standbys that look at the same moment would only meet in a conflict, again and again.
_SPREAD = (0.6, 1.0)


class LeadershipLost(RowlockError):
    """Somebody else leads, or may lead by now; this process must not go on."""


def new_identity() -> str:
    """Return a name for this process that no other one has had: the host's and something random."""
    return f"{socket.gethostname()[:200]}_{uuid.uuid4().hex[:12]}"


class Elector:
    """One candidate, later the leader.

    Parameters
    ----------
    fit
        Tells whether this process could do the work now: PostgreSQL answers it.
    """

    def __init__(
        self,
        access: LeaseAccess,
        *,
        term: Term,
        fit: Callable[[], bool],
        metrics: m.Metrics,
        identity: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._access = access
        self._term = term
        self._fit = fit
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._seen: Sighting | None = None
        self._until = float("-inf")
        self._in_touch_at = self._clock.monotonic()
        self.identity = identity or new_identity()
        self.leads = False
        self.lost = False

    @property
    def place(self) -> Place:
        """Return where the Lease is."""
        return self._access.place

    @property
    def in_touch(self) -> bool:
        """Tell whether the Lease was read or renewed lately: a leader's still holds."""
        now = self._clock.monotonic()
        return now < self._until if self.leads else now - self._in_touch_at < self._term.lease

    async def look(self) -> Sighting:
        """Read the Lease, and return what is known of it.

        Raises
        ------
        KubeError
            It cannot be read now.
        """
        return self._note(await self._access.read())

    async def win(self) -> None:
        """Wait as a standby, and return as the leader."""
        log.info("Waiting to lead", lease=str(self._access.place), identity=self.identity)
        while not self.leads:
            await self._clock.sleep(await self._candidate())

    async def hold(self) -> None:
        """Renew the Lease until cancelled.

        Raises
        ------
        LeadershipLost
            Somebody else has it, or it could not be renewed in time.
        """
        try:
            while True:
                left = self._until - self._clock.monotonic()
                pause = random.uniform(*_SPREAD) * self._term.retry  # noqa: S311  spreads requests
                await self._clock.sleep(max(0.0, min(pause, left)))
                await self._renew()
        except LeadershipLost:
            self.leads, self.lost = False, True
            self._metrics.show(m.LEADER, 0)
            raise

    async def release(self) -> None:
        """Give the Lease back, so that a standby need not wait for its end; never fails."""
        self.leads = False
        self._metrics.show(m.LEADER, 0)
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._release()
        except (KubeError, TimeoutError) as error:
            log.warning("The Lease was not released; it will run out", error=str(error))

    async def _candidate(self) -> float:
        """Look, try if there is reason to, and return the seconds until the next look."""
        try:
            wait = await self._act(await self.look())
            self._in_touch_at = self._clock.monotonic()
            return wait
        except Conflict:
            log.debug("Another candidate was faster")
        except KubeError as error:
            log.warning("The Lease cannot be read or written", error=str(error))
        return self._spread(self._term.look)

    async def _act(self, seen: Sighting) -> float:
        now = self._clock.monotonic()
        match decide(self.identity, seen, now=now, term=self._term, fit=self._fit()):
            case Take(why):
                await self._write(now)
                self._take_office(why, seen.lease)
                return 0.0
            case Wait(seconds) if seconds < self._term.look:
                return seconds  # to its very end: then the holder's time is over
            case Wait(seconds):
                return self._spread(seconds)

    def _take_office(self, why: str, before: Lease | None) -> None:
        self.leads = True
        self._metrics.show(m.LEADER, 1)
        log.info(
            "This operator leads",
            lease=str(self._access.place),
            identity=self.identity,
            before=before.holder if before else "",
            why=why,
        )

    async def _renew(self) -> None:
        """Renew once; what fails is tried again as long as the Lease can be trusted."""
        now = self._clock.monotonic()
        left = self._until - now
        if left <= 0:
            raise LeadershipLost(
                f"the Lease {self._access.place} was not renewed in {self._term.renew:g} s"
            )
        try:
            async with asyncio.timeout(left):
                await self._write_over_others(now)
        except (KubeError, TimeoutError) as error:
            log.warning("The Lease could not be renewed", error=str(error), left=round(left, 1))

    async def _write_over_others(self, began: float) -> None:
        """Renew; after a conflict look who has it: what others wrote beside us does no harm."""
        for _ in range(_TRIES):
            try:
                return await self._write(began)
            except Conflict:
                lease = (await self.look()).lease
            if lease is not None and lease.holder != self.identity:
                raise LeadershipLost(
                    f"{lease.holder or 'nobody'} has the Lease {self._access.place} now"
                )
        raise Conflict(f"the Lease {self._access.place} changes faster than it can be written")

    async def _write(self, began: float) -> None:
        """Write that we hold it; the trust in it counts from `began`, before the request."""
        lease, place = self._seen.lease if self._seen else None, self._access.place
        said = held(
            lease or lease_from(new_object(place.namespace, place.name)),
            by=self.identity,
            seconds=self._term.lease,
            now=datetime.now(UTC),
            ailing=not self._fit(),
        )
        try:
            write = self._access.replace if lease else self._access.create
            self._note(await write(said))
        except NotFound:
            self._note(None)  # somebody deleted it; the next try makes it anew
            raise
        self._until = trusted_until(began, term=self._term)
        self._metrics.show(m.LEASE_RENEWED, time.time())

    async def _release(self) -> None:
        for _ in range(_TRIES):
            lease = (await self.look()).lease
            if lease is None or lease.holder != self.identity:
                return
            try:
                await self._access.replace(released(lease, now=datetime.now(UTC)))
            except Conflict:
                continue  # a renewal of ours that was cut short was carried out after all
            log.info("The Lease is released", lease=str(self._access.place))
            return

    def _note(self, lease: Lease | None) -> Sighting:
        self._seen = see(self._seen, lease, at=self._clock.monotonic(), fit=self._fit())
        if lease is not None:
            self._metrics.show(m.LEADER_CHANGES, lease.transitions)
        return self._seen

    def _spread(self, seconds: float) -> float:
        return seconds * random.uniform(*_SPREAD)  # noqa: S311  spreads requests, hides nothing
