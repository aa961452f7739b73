"""What a person asks for is told to idle workers after its commit; a lost word costs only time."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.errors import StoreError
from rowlock.store.connection import Connection
from rowlock.store.nudges import CHANNEL, nudge
from rowlock.store.pooler import Line
from tests.integration.store.test_parking_caps import (
    WAYS,
    Way,
    wake_decided,
    wake_parked,
)
from tests.integration.store.world import World, pid

_LISTENS = "SELECT count(*) FROM pg_listening_channels()"


class Ear:
    """Hears on a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.words = 0
        self._heard = asyncio.Event()

    @classmethod
    async def on(cls, world: World) -> Ear:
        ear = cls(await world.connect())
        await ear.connection.listen(CHANNEL, ear.hear)
        return ear

    def hear(self) -> None:
        self.words += 1
        self._heard.set()

    async def hears(self) -> None:
        async with asyncio.timeout(10):
            await self._heard.wait()
        self._heard.clear()


@pytest.fixture
async def ear(world: World) -> Ear:
    return await Ear.on(world)


@pytest.mark.parametrize("way", [way for way in WAYS if way.values[0] is not wake_parked])
async def test_who_brings_a_run_back_tells_it_when_it_can_be_claimed(
    world: World, ear: Ear, way: Way
) -> None:
    worker, [run] = await world.running()
    back = await way(world, worker, run)
    assert ear.words == 0
    await back(world.store)
    await ear.hears()
    assert [again.run_id for again in await world.claim(worker)] == [run.run_id]


async def test_nothing_is_told_that_is_not_committed(world: World, ear: Ear) -> None:
    """A second answer brings nothing back, and a word of it would be noise."""
    worker, [run] = await world.running()
    back = await wake_decided(world, worker, run)
    await back(world.store)
    await ear.hears()
    await back(world.store)
    await nudge(world.store)
    await ear.hears()
    assert ear.words == 2


async def test_lost_session_listens_again_with_the_next_statement(world: World, ear: Ear) -> None:
    await world.sql("SELECT pg_terminate_backend($1, 5000)", pid(ear.connection))
    while True:
        try:
            await ear.connection.fetch("backend_pid")
            break
        except StoreError:
            continue
    await nudge(world.store)
    await ear.hears()


async def test_behind_a_pooler_nobody_listens(world: World) -> None:
    """The session belongs to the pooler, which would keep listening for whoever is next."""
    connection = await world.connect()
    connection._line = Line(pooled=True, prepares=True)
    await connection.listen(CHANNEL, _never)
    raw = connection._raw
    assert raw is not None
    assert await raw.fetchval(_LISTENS) == 0


async def test_word_that_cannot_be_sent_fails_nothing(world: World) -> None:
    connection = await world.connect()
    await connection.close()
    await nudge(connection)


def _never() -> None:
    raise AssertionError
