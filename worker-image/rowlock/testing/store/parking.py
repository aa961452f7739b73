"""Runs that wait without a worker: for a time, for a person, or because somebody suspended them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from rowlock.states import ChangeKind, EventKind, ParkReason, Place, WishKind
from rowlock.store.types import Event, Parked, RunId, Verdict, WorkerId
from rowlock.testing.store import lines
from rowlock.testing.store.blame import acquit
from rowlock.testing.store.tables import Live, Question, Tables, Wished
from rowlock.testing.store.work import cancelled


def park(tables: Tables, worker: WorkerId, runs: Sequence[Parked]) -> dict[RunId, Verdict]:
    """Let runs wait, and ask their questions."""
    return {parked.run_id: _park(tables, worker, parked) for parked in runs}


def wake_parked(tables: Tables, limit: int) -> int:
    """Put up to `limit` runs whose wait is over back into the queue; return how many."""
    now = tables.now()
    due = [x for x in tables.at(Place.PARKED) if x.due_at is not None and x.due_at <= now]
    woken = sorted(due, key=lambda run: run.due_at or now)[:limit]
    for run in woken:
        wake(tables, run)
    return len(woken)


def wake(tables: Tables, run: Live) -> None:
    """Put a parked run back into the queue."""
    run.queue_deadline = None
    lines.requeue(tables, run)
    tables.change(run, ChangeKind.WOKEN)


def request_suspend(
    tables: Tables, run_ids: Sequence[RunId], by: str, reason: str | None
) -> list[RunId]:
    """Wish that runs wait until somebody continues them; return those that do by now."""
    for run_id in run_ids:
        if run_id in tables.live:
            tables.wishes.setdefault((run_id, WishKind.SUSPEND), Wished(by, reason))
    _suspend(tables, run_ids)
    wishes = {run_id: tables.wishes.get((run_id, WishKind.SUSPEND)) for run_id in run_ids}
    return [run_id for run_id, wish in wishes.items() if wish is not None and wish.settled]


def suspend_waiting(tables: Tables) -> list[RunId]:
    """Carry out the wishes to suspend of runs that no worker holds; return these runs."""
    return _suspend(tables, [run_id for run_id, _ in tables.wishes])


def request_continue(tables: Tables, run_ids: Sequence[RunId], asked_by: str | None) -> list[RunId]:
    """Take the wish to suspend runs back; return those that were suspended or about to be."""
    taken = {run_id for run_id in run_ids if _take_back(tables, run_id, asked_by)}
    freed = [run for run_id in sorted(run_ids) if (run := _suspended(tables, run_id)) is not None]
    for run in freed:
        _free(tables, run)
    return [run_id for run_id in run_ids if run_id in taken | {run.run_id for run in freed}]


def _park(tables: Tables, worker: WorkerId, parked: Parked) -> Verdict:
    run = tables.lease(parked.run_id, parked.epoch, worker)
    if run is None:
        return _earlier(tables, worker, parked)
    run.active_ms = parked.active_ms
    run.carry = tables.unwritten(run) or None
    me, wish = tables.workers[worker], tables.wished(run.run_id)
    if wish is not None:
        tables.end(run, cancelled(tables, run, f"cancelled by {wish}", worker=me))
        return Verdict.DONE
    _note(tables, run, parked)
    acquit(run, me, tables.now())
    answered = _ask(tables, run, parked)
    suspend = tables.wishes.get((run.run_id, WishKind.SUSPEND))
    if suspend is not None:
        _hold(tables, run, suspend, parked.reasons)
    elif answered or not parked.reasons:
        wake(tables, run)
    else:
        _wait(tables, run, parked)
    return Verdict.DONE


def _earlier(tables: Tables, worker: WorkerId, parked: Parked) -> Verdict:
    """Tell a run that this worker parked, or ended because of a wish, from one that is lost."""
    events = tables.lifecycle(parked.run_id)
    done = any((e.kind, e.epoch) == (EventKind.PARKED, parked.epoch) for e, _ in events)
    for final in tables.finals.get(parked.run_id, {}).values():
        done |= (final.epoch, final.worker_id) == (parked.epoch, worker)
    return Verdict.ALREADY_DONE if done else Verdict.LOST


def _note(tables: Tables, run: Live, parked: Parked) -> None:
    key = f"{EventKind.PARKED:d}:{run.epoch}"
    event = Event(
        run.run_id, parked.seq, run.epoch, run.attempt, EventKind.PARKED, key, 1, None, parked.body
    )
    tables.events.setdefault(run.run_id, {}).setdefault(parked.seq, (event, tables.now()))


def _ask(tables: Tables, run: Live, parked: Parked) -> bool:
    """Ask what is not asked yet; tell whether any of it is answered already."""
    now, answered = tables.now(), False
    for question in parked.questions:
        key = (run.run_id, question.step_key, question.digest, run.attempt)
        seconds = question.expires_in_seconds
        expires_at = None if seconds is None else now + timedelta(seconds=seconds)
        known = tables.questions.setdefault(key, Question(question, now, expires_at))
        answered |= known.decided_at is not None
    return answered


def _wait(tables: Tables, run: Live, parked: Parked) -> None:
    now, seconds = tables.now(), parked.wake_in_seconds
    run.stand(Place.PARKED, now)
    run.reasons = parked.reasons
    run.due_at = None if seconds is None else now + timedelta(seconds=seconds)
    tables.change(run, ChangeKind.PARKED)


def _hold(tables: Tables, run: Live, wish: Wished, reasons: Iterable[str]) -> None:
    run.stand(Place.PARKED, tables.now())
    run.reasons = (*(x for x in reasons if x != ParkReason.SUSPENDED), ParkReason.SUSPENDED)
    wish.settled = True
    tables.change(run, ChangeKind.SUSPENDED)


def _suspend(tables: Tables, run_ids: Iterable[RunId]) -> list[RunId]:
    held: list[RunId] = []
    for run_id in dict.fromkeys(run_ids):
        run, wish = tables.live.get(run_id), tables.wishes.get((run_id, WishKind.SUSPEND))
        if run is None or wish is None or wish.settled or run.place is Place.LEASE:
            continue
        _hold(tables, run, wish, run.reasons)
        held.append(run_id)
    return held


def _take_back(tables: Tables, run_id: RunId, asked_by: str | None) -> bool:
    wish = tables.wishes.get((run_id, WishKind.SUSPEND))
    if wish is None or asked_by not in (None, wish.by):
        return False
    del tables.wishes[run_id, WishKind.SUSPEND]
    return True


def _suspended(tables: Tables, run_id: RunId) -> Live | None:
    """Return the run if it is suspended, though nobody wishes that any more."""
    run = tables.live.get(run_id)
    if run is None or ParkReason.SUSPENDED not in run.reasons:
        return None
    return None if (run_id, WishKind.SUSPEND) in tables.wishes else run


def _free(tables: Tables, run: Live) -> None:
    if run.queue_deadline is not None:
        run.queue_deadline += tables.now() - run.ready_at
    if run.started_at is None:
        lines.begin_again(tables, run)
    else:
        lines.requeue(tables, run)
    tables.change(run, ChangeKind.CONTINUED)
