"""Steps: recorded once, answered from history, tried again with care, never done twice unasked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from rowlock import (
    AgentDefinitionError,
    AgentError,
    NonDeterministic,
    NotStarted,
    OutcomeUnknown,
    PermanentError,
    Run,
    StepFailed,
    Usage,
    tool,
)
from rowlock.errors import TooLarge
from rowlock.states import EventKind
from rowlock.testing import Crashed, MemoryJournal, StillClock

INTENT, DONE, FAILED = EventKind.STEP_INTENT, EventKind.STEP_DONE, EventKind.STEP_FAILED


class Receipt(BaseModel):
    """A result with types that JSON does not have."""

    number: int
    at: datetime
    tags: set[str] = set()


@dataclass
class Note:
    """A result that is a dataclass."""

    text: str


class Provider:
    """The world outside, which counts what happens to it."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls: list[str] = []

    def effect(self, run: Run) -> Callable[..., Any]:
        """Return a function that fails as told, then succeeds."""

        async def act(amount: int) -> int:
            self.calls.append(run.call_id)
            if self.errors:
                raise self.errors.pop(0)
            return amount

        return act


async def double(number: int) -> int:
    """Return twice `number`."""
    return 2 * number


async def test_a_step_runs_once_and_is_answered_from_history() -> None:
    """The second pass calls nothing."""
    journal, provider = MemoryJournal(), Provider()

    for _ in range(2):
        run = Run(journal)
        assert await run.step("pay", provider.effect(run), 7, key="a") == 7
        journal = journal.takeover()

    assert provider.calls == ["1/pay:a/1"]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Receipt, Receipt(number=1, at=datetime(2026, 5, 4, tzinfo=UTC), tags={"a"}), None),
        (list[Receipt], [Receipt(number=1, at=datetime(2026, 5, 4, tzinfo=UTC))], None),
        (Note, Note("x"), None),
        (set[int], {3, 1}, None),
        (tuple[int, str], (1, "a"), None),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (float, 1, 1.0),
        (str, "ü\0", None),
        (int, 2**80, None),
        (type(None), None, None),
        (Any, Note("x"), {"text": "x"}),
        (Any, {3, 1}, [1, 3]),
        (Any, Receipt(number=1, at=datetime(2026, 5, 4, tzinfo=UTC)), None),
    ],
)
async def test_the_first_pass_sees_what_a_replay_sees(
    annotation: Any, value: Any, expected: Any
) -> None:
    """A result is read back from its own record before it is used."""

    async def make() -> Any:
        return value

    make.__annotations__["return"] = annotation
    journal = MemoryJournal()

    first = await Run(journal).step("make", make)
    replayed = await Run(journal.takeover()).step("make", make)

    assert first == replayed
    assert type(first) is type(replayed)
    if annotation is not Any or expected is not None:
        assert first == (value if expected is None else expected)


async def test_without_a_key_arguments_and_order_tell_steps_apart() -> None:
    """The number is given at the call, so it does not depend on who ends first."""
    journal, release = MemoryJournal(), asyncio.Event()
    order: list[int] = []

    async def read(page: int, late: bool) -> int:
        if late:
            await release.wait()
        else:
            release.set()
        order.append(page)
        return page

    run = Run(journal)
    await run.gather(run.step("read", read, 1, True), run.step("read", read, 2, False))
    await run.step("read", read, 2, False)

    assert order == [2, 1, 2]
    keys = [entry.key for entry in journal.entries]
    assert [key.rpartition(".")[2] for key in keys] == ["0", "0", "1"]
    assert len(set(keys)) == 3


async def test_steps_with_equal_arguments_are_numbered_at_the_call() -> None:
    """The coroutine that was made first is the first step, even when awaited last."""
    journal = MemoryJournal()
    run = Run(journal)

    first, second = run.step("double", double, 1), run.step("double", double, 1)
    await second
    await first

    assert [entry.key[-1] for entry in journal.entries] == ["1", "0"]


