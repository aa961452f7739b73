"""A worker for somebody who tries an agent out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rowlock.engine.messages import Live
from rowlock.supervisor.crew import Plan


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """What is special about it.

    Parameters
    ----------
    on_live
        Called with what its runs say.
    crash_at
        The step behind whose effect its loop process dies; empty for none.
    """

    on_live: Callable[[Live], None]
    crash_at: str = ""

    def applied_to(self, plans: list[Plan]) -> list[Plan]:
        """Return what to start."""
        return [
            dataclasses.replace(
                plan, boot=msgspec.structs.replace(plan.boot, watched=True, crash_at=self.crash_at)
            )
            for plan in plans
        ]
