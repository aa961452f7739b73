"""Whatever comes in comes in once, and the answer says so."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from rowlock.errors import RowRejected
from rowlock.states import FenceReason
from rowlock.store import bodies, intake, workers
from rowlock.store.types import Enqueued, Submission
from tests.integration.store.world import CLUSTER, World, together


async def test_pool_and_agent_are_made_once(world: World) -> None:
    again = await intake.ensure_pool(world.store, namespace="team", name="default")
    agent = await intake.ensure_agent(
        world.store, namespace="team", name="support", entrypoint="m:a", spec=b"{}", digest="d1"
    )
    assert (again, agent) == (world.pool, (world.agent, world.revision))
    other = await intake.ensure_pool(world.store, namespace="other", name="default")
    assert other != world.pool


async def test_new_digest_is_a_new_revision_and_new_caps_belong_to_the_agent(world: World) -> None:
    agent, revision = await intake.ensure_agent(
        world.store, namespace="team", name="support", entrypoint="m:b", spec=b"{}", digest="d2",
        max_running=3,
    )  # fmt: skip
    assert agent == world.agent
    assert revision != world.revision
    assert (
        await world.value("SELECT max_running FROM rowlock.agent WHERE agent_id = $1", agent) == 3
    )


async def test_concurrent_declarations_agree(world: World) -> None:
    connections = [await world.connect() for _ in range(4)]
    declared = await together(
        *(
            intake.ensure_agent(
                c, namespace="n", name="a", entrypoint="m:a", spec=b"{}", digest="1"
            )
            for c in connections
        )
    )
    assert len(set(declared)) == 1
    pools = await together(*(intake.ensure_pool(c, namespace="n", name="p") for c in connections))
    assert len(set(pools)) == 1


async def test_enqueue_answers_in_the_order_asked_and_ids_rise(world: World) -> None:
    answers = await intake.enqueue(world.store, world.new(2500))
    assert {answer.outcome for answer in answers} == {Submission.CREATED}
    ids = [answer.run_id for answer in answers]
    assert ids == sorted(ids)
    assert await world.count("run_ready") == await world.count("run") == 2500
    await world.sound()


async def test_nothing_to_enqueue_is_fine(world: World) -> None:
    assert await intake.enqueue(world.store, []) == []


async def test_queued_run_holds_what_was_asked(world: World) -> None:
    [run] = await world.enqueue(
        key="customer-7",
        priority=-5,
        max_takeovers=2,
        queue_deadline_seconds=60.0,
        options=b'{"a":1}',
    )
    [row] = await world.sql(
        "SELECT *, queue_deadline - ready_at AS patience FROM rowlock.run_ready WHERE run_id = $1",
        run,
    )
    assert (row["key"], row["priority"], row["max_takeovers"]) == ("customer-7", -5, 2)
    assert (row["epoch"], row["attempt"], row["takeovers"]) == (0, 1, 0)
    assert row["patience"].total_seconds() == 60
    assert not row["linked"]
    assert await world.value("SELECT options FROM rowlock.run WHERE run_id = $1", run) == b'{"a":1}'


async def test_linked_run_is_a_visible_change_and_an_unlinked_one_is_not(world: World) -> None:
    [linked] = await world.enqueue(linked=True)
    [plain] = await world.enqueue()
    assert await world.changes(linked) == [1]
    assert await world.changes(plain) == []
    revision = "SELECT revision FROM rowlock.run_ready WHERE run_id = $1"
    assert await world.value(revision, linked) > 0
    assert await world.value(revision, plain) == 0


async def test_custom_resource_is_accepted_once(world: World) -> None:
    new = world.new(3, linked=True)
    first = await intake.enqueue(world.store, new)
    again = await intake.enqueue(world.store, [*reversed(new), *world.new(1, linked=True)])
    assert [a.outcome for a in again] == [Submission.EXISTS] * 3 + [Submission.CREATED]
    assert [a.run_id for a in again[:3]] == [a.run_id for a in reversed(first)]
    assert await world.count("run") == 4
    await world.sound()


async def test_custom_resource_twice_in_one_batch_is_one_run(world: World) -> None:
    [new] = world.new(1, linked=True)
    other_key = dataclasses.replace(new, idempotency_key="k")
    answers = await intake.enqueue(world.store, [new, new, other_key])
    assert [a.outcome for a in answers] == [
        Submission.CREATED,
        Submission.EXISTS,
        Submission.EXISTS,
    ]
    assert len({a.run_id for a in answers}) == 1
    await world.sound()


async def test_same_key_and_input_is_the_same_run(world: World) -> None:
    [new] = world.new(1, idempotency_key="order-1", input=bodies.encode({"order": 1}))
    [first] = await intake.enqueue(world.store, [new])
    assert (
        await intake.enqueue(world.store, [new, new])
        == [Enqueued(first.run_id, Submission.EXISTS)] * 2
    )
    await world.sound()


async def test_same_key_with_other_input_is_refused_and_names_the_holder(world: World) -> None:
    [holder] = world.new(1, linked=True, idempotency_key="order-1", input=b"1")
    [intruder] = world.new(1, linked=True, idempotency_key="order-1", input=b"2")
    [first] = await intake.enqueue(world.store, [holder])
    assert await intake.enqueue(world.store, [intruder]) == [
        Enqueued(first.run_id, Submission.DUPLICATE_KEY, f"team/{holder.name}")
    ]
    assert (
        await intake.run_ids_by_object(world.store, cluster=CLUSTER, uids=[str(intruder.uid)]) == {}
    )
    await world.sound()


async def test_same_key_and_input_of_another_custom_resource_is_refused(world: World) -> None:
    one, two = world.new(2, linked=True, idempotency_key="order-1")
    answers = await intake.enqueue(world.store, [one, two])
    assert [a.outcome for a in answers] == [Submission.CREATED, Submission.DUPLICATE_KEY]
    again = await intake.enqueue(world.store, [one])
    assert [a.outcome for a in again] == [Submission.EXISTS]
    await world.sound()


async def test_run_from_code_joins_the_run_of_a_custom_resource_with_its_key(world: World) -> None:
    [linked] = world.new(1, linked=True, idempotency_key="k")
    [plain] = world.new(1, idempotency_key="k")
    first, second = await intake.enqueue(world.store, [linked, plain])
    assert (second.outcome, second.run_id) == (Submission.EXISTS, first.run_id)


async def test_key_belongs_to_its_agent(world: World) -> None:
    agent, revision = await intake.ensure_agent(
        world.store, namespace="team", name="other", entrypoint="m:a", spec=b"{}", digest="1"
    )
    [new] = world.new(1, idempotency_key="k")
    other = dataclasses.replace(new, agent_id=agent, revision_id=revision)
    answers = await intake.enqueue(world.store, [new, other])
    assert {a.outcome for a in answers} == {Submission.CREATED}


async def test_key_counts_the_text_of_the_input_not_its_compressed_form(world: World) -> None:
    text = b'"' + b"x" * 5000 + b'"'
    packed, plain = world.new(1, idempotency_key="k", input=bodies.pack(text))[0], text
    answers = await intake.enqueue(world.store, [packed, dataclasses.replace(packed, input=plain)])
    assert [a.outcome for a in answers] == [Submission.CREATED, Submission.EXISTS]


async def test_key_of_an_uncommitted_batch_is_waited_for_and_found(world: World) -> None:
    connection = await world.connect()
    new = world.new(1, idempotency_key="k")[0]
    async with world.store.transaction():
        [first] = await intake.enqueue(world.store, [new])
        waiting = asyncio.create_task(intake.enqueue(connection, [new]))
        await world.blocked(connection)
    [second] = await waiting
    assert second == Enqueued(first.run_id, Submission.EXISTS)
    await world.sound()


async def test_row_that_can_never_be_stored_is_named_and_leaves_nothing(world: World) -> None:
    bad = world.new(1, key="nul \0 inside")[0]
    with pytest.raises(RowRejected) as caught:
        await intake.enqueue(world.store, [*world.new(2), bad])
    assert caught.value.sqlstate.startswith("22")
    assert await world.count("run") == 0


async def test_run_ids_are_found_by_custom_resource(world: World) -> None:
    new = world.new(2, linked=True)
    runs = [a.run_id for a in await intake.enqueue(world.store, new)]
    uids = [run.uid for run in new if run.uid]
    found = await intake.run_ids_by_object(world.store, cluster=CLUSTER, uids=[*uids, "unknown"])
    assert found == dict(zip(uids, runs, strict=True))
    assert await intake.run_ids_by_object(world.store, cluster="other", uids=uids) == {}


async def test_missing_partition_is_made_in_passing(own_world: World) -> None:
    parts = await own_world.sql(
        "SELECT oid::regclass::text AS name FROM pg_class WHERE relispartition AND relkind = 'r'"
    )
    for part in parts:
        await own_world.sql("DROP TABLE " + part["name"])
    await own_world.enqueue(2)
    assert await own_world.count("run") == 2
    assert await intake.ensure_partitions(own_world.store, ahead=7) == 3 * 6
    assert await intake.ensure_partitions(own_world.store, ahead=7) == 0


async def test_queue_deadline_fails_what_nobody_took(world: World) -> None:
    [late] = await world.enqueue(linked=True, queue_deadline_seconds=30.0)
    [patient] = await world.enqueue(queue_deadline_seconds=90.0)
    [endless] = await world.enqueue()
    assert await intake.expire_queued(world.store) == []
    await world.later(60)
    assert await intake.expire_queued(world.store) == [late]
    final = await world.final(late)
    assert (final["status"], final["reason"], final["attempt"]) == (2, "QueueDeadlineExceeded", 1)
    assert await world.changes(late) == [1, 9]
    assert await world.places([patient, endless]) == {"ready"}
    await world.sound()


async def test_queue_deadline_ends_with_the_first_claim(world: World) -> None:
    worker, [run] = await world.running(queue_deadline_seconds=30.0)
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    await world.later(60)
    assert await intake.expire_queued(world.store) == []
    assert await world.place(run.run_id) == "ready"