async def test_a_step_without_annotations_gives_plain_json() -> None:
    """A lambda's result is data, on the first pass too."""
    run = Run(MemoryJournal())

    made: Any = await run.step("plain", lambda: Note("x"), blocking=False)

    assert made == {"text": "x"}
    assert await run.step("awaitable", lambda: double(4), blocking=False) == 8


async def test_a_plain_function_runs_in_a_thread() -> None:
    """If asked to: the loop goes on; the call's id is known there as well."""
    run = Run(MemoryJournal())

    def where(number: int) -> tuple[int, str, bool]:
        return number, run.call_id, threading.current_thread() is threading.main_thread()

    assert await run.step("where", where, 3, key=1, blocking=False) == (3, "1/where:1/1", False)


async def test_bound_functions_keep_their_result_type() -> None:
    """What is no data is bound, not passed."""

    class Client:
        async def get(self, number: int) -> Note:
            return Note(str(number))

    async def fetch(client: Client, number: int) -> Note:
        return await client.get(number)

    run, client = Run(MemoryJournal()), Client()

    assert await run.step("method", client.get, 1) == Note("1")
    assert await run.step("partial", partial(fetch, client), 2) == Note("2")


async def test_a_function_that_asks_for_the_run_gets_it() -> None:
    """A first parameter annotated `Run` is filled in and is no part of the identity."""
    run = Run(MemoryJournal(run_id=42))

    assert await run.step("charge", charge, 5, key="x") == "42/charge:x/1 5"


async def charge(run: Run, cents: int) -> str:
    """Return the call's id and the amount."""
    return f"{run.call_id} {cents}"


async def test_arguments_that_are_no_data_are_refused() -> None:
    """The message names the step and says what to do."""
    run = Run(MemoryJournal())

    with pytest.raises(AgentError, match=r"'read'.*functools\.partial"):
        await run.step("read", double, object())


async def test_the_same_key_with_other_arguments_fails_the_run() -> None:
    """It is never run again silently."""
    journal = MemoryJournal()
    run = Run(journal)
    await run.step("double", double, 1, key="a")

    with pytest.raises(NonDeterministic, match="'double:a'"):
        await run.step("double", double, 2, key="a")

    assert await run.step("double", double, 1, key="a") == 2
    assert len(journal.entries) == 1


async def test_one_key_cannot_run_twice_at_once() -> None:
    """Both would find nothing in history, and both would act."""
    run, calls = Run(MemoryJournal()), []

    async def slow() -> None:
        calls.append(1)
        await asyncio.sleep(0)

    with pytest.raises(NonDeterministic, match="running already"):
        await run.gather(run.step("slow", slow, key="a"), run.step("slow", slow, key="a"))

    assert calls == [1]


async def test_a_step_cannot_start_a_step() -> None:
    """What it would record could not be found again if the outer one is answered from history."""
    run = Run(MemoryJournal())

    async def outer() -> int:
        return await run.step("inner", double, 1)

    with pytest.raises(StepFailed, match="inside a step"):
        await run.step("outer", outer)


async def test_retries_wait_and_are_counted() -> None:
    """1, 2, 4, 8 s within a quarter; the record keeps the number and the last reason."""
    journal, provider = (
        MemoryJournal(),
        Provider(OSError("a"), OSError("b"), OSError("c"), OSError("d")),
    )
    run = Run(journal)

    assert await run.step("pay", provider.effect(run), 1) == 1

    assert [round(wait / 2**n, 0) for n, wait in enumerate(journal.pauses)] == [1] * 4
    (entry,) = journal.entries
    assert (entry.kind, entry.tries) == (DONE, 5)
    assert msgspec.json.decode(entry.body)["error"] == "OSError: d"
    assert len(set(provider.calls)) == 1


