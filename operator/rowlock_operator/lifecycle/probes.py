"""What `/livez` and `/readyz` answer; pure decisions over what is known."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock_operator.intake.source import SourceHealth
from rowlock_operator.lifecycle.health import Role

#: kopf may reconnect its streams within this time; discovery at start takes seconds too.
_GRACE_SECONDS = 60.0
_ECHO_SECONDS = 60.0
_STUCK_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe's answer; `why` names the first thing that is wrong."""

    ok: bool
    why: str = "ok"


@dataclass(frozen=True, slots=True)
class Vitals:
    """What liveness is judged by, times in monotonic seconds.

    Parameters
    ----------
    alive_at
        When the source was last seen alive, or the start.
    ticked_at
        When our own loop last came round.
    shown_at
        When a status was last written; its echo must come back through the watch.
    """

    now: float
    source: SourceHealth
    alive_at: float
    ticked_at: float
    shown_at: float | None = None


def liveness(vitals: Vitals) -> Answer:
    """Tell whether a restart would help: kopf's own check stays green when a watcher died."""
    source = vitals.source
    if source.ended:
        return Answer(False, source.ended)
    if vitals.now - vitals.ticked_at > _STUCK_SECONDS:
        return Answer(False, "the event loop is stuck")
    if not source.alive and vitals.now - vitals.alive_at > _GRACE_SECONDS:
        return Answer(False, f"{source.watchers} of {source.expected} watches are open")
    if _is_deaf(vitals):
        return Answer(False, "statuses are written, but the watch reports nothing")
    return Answer(True)


def readiness(*, role: Role, database_up: bool, in_touch: bool, stopping: bool) -> Answer:
    """Tell whether AgentRuns are being taken in and shown, or would be if the leader went.

    Parameters
    ----------
    in_touch
        A leader's Lease holds; a standby has read it lately.
    """
    if stopping:
        return Answer(False, "stopping")
    if role is Role.STARTING:
        return Answer(False, "starting")
    if not database_up:
        return Answer(False, "PostgreSQL does not answer")
    if not in_touch:
        return Answer(False, "the Lease cannot be read or renewed")
    return Answer(True, role.value)


def _is_deaf(vitals: Vitals) -> bool:
    """Each status that we write is a watch event: none for a minute means a frozen stream."""
    if vitals.shown_at is None or vitals.now - vitals.shown_at > _ECHO_SECONDS:
        return False
    heard_at = vitals.source.event_at or vitals.alive_at
    return vitals.shown_at - heard_at > _ECHO_SECONDS
