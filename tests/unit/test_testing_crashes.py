"""A worker dies at any named point; another one goes on, and nothing that finished is repeated."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.support import agent as example
from rowlock import ChatAgent, Run, agent, tool
from rowlock.agents.protocol import Agent
from rowlock.options import RunOptions
from rowlock.states import ChangeKind, EventKind, FailureReason, FinalStatus
from rowlock.testing import (
    CrashAt,
    NeverReached,
    Point,
    ScriptedModel,
    Trial,
    tool_call,
)

TICKET = {"order_id": "1001", "message": "It is broken."}
STEPS = [
    "model:1",
    "lookup_order:1.0",
    "model:2",
    "check_refund_policy:2.0",
    "model:3",
    "issue_refund:3.0",
    "model:4",
]
OF_INTENTS = (Point.BEFORE_INTENT, Point.AFTER_INTENT)
OF_WAITS = (Point.BEFORE_PARK, Point.AFTER_PARK)
#: Everywhere a worker of the support agent can die: only the refund announces itself.
EVERYWHERE = [
    CrashAt(point, nth)
    for point in Point
    if point not in OF_WAITS
    for nth, key in enumerate(STEPS, 1)
    if (point.of_step or nth == 1)
    and (point not in OF_INTENTS or key == "issue_refund:3.0")
]  # fmt: skip


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep refunds in a file of this test."""
    path = tmp_path / "refunds.jsonl"
    monkeypatch.setenv("SUPPORT_LEDGER", str(path))
    return path


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def assert_sound(trial: Trial) -> None:
    """Assert what must hold of every run that succeeded, however many workers it lost."""
    assert trial.store.tables.violations() == []
    assert [event.seq for event in trial.history] == list(range(1, len(trial.history) + 1))
    assert len(trial.ends) == 1, "a run ends once"
    assert trial.final is not None
    assert trial.final.status is FinalStatus.SUCCEEDED
    assert max(Counter(trial.steps).values()) == 1, "a step that finished is not done again"
    taken = [event for event in trial.history if event.kind is EventKind.TAKEN_OVER]
    assert len(taken) <= trial.takeovers


async def crash(trial: Trial, at: CrashAt) -> list[str]:
    """Let a worker die there; return the steps that have finished by then."""
    life = await trial.run(crash_at=at)
    assert life.crashed_at == at
    return trial.steps


@pytest.mark.parametrize("at", EVERYWHERE, ids=lambda at: f"{at.point}-{at.step}")
async def test_wherever_its_worker_dies_the_run_ends_once(at: CrashAt, ledger: Path) -> None:
    trial = await Trial.begin(example.support, TICKET)
    finished = await crash(trial, at)
    await trial.run()

    assert_sound(trial)
    assert trial.steps == STEPS
    assert trial.result["refunded_cents"] == 21880
    assert trial.lives[1].begun == tuple(STEPS[len(finished) :])
    assert [line["cents"] for line in lines(ledger)] == [21880], "money moves once"
    calls = lines(ledger.with_name(ledger.name + ".calls"))
    assert {call["key"] for call in calls} == {f"{trial.run_id}/issue_refund:3.0/1"}


@pytest.mark.parametrize("second", EVERYWHERE[::3], ids=lambda at: f"{at.point}-{at.step}")
@pytest.mark.parametrize("first", [CrashAt(Point.AFTER_EFFECT, 3), CrashAt(Point.AFTER_COMMIT, 6)])
async def test_the_next_worker_may_die_too(first: CrashAt, second: CrashAt, ledger: Path) -> None:
    trial = await Trial.begin(example.support, TICKET)
    await crash(trial, first)
    try:
        await crash(trial, second)
    except NeverReached:
        left = STEPS[len(trial.steps) - len(trial.lives[1].begun) :]
        assert second.point.of_step
        assert second.point in OF_INTENTS or int(second.step) > len(left)
    else:
        await trial.run()

    assert_sound(trial)
    assert trial.steps == STEPS
    assert len(lines(ledger)) == 1


async def test_the_points_without_a_step_are_met_by_every_worker() -> None:
    trial = await Trial.begin(example.support, TICKET, max_takeovers=9)
    for point in Point:
        if not (point.of_step or point in (*OF_WAITS, Point.AFTER_FINISH)):
            await crash(trial, CrashAt(point))
    await trial.run()

    assert trial.takeovers == 3, "before its claim a worker has nothing to lose"
    assert_sound(trial)


