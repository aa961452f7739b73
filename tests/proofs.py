"""What must be true of runs after anything that a test did to their workers and their database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rowlock.states import FinalStatus
from rowlock.store.types import RunId
from tests.workers import Bench, eventually


async def ended_once(
    bench: Bench,
    runs: Sequence[RunId],
    *,
    steps: int,
    takeovers: int | None = None,
    repeats: int | None = None,
    within: float = 60,
) -> None:
    """Assert that every run succeeded once, from the database and from its effects outside.

    The invariants of `rowlock.violations` hold: no gap in any sequence, no row in two live tables,
    no lease of a fenced or missing worker, no cap exceeded.
    No step is recorded twice, and all tries of an effect carry the same call id.

    Parameters
    ----------
    steps
        How many each run does.
    takeovers
        How many there were in all; None for any number.
    repeats
        How many effects may have happened again, because their worker died before it had recorded
        them; None for one of each takeover.
    """
    sql = bench.sql
    ids = list(runs)
    await eventually(
        lambda: sql.fetchval(
            "SELECT count(DISTINCT run_id) = $2 FROM rowlock.run_final f WHERE run_id = ANY($1) "
            "AND NOT EXISTS (SELECT FROM rowlock.run_live l WHERE l.run_id = f.run_id)",
            ids,
            len(ids),
        ),
        "the end of all runs; the workers said:\n"
        + "\n".join(worker.log[-1500:] for worker in bench.workers),
        within,
    )
    finals = await sql.fetch("SELECT * FROM rowlock.run_final WHERE run_id = ANY($1)", ids)
    assert Counter(row["run_id"] for row in finals) == Counter(ids)
    assert {FinalStatus(row["status"]) for row in finals} == {FinalStatus.SUCCEEDED}
    lost = sum(row["takeovers"] for row in finals)
    assert takeovers is None or lost == takeovers
    await _recorded_once(bench, ids, steps)
    _happened_once(bench, ids, steps, allowed=lost if repeats is None else repeats)
    await bench.healthy()


async def _recorded_once(bench: Bench, runs: Sequence[RunId], steps: int) -> None:
    rows = await bench.sql.fetch(
        "SELECT run_id, key, count(*) FROM rowlock.run_event "
        "WHERE kind = 2 AND run_id = ANY($1) GROUP BY run_id, key",
        list(runs),
    )
    assert {row["count"] for row in rows} == {1}
    assert Counter(row["run_id"] for row in rows) == dict.fromkeys(runs, steps)


def _happened_once(bench: Bench, runs: Sequence[RunId], steps: int, *, allowed: int) -> None:
    wanted = {str(run) for run in runs}
    calls: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run, step, call_id, *_ in bench.effects():
        if run in wanted:
            calls[run, step].append(call_id)
    assert len(calls) == len(runs) * steps
    assert {len(set(ids)) for ids in calls.values()} == {1}
    assert sum(len(ids) - 1 for ids in calls.values()) <= allowed
