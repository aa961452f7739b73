"""Whose code the event loop executes can be seen from outside, in whatever task it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

from rowlock.engine.board import RUN, Board
from rowlock.engine.onloop import OnLoop, tasks_on


@pytest.fixture
async def board() -> AsyncIterator[Board]:
    """A board that the tasks of this test's loop write to."""
    board = Board.create()
    loop = asyncio.get_running_loop()
    loop.set_task_factory(tasks_on(board.cells))
    yield board
    loop.set_task_factory(None)
    board.close()


async def run(board: Board, run_id: int, seen: list[int], *, branches: int = 0) -> None:
    """Behave as a run does: look at the board, wait, start tasks."""
    seen.append(board.cells[RUN])
    await asyncio.sleep(0)
    seen.append(board.cells[RUN])
    await asyncio.gather(*(run(board, run_id, seen, branches=0) for _ in range(branches)))


async def test_a_run_shows_while_its_code_is_executed_and_only_then(board: Board) -> None:
    one: list[int] = []
    two: list[int] = []
    tasks = [
        asyncio.create_task(OnLoop(run(board, run_id, seen), board.cells, run_id))
        for run_id, seen in ((7, one), (8, two))
    ]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        assert board.cells[RUN] == 0
    assert (one, two) == ([7, 7], [8, 8])


async def test_tasks_that_a_run_starts_show_it_and_so_do_theirs(board: Board) -> None:
    seen: list[int] = []

    async def starts() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run(board, 7, seen, branches=2))

    await asyncio.create_task(OnLoop(starts(), board.cells, 7))
    assert seen == [7] * 6
    assert board.cells[RUN] == 0


async def test_a_task_that_no_run_starts_shows_nobody(board: Board) -> None:
    seen: list[int] = []
    await asyncio.create_task(run(board, 0, seen), name="ours")
    assert seen == [0, 0]


async def test_a_run_that_is_cancelled_shows_while_it_cleans_up(board: Board) -> None:
    seen: list[int] = []

    async def body() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(board.cells[RUN])

    task = asyncio.create_task(OnLoop(body(), board.cells, 7))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (seen, board.cells[RUN]) == ([7], 0)


async def test_libraries_see_a_coroutine(board: Board) -> None:
    """Such as anyio, which asks whether a task has begun."""
    told: list[str] = []

    async def body() -> str:
        task = asyncio.current_task()
        assert task is not None
        told.append(inspect.getcoroutinestate(task.get_coro()))  # type: ignore[arg-type]
        return "done"

    task = asyncio.create_task(OnLoop(body(), board.cells, 7), name="theirs")
    assert inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_CREATED  # type: ignore[arg-type]
    assert "body" in repr(task)
    assert await task == "done"
    assert told == [inspect.CORO_RUNNING]
    assert task.get_name() == "theirs"
