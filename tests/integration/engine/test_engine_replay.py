"""What a new owner of a run reads, writes and repeats."""

from __future__ import annotations

import json
import signal

import msgspec

from rowlock.states import EventKind, FinalStatus
from rowlock.store import intake, work, workers
from rowlock.store.types import Event, NewWorker
from tests.workers import Bench, bench_fixture  # noqa: F401


async def test_finished_steps_answer_from_history_and_are_not_run_again(bench: Bench) -> None:
    first = bench.worker()
    [run] = await bench.enqueue("walker", steps=30, gates=[29])
    await bench.waiting("29")
    first.process.send_signal(signal.SIGTERM)
    bench.open_gate("29")
    await first.ends()
    bench.worker()
    final = await bench.final(run)
    assert json.loads(final["result"]) == sum(range(30))
    assert len(bench.effects()) == 30
    assert final["step"] == 30
    await bench.healthy()


async def test_an_entry_that_a_lost_owner_wrote_already_is_not_written_again(bench: Bench) -> None:
    """Two owners are lost one after the other; the second had written of the first's loss."""
    pool = await intake.ensure_pool(bench.store, namespace="", name="default")
    [run] = await bench.enqueue("walker", steps=1)
    store = bench.store
    for number in (1, 2):
        [worker] = await workers.register(
            store, [NewWorker(pool, f"lost-{number}/0", f"lost-{number}", 1, "b", 3600)]
        )
        claimed = await work.claim(store, worker=worker, pool=pool, token=1, limit=1)
        assert claimed
        [lease] = claimed
        if number == 2:
            [entry] = lease.carry
            event = Event(run, 1, 2, 1, EventKind.TAKEN_OVER, f"64:{entry.epoch}", 1, None, b"{}")
            await work.append(store, worker=worker, events=[event])
        await workers.leave(store, worker) if number == 2 else await workers.fence_instance(
            store, instance="lost-1"
        )
    bench.worker()
    final = await bench.final(run)
    assert (final["status"], final["epoch"]) == (FinalStatus.SUCCEEDED, 3)
    history = await bench.history(run)
    assert [(row["kind"], row["key"]) for row in history[:2]] == [
        (EventKind.TAKEN_OVER, "64:1"),
        (EventKind.HANDED_OVER, "65:2"),
    ]
    body = msgspec.json.decode(history[1]["body"])
    assert (body["from"], body["reason"], body["step"]) == ("lost-2", "Left", 0)
    await bench.healthy()