async def test_a_point_that_is_never_reached_is_an_error() -> None:
    trial = await Trial.begin(example.support, TICKET)
    with pytest.raises(NeverReached, match="without coming to"):
        await trial.run(crash_at=CrashAt(Point.AFTER_EFFECT, 99))

    assert_sound(trial)


@pytest.mark.parametrize("step", ["issue_refund:3.0", "issue_refund"])
async def test_a_step_can_be_named(step: str) -> None:
    trial = await Trial.begin(example.support, TICKET)
    finished = await crash(trial, CrashAt(Point.AFTER_INTENT, step))

    assert finished == STEPS[:5]


async def test_the_takeover_is_written_into_history_and_shown() -> None:
    trial = await Trial.begin(example.support, TICKET, linked=True)
    await crash(trial, CrashAt(Point.AFTER_STEP, 2))
    await trial.run()

    [taken] = [event for event in trial.history if event.kind is EventKind.TAKEN_OVER]
    body = json.loads(taken.body or b"")
    assert (body["from"], body["to"], body["step"]) == ("worker-1", "worker-2", 2)
    assert [change.kind for change in await trial.store.unshown(limit=99)] == [
        ChangeKind.QUEUED,
        ChangeKind.CLAIMED,
        ChangeKind.WORKER_LOST,
        ChangeKind.CLAIMED,
        ChangeKind.TAKEN_OVER,
        ChangeKind.ENDED,
    ]


async def test_a_run_that_loses_its_worker_too_often_fails() -> None:
    trial = await Trial.begin(example.support, TICKET, max_takeovers=1)
    for _ in range(2):
        await crash(trial, CrashAt(Point.BEFORE_STEP))
    await trial.run()

    assert trial.final is not None
    assert trial.final.reason == FailureReason.TAKEOVER_LIMIT_REACHED
    with pytest.raises(AssertionError, match="TakeoverLimitReached"):
        _ = trial.result


async def test_after_two_deaths_the_run_goes_on_alone() -> None:
    trial = await Trial.begin(example.support, TICKET)
    for _ in range(3):
        await crash(trial, CrashAt(Point.BEFORE_STEP, 2))
    await trial.run()

    assert alone(trial) == [False, False, True, True]
    assert_sound(trial)


async def test_a_run_that_lived_long_enough_alone_goes_back_among_the_others() -> None:
    @agent(name="lasting")
    async def lasting(run: Run) -> int:
        await run.step("first", one)
        for _ in range(10):
            await run.sleep(4)  # too short to leave the process for
        await run.sleep(86_400)
        return await run.step("second", one)

    trial = await Trial.begin(lasting)
    for _ in range(2):
        await crash(trial, CrashAt(Point.BEFORE_START))
    await trial.run()

    assert trial.result == 1
    assert trial.takeovers == 2
    assert alone(trial) == [False, False, True, False], "one worker, by two of its processes"
    assert trial.lives[-1].begun == tuple(trial.steps)
    assert trial.store.tables.violations() == []


def alone(trial: Trial) -> list[bool]:
    """Tell of each process that there was whether it is one of quarantine."""
    return [worker.new.quarantine for worker in trial.store.tables.workers.values()]


# -------------------------------------------------------------------- what a death is


