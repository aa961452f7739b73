"""A pool of real executor processes: what ends in them, what ends them, what they leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rowlock import NotStarted
from rowlock.agents.blocking import arguments_of
from rowlock.agents.crossing import BlockingAnswer, BlockingCall, Kind
from rowlock.agents.located import locate
from rowlock.engine.board import Board, Groups
from rowlock.engine.executor_process import GRACE_SECONDS
from rowlock.engine.executors import Executors
from rowlock.engine.frames import Setup
from rowlock.errors import ExecutorLost
from rowlock.metrics import Tally
from tests import blocking_for_tests as plain
from tests.workers import ROOT, eventually

#: A machine that is busy with other things may need so much longer than it should.
PATIENCE = 10.0


class Pool:
    """Executors and all they need."""

    def __init__(self, *, size: int = 1, max_calls: int = 100, max_result: int = 1 << 20) -> None:
        self.tally = Tally()
        self.board = Board.create()
        self.executors = Executors(
            Setup(0, max_result, "json", "INFO"),
            size=size,
            max_calls=max_calls,
            groups=Groups(self.board),
            tally=self.tally,
        )

    async def call(
        self, fn: Callable[..., Any], *args: Any, timeout: float | None = None
    ) -> BlockingAnswer:
        """Take a seat, make one call, leave."""
        call = BlockingCall(
            *locate(fn, owner="a test"),
            as_tool=False,
            arguments=arguments_of(fn, False).dump(args),
            run_id=1,
            attempt=1,
            call_id="1/x/1",
            timeout=timeout,
        )
        seat = await self.executors.seat(plain.__name__)
        try:
            return await seat.call(call)
        finally:
            seat.leave()

    async def value(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Return the value of a call that has one."""
        answer = await self.call(fn, *args)
        assert answer.trouble is None, answer.trouble
        return json.loads(answer.body)


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors import what this process imports."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/worker-image:{ROOT}")


@pytest.fixture
async def pools() -> AsyncIterator[Callable[..., Pool]]:
    """A way to make pools; none is left at the end."""
    made: list[Pool] = []

    def make(**options: int) -> Pool:
        made.append(Pool(**options))
        return made[-1]

    yield make
    for pool in made:
        await pool.executors.close()
        assert pool.board.groups() == []
        pool.board.close()


def effects(folder: Path) -> list[list[str]]:
    """Return what happened."""
    file = folder / "effects"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


async def happened(folder: Path, what: str) -> int:
    """Wait for an effect and return its last field, a process id."""

    async def look() -> int | None:
        return next((int(effect[-1]) for effect in effects(folder) if effect[0] == what), None)

    return await eventually(look, f"effect {what}")


def is_running(pid: int) -> bool:
    """Does the process exist, and not as a zombie?"""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int, within: float = PATIENCE) -> None:
    """Wait until a process is gone."""
    await eventually(lambda: asyncio.sleep(0, not is_running(pid)), f"the end of {pid}", within)


async def test_a_process_is_started_when_needed_and_used_again(pools: Callable[..., Pool]) -> None:
    pool = pools(size=4)
    assert pool.board.groups() == []
    first = await pool.value(plain.who)
    assert pool.board.groups() == [first]
    assert first != os.getpid()
    assert await pool.value(plain.who) == first
    counted = dict(pool.tally.take())
    assert counted[("rowlock_executor_starts_total", "first")] == 1
    assert counted[("rowlock_executor_calls_total", "done")] == 2


async def test_it_leads_a_group_of_its_own_and_yields_to_the_loops(
    pools: Callable[..., Pool],
) -> None:
    pool = pools()
    pid = await pool.value(plain.who)
    assert os.getpgid(pid) == pid
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert await pool.value(plain.oom_score) >= 500