async def test_a_step_that_uses_up_its_tries_fails_with_its_causes() -> None:
    """The author sees the last error as the cause; history has the whole chain."""
    journal = MemoryJournal()

    async def broken() -> None:
        try:
            raise KeyError("host")
        except KeyError as error:
            raise ConnectionError("no route") from error

    with pytest.raises(StepFailed, match="after 3 tries") as raised:
        await Run(journal).step("fetch", broken, key=1, retries=2)

    assert isinstance(raised.value.__cause__, ConnectionError)
    assert "ConnectionError: no route <- KeyError: 'host'" in str(raised.value)
    assert [(entry.kind, entry.tries) for entry in journal.entries] == [(FAILED, 3)]


@pytest.mark.parametrize(
    ("error", "retries"),
    [(PermanentError("gone"), 4), (OSError("gone"), 0), (SystemExit("gone"), 4)],
)
async def test_some_errors_are_not_retried(error: BaseException, retries: int) -> None:
    """A permanent error, no retries left, and code that wants to end the process."""
    journal, provider = MemoryJournal(), Provider(error)
    run = Run(journal)

    with pytest.raises(StepFailed, match="gone"):
        await run.step("pay", provider.effect(run), 1, retries=retries)

    assert len(provider.calls) == 1
    assert journal.pauses == []


async def test_a_recorded_failure_is_raised_again_in_its_attempt() -> None:
    """An agent that caught it goes the same way again; the function is not called."""
    journal, provider = MemoryJournal(), Provider(PermanentError("gone"), PermanentError("gone"))
    run = Run(journal)
    with pytest.raises(StepFailed) as first:
        await run.step("pay", provider.effect(run), 1)

    run = Run(journal.takeover())
    with pytest.raises(StepFailed) as second:
        await run.step("pay", provider.effect(run), 1)

    assert str(first.value) == str(second.value)
    assert len(provider.calls) == 1


async def test_a_failed_step_runs_again_in_the_next_attempt() -> None:
    """With the same call id, because no success was recorded; finished steps stay."""
    journal, provider = MemoryJournal(), Provider(PermanentError("not now"))
    run = Run(journal)
    await run.step("double", double, 1, key="a")
    with pytest.raises(StepFailed):
        await run.step("pay", provider.effect(run), 1, key="b", side_effects="idempotent")

    run = Run(journal.next_attempt())
    await run.step("double", double, 1, key="a")

    assert await run.step("pay", provider.effect(run), 1, key="b", side_effects="idempotent") == 1
    assert provider.calls == ["1/pay:b/1"] * 2


async def test_the_call_number_rises_after_a_recorded_success() -> None:
    """Another call under the same key, in a later attempt, is another call to the provider."""
    journal, provider = MemoryJournal(), Provider()
    run = Run(journal)
    await run.step("pay", provider.effect(run), 1, key="b")

    run = Run(journal.next_attempt())
    await run.step("pay", provider.effect(run), 2, key="b")

    assert provider.calls == ["1/pay:b/1", "1/pay:b/2"]


async def test_a_result_that_does_not_fit_fails_the_step() -> None:
    """The effect has happened: it is not repeated to see whether it fits the next time."""
    journal = MemoryJournal()
    calls: list[int] = []

    async def lie() -> int:
        calls.append(1)
        return "seven"  # type: ignore[return-value]

    with pytest.raises(StepFailed, match="does not fit"):
        await Run(journal).step("lie", lie)

    assert calls == [1]
    assert journal.entries[-1].kind is FAILED


async def test_a_record_of_other_code_is_not_taken_for_a_result() -> None:
    """A new build that changed a return type finds out, instead of working with the wrong data."""
    journal = MemoryJournal()
    await Run(journal).step("make", double, 1, key="a")

    async def other(number: int) -> Receipt:
        raise AssertionError(number)

    with pytest.raises(NonDeterministic, match="'make:a'"):
        await Run(journal.takeover()).step("make", other, 1, key="a")


