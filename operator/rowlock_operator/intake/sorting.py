"""What is to be done with an AgentRun that was seen, before its spec is looked at; pure."""

from __future__ import annotations

from enum import StrEnum, unique

from rowlock_operator.intake.seen import Seen


@unique
class Sort(StrEnum):
    """What to do."""

    #: It was deleted: confirm that, then cancel its run.
    DEPART = "depart"
    #: Its row exists and is to end.
    CANCEL = "cancel"
    #: Its row exists; only the status has to answer the new generation.
    SHOW = "show"
    #: It never had a row, and its owner does not want one any more.
    REFUSE_CANCELLED = "refuse_cancelled"
    #: It was refused before; the status has to answer the new generation.
    SHOW_REFUSAL = "show_refusal"
    #: Its status names a row that does not exist: the sweep decides, with a brake on mass cases.
    LEAVE_TO_SWEEP = "leave_to_sweep"
    #: It is new.
    RESOLVE = "resolve"
    #: It will be gone in a moment and never had a row.
    IGNORE = "ignore"


def may_have_row(seen: Seen) -> bool:
    """Tell whether the database must be asked for a row; a fresh object has none, or gets it."""
    return bool(seen.generation > 1 or seen.status or seen.deleting or seen.gone)


def sort(seen: Seen, *, has_row: bool) -> Sort:
    """Decide what to do with an object."""
    if seen.gone:
        return Sort.DEPART
    if has_row:
        return Sort.CANCEL if seen.cancelled or seen.deleting else Sort.SHOW
    if seen.deleting:
        return Sort.IGNORE
    if seen.finished:
        return Sort.SHOW_REFUSAL
    if seen.run_id is not None:
        return Sort.LEAVE_TO_SWEEP
    return Sort.REFUSE_CANCELLED if seen.cancelled else Sort.RESOLVE
