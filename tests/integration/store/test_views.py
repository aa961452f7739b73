"""What people read on call is true, and a broken invariant has a name."""

from __future__ import annotations

import pytest

from rowlock.states import FenceReason
from rowlock.store import invariants, work, workers
from tests.integration.store.world import World, end, failure, raw_of, step


async def test_run_status_tells_where_a_run_stands_and_how_it_ended(world: World) -> None:
    worker, [one, two] = await world.running(2, linked=True, key="k")
    [waiting] = await world.enqueue()
    await work.finish(
        world.store,
        worker=worker,
        events=[],
        finals=[end(one), failure(two, retry_in=60)],
    )
    rows = {row["run_id"]: row for row in await world.sql("SELECT * FROM rowlock.run_status")}
    assert (rows[one.run_id]["place"], rows[one.run_id]["ended"]) == ("final", "Succeeded")
    assert (rows[two.run_id]["place"], rows[two.run_id]["attempt"]) == ("timer", 2)
    assert rows[two.run_id]["ended"] is None
    assert (rows[waiting]["place"], rows[waiting]["namespace"]) == ("ready", None)
    assert rows[one.run_id]["agent"] == "support"
    assert rows[one.run_id]["name"].startswith("run-")


async def test_stuck_leases_are_those_of_silent_and_unknown_workers(world: World) -> None:
    silent, [lost] = await world.running()
    await world.running()
    assert await world.sql("SELECT * FROM rowlock.stuck_leases") == []
    await world.sql(
        "UPDATE rowlock.worker_beat SET beat_at = now() - interval '1 hour' WHERE worker_id = $1",
        silent,
    )
    await world.sql("UPDATE rowlock.reaper SET granted_at = '-infinity'")
    [row] = await world.sql("SELECT * FROM rowlock.stuck_leases")
    assert (row["run_id"], row["problem"]) == (lost.run_id, "its worker is silent")
    assert row["silent_for"].total_seconds() >= 3600
    await world.sql("DELETE FROM rowlock.worker WHERE worker_id = $1", silent)
    [row] = await world.sql("SELECT * FROM rowlock.stuck_leases")
    assert row["problem"] == "its worker is unknown"


async def test_repeat_takeovers_name_the_run_and_its_last_lost_worker(world: World) -> None:
    [once, twice] = await world.enqueue(2)
    await world.lose(once, 1)
    worker = await world.worker()
    claimed = await world.claim(worker)
    keep = [(c.run_id, c.epoch, 0) for c in claimed if c.run_id == once]
    await work.release(world.store, worker=worker, runs=keep)
    await workers.fence(world.store, [worker], reason=FenceReason.STALLED)
    [row] = await world.sql("SELECT * FROM rowlock.repeat_takeovers")
    assert (row["run_id"], row["takeovers"], row["place"]) == (twice, 2, "timer")
    assert (row["lost_reason"], row["agent"]) == ("Stalled", "support")


BROKEN = {
    "INSERT INTO rowlock.run_backlog SELECT * FROM rowlock.run_ready": (
        "stands in backlog and ready"
    ),
    "INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, takeovers) "
    "SELECT run_id, 1, 0, 1, 0 FROM rowlock.run_ready": "but its attempt has ended",
    "DELETE FROM rowlock.run_ready": "stands nowhere and has no final",
    "DELETE FROM rowlock.run": "but was never accepted",
    "UPDATE rowlock.worker SET fenced_at = now()": "which is fenced",
    "DELETE FROM rowlock.worker": "which is unknown",
    "DELETE FROM rowlock.run_event WHERE seq = 1": "has a gap in its history",
    "UPDATE rowlock.run_event SET epoch = 0 WHERE seq = 2": (
        "an epoch that went back in its history"
    ),
    "UPDATE rowlock.run_event SET epoch = 9": "history of a later epoch than its own",
    "INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, takeovers) "
    "SELECT run_id, 3, 1, 2, 0 FROM rowlock.run_lease": "misses the end of an earlier attempt",
    "UPDATE rowlock.run_ready SET blamed = 9": "is to blame for more losses than it may",
    "UPDATE rowlock.run_lease SET quarantined = true": "is leased among others, but is to be alone",
    "UPDATE rowlock.worker SET quarantine = true;"
    "INSERT INTO rowlock.run_lease SELECT q.*, l.worker_id, 1, now() "
    "FROM rowlock.run_ready q CROSS JOIN rowlock.run_lease l;"
    "DELETE FROM rowlock.run_ready": "shares a process of quarantine",
    "UPDATE rowlock.run_object SET run_id = 1": "is linked to a custom resource but was never",
    "UPDATE rowlock.run_dedup SET run_id = 1": "holds an idempotency key but was never accepted",
    "UPDATE rowlock.agent SET max_running = 1": "its agent has more runs than its cap allows",
    "UPDATE rowlock.agent SET max_running_per_key = 1; UPDATE rowlock.run_ready SET key = 'k'; "
    "UPDATE rowlock.run_lease SET key = 'k'": "its key has more runs than its cap allows",
    "INSERT INTO rowlock.run_parked SELECT q.*, '{suspended}', NULL FROM rowlock.run_ready q; "
    "DELETE FROM rowlock.run_ready": "is suspended, but nobody wishes that",
    "INSERT INTO rowlock.run_parked SELECT q.*, '{approval}', NULL FROM rowlock.run_ready q; "
    "DELETE FROM rowlock.run_ready": "is parked, but nothing would wake it",
    "INSERT INTO rowlock.run_attempt (run_id, attempt, asked_by) "
    "SELECT run_id, 2, '' FROM rowlock.run_lease": "an attempt that neither stands nor has ended",
    "UPDATE rowlock.run_ready SET revision = 0": "has an unshown change newer than its revision",
}


@pytest.mark.parametrize("damage", BROKEN)
async def test_broken_invariant_is_named(world: World, damage: str) -> None:
    worker, [run] = await world.running()
    await world.enqueue(linked=True, idempotency_key="k")
    await work.append(world.store, worker=worker, events=[step(run, 1), step(run, 2)])
    assert await invariants.violations(world.store) == []
    await raw_of(world.store).execute(damage)
    found = [problem for problem, _ in await invariants.violations(world.store)]
    assert any(BROKEN[damage] in problem for problem in found), found


async def test_epoch_that_goes_back_between_attempts_is_named(world: World) -> None:
    worker, [run] = await world.running()
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=60)])
    await world.sql("UPDATE rowlock.run_timer SET epoch = 0")
    found = {problem for problem, _ in await invariants.violations(world.store)}
    assert found == {"has an epoch that went back since an attempt ended"}
    await world.sql("DELETE FROM rowlock.run_timer")
    await world.sql(
        "INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, takeovers) "
        "VALUES ($1, 2, 0, 1, 0)",
        run.run_id,
    )
    found = {problem for problem, _ in await invariants.violations(world.store)}
    assert found == {"has an epoch that went back between attempts"}