async def test_a_timeout_ends_a_try() -> None:
    """The next one follows; the reason names the limit."""
    journal = MemoryJournal()

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StepFailed, match=r"timeout of 0.001 s"):
        await Run(journal).step("hang", hang, timeout=0.001, retries=1)

    assert len(journal.pauses) == 1


async def test_a_timeout_of_the_functions_own_is_an_ordinary_error() -> None:
    """Its message is kept."""

    async def own() -> None:
        raise TimeoutError("the bank is slow")

    with pytest.raises(StepFailed, match="the bank is slow"):
        await Run(MemoryJournal()).step("own", own, timeout=60, retries=0)


async def test_an_idempotent_step_records_its_intent_first() -> None:
    """One intent, however often it is tried."""
    journal, provider = MemoryJournal(), Provider(OSError("a"))
    run = Run(journal)

    await run.step("pay", provider.effect(run), 1, key="a", side_effects="idempotent")

    assert journal.kinds("pay:a") == [INTENT, DONE]


async def test_an_idempotent_step_is_repeated_with_the_same_call_id() -> None:
    """After a crash between its effect and its record."""
    journal, provider = MemoryJournal(crash_at="pay:a"), Provider()
    run = Run(journal)
    with pytest.raises(Crashed):
        await run.step("pay", provider.effect(run), 1, key="a", side_effects="idempotent")

    journal = journal.takeover()
    run = Run(journal)

    assert await run.step("pay", provider.effect(run), 1, key="a", side_effects="idempotent") == 1
    assert provider.calls == ["1/pay:a/1"] * 2
    assert journal.kinds("pay:a") == [INTENT, DONE]


async def test_a_step_that_may_happen_once_is_not_repeated_after_a_crash() -> None:
    """Nobody knows whether it happened, and the agent is told so, now and at every replay."""
    journal, provider = MemoryJournal(crash_at="pay:a"), Provider()
    run = Run(journal)
    with pytest.raises(Crashed):
        await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent")

    messages = set()
    for _ in range(3):
        journal = journal.takeover()
        run = Run(journal)
        with pytest.raises(OutcomeUnknown, match="may or may not") as raised:
            await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent")
        messages.add(str(raised.value))

    assert len(provider.calls) == len(messages) == 1
    assert journal.kinds("pay:a") == [INTENT, FAILED]


@pytest.mark.parametrize(
    "error", [ConnectionError("cut off"), TimeoutError("late"), ValueError("x")]
)
async def test_an_error_of_what_may_happen_once_is_as_unknown_as_a_crash(error: Exception) -> None:
    """One try; no attempt ever repeats it."""
    journal, provider = MemoryJournal(), Provider(error)
    run = Run(journal)
    with pytest.raises(OutcomeUnknown, match=type(error).__name__):
        await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent")

    run = Run(journal.next_attempt())
    with pytest.raises(OutcomeUnknown):
        await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent")

    assert len(provider.calls) == 1


async def test_what_has_surely_not_begun_is_tried_again() -> None:
    """Each try is announced; between two of them history says that nothing has happened."""
    journal, provider = MemoryJournal(), Provider(NotStarted("busy"), NotStarted("busy"))
    run = Run(journal)

    await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent")

    assert journal.kinds("pay:a") == [INTENT, FAILED, INTENT, FAILED, INTENT, DONE]
    assert len(journal.pauses) == 2


async def test_a_crash_before_the_next_try_leaves_no_doubt() -> None:
    """The run goes on with the try that was due."""
    provider = Provider(NotStarted("busy"))
    journal = MemoryJournal()
    run = Run(journal)
    await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent")

    run = Run(journal.takeover(entries=2))

    assert (
        await run.step("pay", provider.effect(run), 1, key="a", side_effects="non_idempotent") == 1
    )
    assert len(provider.calls) == 3


