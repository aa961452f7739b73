"""Worker and operator can do all that is theirs, and nothing that is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from rowlock.errors import DatabaseRefused, StoreUnavailable
from rowlock.states import BatchStop, EventKind, FenceReason
from rowlock.store import (
    batch_rounds,
    batches,
    caps,
    changes,
    expiry,
    intake,
    invariants,
    pods,
    priority,
    queries,
    work,
    workers,
)
from rowlock.store.connection import Connection
from rowlock.store.types import Beat, Verdict
from tests.conftest import on_database
from tests.integration.store.world import World, copied_database, end, failure, raw_of, step


@pytest.fixture(scope="module")
def roles_dsn(postgres_url: str, template: str) -> Iterator[str]:
    """URL of the database that these tests share."""
    with copied_database(postgres_url, template) as url:
        yield url


@pytest.fixture
async def world(roles_dsn: str) -> AsyncIterator[World]:
    """A world of its owner; what other tests left in it does not matter here."""
    made = await World.create(roles_dsn)
    try:
        yield made
    finally:
        await made.close()


async def acting(world: World, role: str) -> Connection:
    """Return a connection that has this role's rights only."""
    connection = await world.connect()
    await raw_of(connection).execute(f"SET ROLE {role}")
    return connection


async def test_worker_role_runs_every_statement_of_a_worker(world: World) -> None:
    c = world.store = await acting(world, "rowlock_worker")
    assert await intake.ensure_pool(c, namespace="new", name="pool")
    await world.enqueue(6, linked=True, idempotency_key=None, queue_deadline_seconds=600.0)
    await world.enqueue(1, idempotency_key="k")
    worker, other = await world.worker(instance="a/0"), await world.worker(pod="uid")
    await workers.beat(c, [Beat(worker, 1, 1, 1, False)])
    runs = await world.claim(worker, 7)
    assert len(await work.bodies(c, [run.run_id for run in runs])) == 7
    await work.revision(c, runs[0].revision_id)
    await work.adopt(c, worker=worker, token=99, known=[])
    await work.append(c, worker=worker, events=[step(runs[0], 1, kind=EventKind.TAKEN_OVER)])
    await work.history(c, runs[0].run_id)
    await work.finish(c, worker=worker, events=[step(runs[0], 2)], finals=[end(runs[0])])
    await work.finish(c, worker=worker, events=[], finals=[failure(runs[1], retry_in=0)])
    again = await work.finish(c, worker=worker, events=[], finals=[end(runs[0])])
    assert again.finals == {runs[0].run_id: Verdict.ALREADY_DONE}
    for _ in range(2):
        await work.release(c, worker=worker, runs=[(runs[2].run_id, 1, 0)])
    await intake.request_cancel(c, [run.run_id for run in runs], by="test")
    assert await workers.wishes(c, [worker])
    await intake.cancel_waiting(c)
    await intake.expire_queued(c)
    await intake.wake_due(c)
    await intake.ensure_partitions(c, ahead=9)
    await workers.reap(c, gap_seconds=1e9)
    await workers.reap(c, gap_seconds=-1)
    await workers.fence_instance(c, instance="a")
    await workers.fence_pods(c, ["uid"], reason=FenceReason.WORKER_DELETED)
    await workers.fence(c, [other], reason=FenceReason.STALLED)
    await workers.leave(c, worker)
    await invariants.violations(c)


async def test_operator_role_runs_every_statement_of_the_operator(world: World) -> None:
    c = world.store = await acting(world, "rowlock_operator")
    await intake.ensure_pool(c, namespace="new", name="pool")
    for digest in ("1", "2"):
        await intake.ensure_agent(
            c, namespace="n", name="a", entrypoint="m:a", spec=b"{}", digest=digest,
            max_running=int(digest),
        )  # fmt: skip
    new = world.new(3, linked=True, idempotency_key=None)
    runs = [answer.run_id for answer in await intake.enqueue(c, new)]
    await intake.enqueue(c, new)
    await intake.run_ids_by_object(c, cluster="cluster", uids=["x"])
    await intake.request_cancel(c, runs[:1], by="test")
    await intake.cancel_waiting(c)
    await intake.expire_queued(c)
    await intake.wake_due(c)
    await intake.ensure_partitions(c)
    await workers.reap(c, gap_seconds=1e9)
    await workers.fence_pods(c, ["uid"], reason=FenceReason.WORKER_DELETED)
    found = await changes.unshown(c, limit=10)
    assert len(await changes.snapshots(c, runs)) == 3
    await changes.shown(c, [change.seq for change in found])
    await changes.objects(c, cluster="cluster", namespaces=None)
    await changes.recreate_changes(c, runs)
    await priority.set_priorities(c, {runs[1]: 7})
    await expiry.set_ttl(c, [expiry.TimeToLive(run, 1, 2) for run in runs])
    await expiry.set_ttl(c, [expiry.TimeToLive(runs[0], None)])
    await expiry.expired(c, cluster="cluster", limit=1)
    await expiry.live(c, cluster="cluster", uids=["x"])
    await expiry.collect(c)
    await pods.worker_pods(c, cluster="cluster")
    await pods.mark_node_lost(c, ["uid"], lost=True)
    await changes.unlink(c, runs[:1])
    await changes.pool_demand(c)
    await invariants.violations(c)


