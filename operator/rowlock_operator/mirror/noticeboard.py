"""Shows runs that have no row: what they wait for, or why they were refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock_operator.kube.errors import KubeError
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.mirror.desk import Shown, StatusDesk
from rowlock_operator.mirror.notices import Notice, notice_status

log = structlog.get_logger(__name__)

_AT_ONCE = 64
_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Posting:
    """One notice to show."""

    key: ObjectKey
    generation: int
    notice: Notice


@dataclass(frozen=True, slots=True)
class NoticeReport:
    """What one round did."""

    shown: int = 0
    failed: int = 0


class NoticeBoard:
    """The newest notice of each run, and the loop that shows them.

    One that is lost with the process is made again: the run has no row, so intake sees it anew.
    """

    def __init__(self, desk: StatusDesk, *, clock: Clock | None = None) -> None:
        self._desk = desk
        self._clock = clock or SystemClock()
        self._postings: dict[str, Posting] = {}
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._postings)

    def post(self, key: ObjectKey, generation: int, notice: Notice) -> None:
        """Take a notice to be shown soon; it replaces an older one of the same run."""
        self._postings[key.uid] = Posting(key, generation, notice)
        self._something.set()

    def withdraw(self, uid: str) -> None:
        """Drop a notice that is not true any more."""
        self._postings.pop(uid, None)

    async def run(self) -> None:
        """Show notices as they come, until cancelled."""
        while True:
            await self._something.wait()
            report = await self.run_once()
            if report.failed:
                await self._clock.sleep(_RETRY_SECONDS)

    async def run_once(self) -> NoticeReport:
        """Show some of the notices; those that fail stay."""
        batch = list(self._postings.values())[:_AT_ONCE]
        done = await asyncio.gather(*(self._show(posting) for posting in batch))
        if not self._postings:
            self._something.clear()
        return NoticeReport(shown=sum(done), failed=len(done) - sum(done))

    async def _show(self, posting: Posting) -> bool:
        def build(before: Mapping[str, Any]) -> dict[str, Any] | None:
            return notice_status(
                posting.notice,
                generation=max(posting.generation, self._desk.generation(posting.key.uid)),
                before=before,
                now=datetime.now(UTC),
            )

        try:
            shown = await self._desk.show(posting.key, build)
        except KubeError as error:
            log.warning("A status could not be shown yet", run=str(posting.key), error=str(error))
            return False
        if shown is Shown.WRITTEN:
            log.debug("Shown", run=str(posting.key), notice=type(posting.notice).__name__)
        if self._postings.get(posting.key.uid) is posting:
            del self._postings[posting.key.uid]
        return True
