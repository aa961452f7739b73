"""What PostgreSQL can never store, refused here in the same way."""

from __future__ import annotations

from rowlock.errors import RowRejected
from rowlock.store.types import Event, Final, NewRun

_SMALLINT, _INT, _BIGINT = 15, 31, 63


def storable_run(new: NewRun) -> None:
    """Refuse a run that no row can hold.

    Raises
    ------
    RowRejected
        With the SQLSTATE that the server would give.
    """
    _text(new.key, new.idempotency_key, new.cluster, new.uid, new.namespace, new.name)
    _within(_SMALLINT, new.priority, new.max_takeovers)


def storable_event(event: Event) -> None:
    """Refuse an event that no row can hold; raises `RowRejected`."""
    _text(event.key)
    _within(_SMALLINT, event.attempt, event.attempt_try)
    _within(_INT, event.seq, event.epoch, event.dur_ms)


def storable_final(final: Final) -> None:
    """Refuse an end that no row can hold; raises `RowRejected`."""
    _text(final.reason, final.message, final.outcome)
    _within(_INT, final.epoch, final.step)
    _within(_BIGINT, final.active_ms, final.tokens_in, final.tokens_out, final.cost_micro)


def _text(*values: str | None) -> None:
    if any(value is not None and "\0" in value for value in values):
        raise RowRejected("the store refuses the row (22021): text with NUL", sqlstate="22021")


def _within(bits: int, *values: int | None) -> None:
    if any(value is not None and not -(1 << bits) <= value < 1 << bits for value in values):
        # The driver cannot put such a number on the wire.
        raise OverflowError(f"a number does not fit into {bits + 1} bits")
