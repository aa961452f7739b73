"""A real worker that rests leaves all work to others, and says how hard its models press."""

from __future__ import annotations

import os
import signal

from rowlock.states import FinalStatus
from rowlock.store import intake, scaling
from tests.workers import LONG, Bench, bench_fixture, eventually  # noqa: F401


async def carriers(bench: Bench) -> set[str]:
    """Run twenty runs and return the pods that carried them."""
    for run in await bench.enqueue("walker", count=20, steps=2):
        assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    rows = await bench.sql.fetch(
        "DELETE FROM rowlock.run_final f USING rowlock.worker w "
        "WHERE w.worker_id = f.worker_id RETURNING w.pod_uid"
    )
    await bench.sql.execute("DELETE FROM rowlock.run")
    return {row["pod_uid"] for row in rows}


async def test_a_worker_that_rests_leaves_the_work_to_others_also_after_a_crash(
    bench: Bench,
) -> None:
    resting, _ = [
        bench.worker(*LONG, environment={"ROWLOCK_POD_UID": pod, "ROWLOCK_POD_NAME": pod})
        for pod in ("pod-a", "pod-b")
    ]
    await bench.claiming(2)
    pool = await intake.ensure_pool(bench.store, namespace="", name="default")
    await scaling.rest_pods(bench.store, pool, ["pod-a"], seconds=3600)
    assert await carriers(bench) == {"pod-b"}
    query = "SELECT max(worker_id) FROM rowlock.worker WHERE pod_uid = 'pod-a'"
    before = await bench.sql.fetchval(query)
    os.kill(resting.loops()[0], signal.SIGKILL)
    await bench.moves_on(query, before)
    assert await carriers(bench) == {"pod-b"}
    await scaling.rest_pods(bench.store, pool, ["pod-b"], seconds=3600)
    assert await carriers(bench) == {"pod-a"}


async def test_beats_say_how_often_steps_are_told_to_come_again(bench: Bench) -> None:
    bench.worker()
    await bench.enqueue("refused", count=3)

    async def refused() -> bool:
        [found] = await scaling.pool_signals(bench.store, late_ms=100, full_percent=90)
        return found.refused >= 5 and found.refused == found.tries

    await eventually(refused, "five refused tries", said=bench.said)