async def test_calls_beyond_the_seats_wait_in_their_order(
    pools: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pools(size=2)
    names = ["a", "b", "c", "d"]
    calls = []
    for name in names:
        calls.append(asyncio.create_task(pool.value(plain.waits, str(tmp_path), name)))
        await asyncio.sleep(0)
    await happened(tmp_path, "a")
    await happened(tmp_path, "b")
    assert (pool.executors.busy, pool.executors.waiting) == (2, 2)
    (tmp_path / "gate-b").touch()
    await happened(tmp_path, "c")
    assert [effect[0] for effect in effects(tmp_path)][-1] == "c"
    for name in names:
        (tmp_path / f"gate-{name}").touch()
    pids = await asyncio.gather(*calls)
    assert len(set(pids)) == 2
    assert (pool.executors.busy, pool.executors.waiting) == (0, 0)


async def test_a_process_is_replaced_after_so_many_calls(pools: Callable[..., Pool]) -> None:
    pool = pools(max_calls=2)
    pids = [await pool.value(plain.who) for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    await gone(pids[0])
    assert dict(pool.tally.take())[("rowlock_executor_starts_total", "respawn")] == 2


@pytest.mark.parametrize("fn", [plain.spin, plain.grind, plain.hash_long])
async def test_a_call_that_never_returns_is_ended_at_its_deadline(
    pools: Callable[..., Pool], tmp_path: Path, fn: Callable[[str], None]
) -> None:
    pool = pools()
    await pool.value(plain.who)  # imports are not part of the deadline
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"within its timeout of 0\.3 s"):
        await pool.call(fn, str(tmp_path), timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 0.3 + GRACE_SECONDS + PATIENCE
    [[_, pid]] = effects(tmp_path)
    assert not is_running(int(pid))  # a second try never overlaps with the first
    counted = dict(pool.tally.take())
    assert counted[("rowlock_executor_kills_total", "timeout")] == 1
    assert counted[("rowlock_executor_calls_total", "timeout")] == 1
    assert await pool.value(plain.add, 1, 2) == 3
    assert dict(pool.tally.take())[("rowlock_executor_starts_total", "respawn")] == 1


async def test_a_tree_of_processes_ends_with_its_call(
    pools: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pools()
    calling = asyncio.create_task(pool.call(plain.grow_tree, str(tmp_path)))
    tree = tmp_path / "tree"
    await eventually(
        lambda: asyncio.sleep(0, tree.exists() and len(tree.read_text().split()) == 2), "a tree"
    )
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    for pid in [await happened(tmp_path, "tree"), *map(int, tree.read_text().split())]:
        await gone(pid)


async def test_a_cancelled_call_may_clean_up_and_nobody_waits_for_it(
    pools: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pools()
    calling = asyncio.create_task(pool.call(plain.cleans_up, str(tmp_path)))
    pid = await happened(tmp_path, "begun")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert pool.executors.busy == 0
    await gone(pid)
    assert effects(tmp_path)[-1] == ["cleaned"]
    assert dict(pool.tally.take())[("rowlock_executor_kills_total", "cancelled")] == 1


async def test_a_seat_is_free_only_when_its_process_is_gone(
    pools: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pools()
    calling = asyncio.create_task(pool.call(plain.grind, str(tmp_path)))
    pid = await happened(tmp_path, "grind")
    calling.cancel()
    assert await pool.value(plain.add, 1, 1) == 2
    assert not is_running(pid)


@pytest.mark.parametrize(
    ("how", "words"), [("fatal", "SIGSEGV ended it"), ("leaves", "it left with exit code 9")]
)
async def test_the_death_of_an_executor_is_the_calls_alone(
    pools: Callable[..., Pool], tmp_path: Path, how: str, words: str
) -> None:
    pool = pools(size=2)
    neighbour = asyncio.create_task(pool.value(plain.waits, str(tmp_path), "gate"))
    await happened(tmp_path, "gate")
    with pytest.raises(ExecutorLost, match=words):
        await pool.call(plain.fails, how)
    (tmp_path / "gate-gate").touch()
    assert await neighbour
    assert dict(pool.tally.take())[("rowlock_executor_calls_total", "lost")] == 1


async def test_a_killed_executor_is_replaced(pools: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pools()
    calling = asyncio.create_task(pool.call(plain.waits, str(tmp_path), "gate"))
    os.kill(await happened(tmp_path, "gate"), signal.SIGKILL)
    with pytest.raises(ExecutorLost, match="SIGKILL ended it, perhaps for want of memory"):
        await calling
    assert await pool.value(plain.add, 1, 2) == 3


async def test_an_executor_that_died_while_idle_costs_no_call(pools: Callable[..., Pool]) -> None:
    pool = pools()
    os.kill(first := await pool.value(plain.who), signal.SIGKILL)
    assert await pool.value(plain.who) != first
    assert "not_started" not in {key[-1] for key, _ in pool.tally.take()}


async def test_what_cannot_be_imported_surely_did_not_start(
    pools: Callable[..., Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("raise SystemExit('no')\n")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/worker-image:{ROOT}:{tmp_path}")
    pool = pools()
    call = BlockingCall("only_here", "f", False, b"[]", 1, 1, "1/x/1")
    seat = await pool.executors.seat(plain.__name__)
    answer = await seat.call(call)
    seat.leave()
    assert answer.trouble is not None
    assert (answer.trouble.kind, answer.trouble.links) == (
        Kind.NOT_STARTED,
        [("SystemExit", "no")],
    )
    assert await pool.value(plain.add, 1, 2) == 3


async def test_a_machine_that_refuses_processes_lets_nothing_start(
    pools: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools()
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(NotStarted, match="no executor process can be started: No such file"):
        await pool.call(plain.who)
    monkeypatch.undo()
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/worker-image:{ROOT}")
    assert await pool.value(plain.add, 1, 2) == 3


async def test_a_result_over_the_cap_is_an_error_of_its_call(pools: Callable[..., Pool]) -> None:
    pool = pools(max_result=2000)
    assert len(await pool.value(plain.fills, 1998)) == 1998
    answer = await pool.call(plain.fills, 1999)
    assert answer.trouble is not None
    assert answer.trouble.kind is Kind.TOO_LARGE
    assert answer.trouble.links[0][1] == "the result has 2001 bytes, at most 2000 are stored"


async def test_a_tool_that_forks_answers_once(pools: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pools()
    assert await pool.value(plain.forks, str(tmp_path)) == 1
    assert {effect[0] for effect in effects(tmp_path)} == {"parent", "child"}
    assert await pool.value(plain.add, 1, 2) == 3  # and not a second answer to the first call


async def test_what_is_printed_goes_to_the_log_and_not_into_the_channel(
    pools: Callable[..., Pool], capfd: pytest.CaptureFixture[str]
) -> None:
    await pools().value(plain.prints, "x")
    out, err = capfd.readouterr()
    assert out == ""
    *lines, child = sorted(err.splitlines(), key=lambda line: line.startswith("child"))
    assert child == "child x"
    logged = [json.loads(line) for line in lines]
    said = {(line["message"], line.get("stream"), line.get("line")) for line in logged}
    assert said == {
        ("A tool printed", "stdout", "out x"),
        ("A tool printed", "stdout", "no end"),
        ("A tool printed", "stderr", "err x"),
        ("logged x", None, None),
    }
    assert {(line["run"], line["call"]) for line in logged} == {("1", "1/x/1")}


async def test_closing_ends_calls_and_their_children(
    pools: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pools(size=2)
    idle = await pool.value(plain.who)
    calls = [
        asyncio.create_task(pool.call(plain.grow_tree, str(tmp_path))),
        asyncio.create_task(pool.call(plain.spin, str(tmp_path))),
    ]
    await happened(tmp_path, "spin")
    tree = tmp_path / "tree"
    await eventually(
        lambda: asyncio.sleep(0, tree.exists() and len(tree.read_text().split()) == 2), "a tree"
    )
    await pool.executors.close()
    for pid in [idle, *pool.board.groups(), *map(int, tree.read_text().split())]:
        await gone(pid)
    for call in calls:
        with pytest.raises(ExecutorLost):
            await call