async def test_a_cancelled_step_records_nothing() -> None:
    """What it was doing is unknown, so its intent stands alone."""
    journal, begun = MemoryJournal(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(
        Run(journal).step("hang", hang, key=1, side_effects="non_idempotent")
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert journal.kinds("hang:1") == [INTENT]


async def test_a_tool_brings_its_own_side_effects() -> None:
    """A step that calls one does not weaken what its author declared."""
    journal = MemoryJournal()

    @tool(side_effects="idempotent")
    async def send(run: Run, text: str) -> str:
        return f"{text} {run.call_id}"

    assert await Run(journal).step("send", send, "hi", key=1) == "hi 1/send:1/1"
    assert journal.kinds("send:1") == [INTENT, DONE]


async def test_a_tool_brings_its_own_retries_and_timeout() -> None:
    """Unless the step says otherwise."""

    @tool(side_effects="none", retries=1, timeout=0.001)
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    with pytest.raises(StepFailed, match=r"after 2 tries.*timeout of 0.001 s"):
        await Run(MemoryJournal()).step("hang", hang)
    with pytest.raises(StepFailed, match=r"at the first try.*timeout of 0.002 s"):
        await Run(MemoryJournal()).step("hang", hang, retries=0, timeout=0.002)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"retries": -1}, "retries"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
async def test_options_without_sense_are_refused(options: Any, problem: str) -> None:
    """Before anything is called; the message names the step."""
    with pytest.raises(AgentDefinitionError, match=f"'work'.*{problem}"):
        await Run(MemoryJournal()).step("work", asyncio.sleep, 0, **options)


@pytest.mark.parametrize("name", ["sleep", "progress"])
async def test_names_of_a_runs_own_entries_are_no_steps(name: str) -> None:
    """Else a step and a sleep with one key would be taken for each other."""
    with pytest.raises(AgentError, match=f"'{name}'"):
        await Run(MemoryJournal()).step(name, asyncio.sleep, 0, key="one")


@pytest.mark.parametrize("used", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
async def test_nothing_is_given_back(used: tuple[int, int, int]) -> None:
    """A budget could be talked away."""
    with pytest.raises(AgentError, match="from 0 on"):
        Run(MemoryJournal()).count_usage(*used)


async def test_unknown_side_effects_are_refused() -> None:
    """The message lists the known ones."""
    with pytest.raises(AgentError, match="non_idempotent"):
        Run(MemoryJournal()).step("x", double, 1, side_effects="maybe")  # type: ignore[call-overload]


async def test_a_result_over_the_cap_fails_the_run() -> None:
    """No retry makes it smaller."""

    async def big() -> str:
        return "x" * 100

    with pytest.raises(TooLarge):
        await Run(MemoryJournal(max_body_bytes=50)).step("big", big)


async def test_gather_lets_siblings_settle_then_raises_the_first_error() -> None:
    """First in the order of arguments, whoever failed first; what was begun is recorded."""
    journal, late = MemoryJournal(), asyncio.Event()
    run = Run(journal)

    async def fail(name: str, wait: bool) -> None:
        if wait:
            await late.wait()
        else:
            late.set()
        raise PermanentError(name)

    async def slow() -> str:
        await late.wait()
        return "done"

    with pytest.raises(StepFailed, match="first"):
        await run.gather(
            run.step("a", fail, "first", True),
            run.step("b", fail, "second", False),
            run.step("c", slow),
        )

    assert sorted(entry.kind for entry in journal.entries) == [DONE, FAILED, FAILED]


async def test_gather_bounds_how_many_run_at_once() -> None:
    """Results come in the order of arguments."""
    run, running, peak = Run(MemoryJournal()), set[int](), 0

    async def read(page: int) -> int:
        nonlocal peak
        running.add(page)
        peak = max(peak, len(running))
        await asyncio.sleep(0)
        running.discard(page)
        return page

    pages = await run.gather(*(run.step("read", read, n) for n in range(9)), limit=3)

    assert pages == list(range(9))
    assert peak == 3


async def test_gather_refuses_a_limit_that_lets_nothing_run() -> None:
    """And leaves no coroutine behind that was never awaited."""
    run = Run(MemoryJournal())

    with pytest.raises(ValueError, match="at least 1"):
        await run.gather(run.step("double", double, 1), limit=0)


async def test_a_cancelled_gather_leaves_no_step_unawaited() -> None:
    """Also those that were still waiting for their turn."""
    run, begun = Run(MemoryJournal()), asyncio.Event()

    async def hang(number: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run.gather(*(run.step("hang", hang, n) for n in range(4)), limit=1))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_step_says_of_quality_and_usage_is_kept_with_it() -> None:
    """A replay counts what the first pass counted, though it calls nothing."""
    journal = MemoryJournal()

    async def summarize(run: Run) -> str:
        run.count_usage(10, 2, 7)
        run.mark_degraded("two pages were missing")
        return "short"

    run = Run(journal)
    await run.step("sum up", partial(summarize, run))
    run.count_usage(1, 1)
    replay = journal.takeover()
    again = Run(replay)
    await again.step("sum up", partial(summarize, again))

    assert run.usage == Usage(11, 3, 7)
    assert again.usage == Usage(10, 2, 7)
    assert (journal.usage, replay.usage) == ((11, 3, 7), (10, 2, 7))
    assert again._result(b"1").degraded == ("two pages were missing",)


async def test_what_an_earlier_attempt_used_is_not_forgotten() -> None:
    """A step that failed after paying, then succeeds, has cost both."""
    journal, errors = MemoryJournal(), [PermanentError("no")]

    async def ask(run: Run) -> str:
        run.count_usage(10, 1)
        if errors:
            raise errors.pop()
        return "yes"

    run = Run(journal)
    with pytest.raises(StepFailed):
        await run.step("ask", partial(ask, run), key=1)
    run = Run(journal.next_attempt())
    await run.step("ask", partial(ask, run), key=1)

    assert run.usage == Usage(20, 2)


async def test_progress_is_recorded_once() -> None:
    """A replay that comes by the same place again adds no second line."""
    journal = MemoryJournal()
    run = Run(journal)
    run.progress("half way")
    run.progress("half way")
    await run.step("double", double, 1)
    replay = journal.takeover()
    run = Run(replay)
    run.progress("half way")
    run.progress("half way")
    run.progress("nearly")
    await run.step("double", double, 2)

    lines = [
        msgspec.json.decode(entry.body)["text"]
        for entry in replay.entries
        if entry.kind is EventKind.PROGRESS
    ]
    assert lines == ["half way", "half way", "nearly"]


async def test_text_is_shown_and_not_stored() -> None:
    """Live text never reaches history."""
    journal = MemoryJournal()
    Run(journal).text("Hel")

    assert (journal.published, journal.entries) == (["Hel"], [])


async def test_there_is_no_call_outside_a_step() -> None:
    """Its id would name nothing."""
    run = Run(MemoryJournal(run_id=5, attempt=2))

    assert (run.id, run.attempt) == ("5", 2)
    with pytest.raises(AgentError, match="while a step"):
        _ = run.call_id


async def test_a_call_id_is_short_ascii_whatever_the_key() -> None:
    """It goes into HTTP headers."""
    run, provider = Run(MemoryJournal()), Provider()

    await run.step("zahlen", provider.effect(run), 1, key="Größe")
    await run.step("pay", provider.effect(run), 1, key="x" * 500)

    assert all(call.isascii() and len(call) < 150 for call in provider.calls)
    assert len(set(provider.calls)) == 2


async def test_how_long_a_step_took_is_recorded() -> None:
    """By the clock that was given, in milliseconds."""
    journal, clock = MemoryJournal(), StillClock()

    async def wait() -> None:
        await clock.sleep(1.5)

    await Run(journal, clock=clock).step("wait", wait, key=1)

    assert journal.durations == {"wait:1": 1500}