@pytest.mark.parametrize("role", ["rowlock_worker", "rowlock_operator"])
async def test_both_roles_promote_runs_of_capped_agents(world: World, role: str) -> None:
    world.pool = await intake.ensure_pool(world.store, namespace="own", name=role)
    world.agent, world.revision = await intake.ensure_agent(
        world.store, namespace="own", name=role, entrypoint="m:a", spec=b"{}", digest="d"
    )
    await world.cap(max_running=2, starts_per_minute_per_key=3)
    world.store = await acting(world, role)
    await world.enqueue(5, key="k", linked=True, cluster=role)
    worker = await world.worker()
    for expected in (2, 1):
        claimed = await world.claim(worker)
        assert len(claimed) == expected
        await world.finish(worker, claimed)
        await caps.promote_waiting(world.store)
    assert world.agent in await caps.capped_agents(world.store)
    assert await world.claim(worker) == []


@pytest.mark.parametrize("role", ["rowlock_worker", "rowlock_operator"])
async def test_both_roles_read_batches_and_move_them_on(world: World, role: str) -> None:
    c = world.store = await acting(world, role)
    [run] = world.new()
    new = batches.NewBatch(role, "uid", "team", "batch", run)
    item = batches.NewItem(1, "one", b"1")
    batch = await batches.accept(c, new, [item])
    assert (await batches.add_items(c, batch, [item])).open is False
    await batches.steer(c, batch, parallelism=1, max_failed_percent=5, suspended=True)
    await batch_rounds.advance_one(c, batch, period=0)
    await batches.steer(c, batch, parallelism=1, max_failed_percent=5, suspended=False)
    assert await batch_rounds.advance_one(c, batch, period=0) == 1
    await batches.stop(c, batch, BatchStop.CANCELLED, "test")
    for _ in range(2):
        await batch_rounds.advance_one(c, batch, period=0)
    [found] = await batches.statuses(c, [batch], failures=1)
    assert (found.finished_at is not None, found.cancelled) == (True, 1)


async def test_the_operator_alone_deletes_batches(world: World) -> None:
    [run] = world.new()
    new = batches.NewBatch("gone", "uid", "team", "batch", run)
    batch = await batches.accept(world.store, new, [batches.NewItem(1, "one", b"1")])
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await batches.purge(await acting(world, "rowlock_worker"), batch)
    assert not await batches.purge(await acting(world, "rowlock_operator"), batch)


@pytest.mark.parametrize("role", ["rowlock_worker", "rowlock_operator"])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM rowlock.run",
        "DELETE FROM rowlock.run_event",
        "DELETE FROM rowlock.run_final",
        "UPDATE rowlock.run_event SET body = NULL",
        "UPDATE rowlock.run_final SET status = 1",
        "UPDATE rowlock.run SET input = ''",
        "TRUNCATE rowlock.run_event",
        "DELETE FROM rowlock.worker",
        "DELETE FROM rowlock.migration",
        "CREATE TABLE rowlock.mine (n int)",
        "DROP TABLE rowlock.wish",
        "ALTER TABLE rowlock.run_ready ADD COLUMN mine int",
        "SELECT rowlock.grant_roles()",
        "SELECT rowlock.expire_day(current_date, interval '0')",
        "DELETE FROM rowlock.expired_day",
        "UPDATE rowlock.history_floor SET run_id = 0",
    ],
)
async def test_nobody_but_the_owner_changes_definitions_or_history(
    world: World, role: str, statement: str
) -> None:
    connection = await acting(world, role)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await raw_of(connection).execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM rowlock.run_change",
        "DELETE FROM rowlock.run_object",
        "UPDATE rowlock.agent SET max_running = 1",
        "INSERT INTO rowlock.agent (name) VALUES ('mine')",
    ],
)
async def test_worker_has_no_hand_in_what_is_the_operators(world: World, statement: str) -> None:
    connection = await acting(world, "rowlock_worker")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await raw_of(connection).execute(statement)


async def test_reader_sees_all_and_changes_nothing(world: World) -> None:
    connection = await acting(world, "rowlock_reader")
    for view in ("run_status", "stuck_leases", "repeat_takeovers", "pool_demand", "violations"):
        await raw_of(connection).fetch("TABLE rowlock." + view)
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await intake.ensure_pool(connection, namespace="n", name="p")


async def test_login_without_any_of_the_roles_is_told_which_to_ask_for(world: World) -> None:
    await world.sql("CREATE ROLE stranger LOGIN PASSWORD 'geheim'")
    try:
        scheme, _, rest = world.dsn.partition("://")
        stranger = f"{scheme}://stranger:geheim@{rest.rpartition('@')[2]}"
        with pytest.raises(DatabaseRefused, match="rowlock_worker"):
            await Connection.open(stranger, name="test")
        await world.sql("GRANT rowlock_worker TO stranger")
        connection = await Connection.open(stranger, name="test")
        await connection.close()
    finally:
        await world.sql("DROP ROLE stranger")


async def test_owner_that_may_not_create_roles_migrates_and_grants_later(postgres_url: str) -> None:
    """The roles belong to the server, so other tests made them; grants belong to the database."""
    from rowlock.store.migrate import migrate

    admin = await asyncpg.connect(postgres_url)
    await admin.execute("CREATE ROLE modest LOGIN PASSWORD 'geheim' NOCREATEROLE")
    await admin.execute("CREATE DATABASE modest_test OWNER modest")
    try:
        scheme, _, rest = on_database(postgres_url, "modest_test").partition("://")
        url = f"{scheme}://modest:geheim@{rest.rpartition('@')[2]}"
        assert await migrate(url)
        raw = await asyncpg.connect(url)
        await raw.execute("SELECT rowlock.grant_roles()")
        await raw.close()
    finally:
        await admin.execute("DROP DATABASE modest_test WITH (FORCE)")
        await admin.execute("DROP ROLE modest")
        await admin.close()


async def test_every_statement_names_only_what_is_there(world: World) -> None:
    for text in queries.load().values():
        await raw_of(world.store).prepare(text)
