"""Who holds the event loop is named, with the line; who is only busy is not."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest
import structlog

from rowlock import Run
from rowlock.engine.blocked import BLOCKED_SECONDS, QUIET_SECONDS, Blocker, BlockWatch, blocker
from rowlock.engine.board import TICK, Board
from rowlock.engine.onloop import OnLoop
from rowlock.testing import MemoryJournal

HERE = __file__


class Seen:
    """Collects what a watch says while the loop of this test is held."""

    def __init__(self) -> None:
        self.board = Board.create()
        self.watch = BlockWatch(self.board, threading.get_ident())
        self.now = 0.0

    def look(self, after: float = BLOCKED_SECONDS) -> Blocker | None:
        """Look once more, `after` seconds later."""
        self.now += after
        return self.watch.look(self.now)

    def tick(self) -> None:
        """The loop ticks."""
        self.board.cells[TICK] += 1


async def within_a_step(do: Callable[[], None], *, name: str = "hold") -> None:
    """Call `do` on the loop, in a step, as an author who does not know better."""

    async def hold() -> None:
        await asyncio.sleep(0)
        do()

    await Run(MemoryJournal(run_id=7)).step(name, hold, key="one")


async def test_the_step_that_holds_the_loop_is_named_with_its_line() -> None:
    """Also after it has been suspended."""
    seen, named = Seen(), []

    def do() -> None:
        seen.look()
        named.extend([seen.look(), seen.look()])

    with structlog.testing.capture_logs() as logs:
        await within_a_step(do)

    assert named[1] is not None
    assert (named[1].run, named[1].step) == ("7", "hold:one")
    assert f"{HERE}:" in named[1].where
    assert "within_a_step.<locals>.hold" in named[1].where
    [entry] = logs
    assert (entry["log_level"], entry["run"], entry["step"]) == ("warning", "7", "hold:one")
    assert "plain `def`" in entry["event"]


async def test_one_look_is_not_enough() -> None:
    """What is busy for a moment may be met by chance."""
    seen, named = Seen(), []
    await within_a_step(lambda: named.extend([seen.look(), seen.look()]))

    assert named == [None, None]


async def test_a_loop_that_ticks_is_not_held() -> None:
    """However long the step takes in all."""
    seen, named = Seen(), []

    def do() -> None:
        for _ in range(5):
            seen.tick()
            named.append(seen.look())

    await within_a_step(do)

    assert named == [None] * 5


async def test_a_short_hold_is_not_worth_a_warning() -> None:
    """Below a quarter of a second."""
    seen, named = Seen(), []
    await within_a_step(lambda: named.extend(seen.look(0.05) for _ in range(5)))

    assert named == [None] * 5


async def test_a_line_is_named_once_a_minute() -> None:
    """A step that blocks in each of a thousand runs fills no log."""
    seen, named = Seen(), []
    await within_a_step(lambda: named.extend(seen.look() for _ in range(6)))
    assert len([one for one in named if one]) == 1

    await within_a_step(lambda: named.append(seen.look(QUIET_SECONDS)))
    assert named[-1] is not None


async def test_an_agents_own_code_is_named_by_its_run() -> None:
    """It may block between its steps, too."""
    found: list[Blocker | None] = []

    async def agent() -> None:
        found.append(blocker(sys._getframe()))

    await asyncio.create_task(OnLoop(agent(), Board.create().cells, 9))

    [named] = found
    assert named is not None
    assert (named.run, named.step) == ("9", "")
    assert "agent" in named.where


async def test_a_loop_without_a_run_is_nobodys() -> None:
    """Our own code, or none."""
    assert blocker(sys._getframe()) is None
    assert blocker(None) is None


@pytest.mark.timeout(60)
async def test_the_thread_sees_a_loop_that_is_really_held() -> None:
    """By a step that waits, without awaiting, until it has been named."""
    board, named = Board.create(), threading.Event()
    watch = BlockWatch(board, threading.get_ident())

    class Listener:
        def __call__(self, _: object, __: str, event: structlog.typing.EventDict) -> None:
            if event.get("step") == "hold:one":
                named.set()
            raise structlog.DropEvent

    configured = structlog.get_config()
    structlog.configure(processors=[Listener()], cache_logger_on_first_use=False)
    watch.start()
    try:
        await within_a_step(lambda: assert_(named.wait(30)))
    finally:
        watch.stop()
        structlog.configure(**configured)


def assert_(held: bool) -> None:
    """Fail if nobody came."""
    assert held