class Witness:
    """Notes what happens."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.beside = asyncio.Event()

    def note(self, what: str) -> None:
        self.seen.append(what)

    def agent(self) -> Agent:
        """Return an agent with clean-up, a branch of its own and a task that it never awaits."""

        async def first() -> int:
            await self.beside.wait()
            self.note("first")
            return 1

        async def slow() -> int:
            self.note("slow begins")
            try:
                await asyncio.sleep(0.02)
            finally:
                self.note("slow cleans up")
            return 2

        async def beside() -> None:
            try:
                while True:
                    await asyncio.sleep(0)
                    self.note("beside")
                    self.beside.set()
            finally:
                self.note("beside cleans up")

        @agent(name="witnessed")
        async def witnessed(run: Run) -> int:
            background = asyncio.get_running_loop().create_task(beside())
            try:
                results = await run.gather(run.step("slow", slow), run.step("first", first))
            except BaseException as error:
                self.note(f"caught {type(error).__name__}")
                raise
            finally:
                self.note("agent cleans up")
                background.cancel()
            return sum(results)

        return witnessed


async def test_nothing_of_a_dead_process_runs_again() -> None:
    """No `finally`, no other branch, no background task: neither now nor when memory is freed."""
    witness = Witness()
    trial = await Trial.begin(witness.agent())
    await crash(trial, CrashAt(Point.AFTER_EFFECT, "first"))
    seen = list(witness.seen)
    gc.collect()
    await asyncio.sleep(0.03)  # longer than `slow` would still have taken
    gc.collect()

    assert witness.seen == seen
    assert {"slow begins", "first", "beside"} == set(seen)
    assert len(asyncio.all_tasks()) == 1, "no task of the process is left"


async def test_the_next_worker_does_what_the_dead_one_left() -> None:
    witness = Witness()
    trial = await Trial.begin(witness.agent())
    await crash(trial, CrashAt(Point.AFTER_COMMIT, "first"))
    await trial.run()

    assert trial.result == 3
    assert witness.seen.count("first") == 1, "finished, so it is read back"
    assert witness.seen.count("slow begins") == 2, "it was under way when its process died"
    assert [name.partition("#")[0] for name in trial.lives[1].begun] == ["slow"]


async def test_a_worker_that_lives_cleans_up() -> None:
    witness = Witness()
    trial = await Trial.begin(witness.agent())
    await trial.run()

    assert {"slow cleans up", "agent cleans up"} <= set(witness.seen)
    assert asyncio.get_running_loop().get_task_factory() is None


# -------------------------------------------------------------------- rules of steps


def mailer(sent: list[str], side_effects: Any) -> ChatAgent:
    """Return an agent that sends one mail."""

    @tool(side_effects=side_effects)
    async def send(run: Run, to: str) -> str:
        """Send a mail."""
        sent.append(run.call_id)
        return "sent"

    def conclude(request: Any) -> str:
        return str(request.message(-1)["content"])

    return ChatAgent(
        name="mailer",
        model=ScriptedModel([tool_call("send", to="ada"), conclude]),
        instructions="Send a mail.",
        tools=[send],
    )


async def test_an_idempotent_effect_is_repeated_under_its_own_name() -> None:
    sent: list[str] = []
    trial = await Trial.begin(mailer(sent, "idempotent"), "go")
    await crash(trial, CrashAt(Point.AFTER_EFFECT, "send"))
    await trial.run()

    assert sent == [f"{trial.run_id}/send:1.0/1"] * 2


@pytest.mark.parametrize("point", [Point.AFTER_INTENT, Point.AFTER_EFFECT])
async def test_an_effect_that_may_happen_once_is_not_repeated(point: Point) -> None:
    """Nobody can know whether it happened, so the model is told just that."""
    sent: list[str] = []
    trial = await Trial.begin(mailer(sent, "non_idempotent"), "go")
    await crash(trial, CrashAt(point, "send"))
    await trial.run()

    assert len(sent) == (point is Point.AFTER_EFFECT)
    assert "may or may not have happened" in trial.result


async def test_before_its_intent_such_an_effect_is_surely_not_done() -> None:
    sent: list[str] = []
    trial = await Trial.begin(mailer(sent, "non_idempotent"), "go")
    await crash(trial, CrashAt(Point.BEFORE_INTENT, "send"))
    await trial.run()

    assert (len(sent), trial.result) == (1, "sent")


def failing(times: int) -> Callable[[], Agent]:
    """Return a maker of agents whose first attempts fail."""

    def make() -> Agent:
        @agent(name="failing")
        async def fails(run: Run) -> int:
            if run.attempt <= times:
                raise ValueError(f"attempt {run.attempt}")
            return run.attempt

        return fails

    return make


async def test_another_attempt_follows_without_waiting() -> None:
    options = RunOptions(max_attempts=3, retry_backoff_seconds=600)
    trial = await Trial.begin(failing(2)(), options=options)
    await trial.run()

    assert trial.result == 3
    assert [end.status for end in trial.ends] == [
        FinalStatus.FAILED,
        FinalStatus.FAILED,
        FinalStatus.SUCCEEDED,
    ]
    assert trial.clock.monotonic() >= 600  # two waits of at most 300 s


async def test_an_agent_that_fails_for_good_has_no_result() -> None:
    trial = await Trial.begin(failing(9)())
    await trial.run()

    with pytest.raises(AssertionError, match="ValueError: attempt 1"):
        _ = trial.result


async def test_tries_of_a_step_do_not_wait() -> None:
    tried: list[int] = []

    async def flaky() -> int:
        tried.append(1)
        if len(tried) < 4:
            raise ConnectionError("away")
        return len(tried)

    @agent(name="patient")
    async def patient(run: Run) -> int:
        return await run.step("flaky", flaky)

    trial = await Trial.begin(patient)
    await trial.run()

    assert trial.result == 4
    assert trial.clock.monotonic() >= 5


def double(number: int) -> int:
    """Return twice as much; at the top of the module, where an executor finds it."""
    return number * 2


async def test_blocking_steps_run_too() -> None:
    @agent(name="doubling")
    async def doubling(run: Run, number: int) -> int:
        return await run.step("double", double, number)

    trial = await Trial.begin(doubling, 21)
    await crash(trial, CrashAt(Point.AFTER_EFFECT, "double"))
    await trial.run()

    assert trial.result == 42


# -------------------------------------------------------------------- waits


@agent(name="napping")
async def napping(run: Run) -> int:
    """Sleep for a day between two steps."""
    first = await run.step("first", one)
    await run.sleep(86_400)
    return first + await run.step("second", one)


async def one() -> int:
    """Return 1."""
    return 1


async def test_a_day_of_sleep_passes_at_once() -> None:
    trial = await Trial.begin(napping)
    await trial.run()

    assert trial.result == 2
    assert trial.takeovers == 0
    assert trial.clock.monotonic() == pytest.approx(86_400, abs=5)
    assert trial.store.tables.violations() == []


@pytest.mark.parametrize("point", [Point.BEFORE_PARK, Point.AFTER_PARK])
async def test_a_worker_may_die_while_it_lets_a_run_sleep(point: Point) -> None:
    trial = await Trial.begin(napping)
    await crash(trial, CrashAt(point))
    await trial.run()

    assert_sound(trial)
    assert trial.result == 2
    assert trial.takeovers == (point is Point.BEFORE_PARK)
    assert [step.partition("#")[0] for step in trial.steps] == ["first", "second"]


def careful(paid: list[str]) -> ChatAgent:
    """Return an agent that asks before it pays."""

    @tool(side_effects="idempotent", approval="always")
    async def pay(run: Run, cents: int) -> str:
        """Pay."""
        paid.append(run.call_id)
        return f"paid {cents}"

    return ChatAgent(
        name="careful",
        model=ScriptedModel([tool_call("pay", cents=5), lambda r: r.message(-1)["content"]]),
        instructions="Pay.",
        tools=[pay],
    )


@pytest.mark.parametrize("point", [Point.BEFORE_PARK, Point.AFTER_PARK, Point.AFTER_EFFECT])
async def test_a_person_is_asked_once_and_the_payment_is_made_once_approved(point: Point) -> None:
    paid: list[str] = []
    trial = await Trial.begin(careful(paid), "go")
    if point is not Point.AFTER_EFFECT:
        await crash(trial, CrashAt(point))
    await trial.run()
    [question] = await trial.questions()
    assert (question.tool, paid) == ("pay", [])
    assert trial.final is None
    await trial.decide("pay", by="ada")
    if point is Point.AFTER_EFFECT:
        await crash(trial, CrashAt(point, "pay"))
    await trial.run()

    assert trial.result == "paid 5"
    assert set(paid) == {f"{trial.run_id}/pay:1.0/1"}
    assert await trial.questions() == []
    assert_sound(trial)


async def test_a_question_that_nobody_asked_cannot_be_answered() -> None:
    trial = await Trial.begin(careful([]), "go")
    with pytest.raises(LookupError, match="no open question"):
        await trial.decide("pay")


async def test_a_run_that_waits_for_a_person_never_comes_to_its_end() -> None:
    trial = await Trial.begin(careful([]), "go")
    with pytest.raises(NeverReached):
        await trial.run(crash_at=CrashAt(Point.BEFORE_FINISH))
    with pytest.raises(AssertionError, match="not over"):
        _ = trial.result
