"""`rowlock.testing`: a scripted model at a model's pace, a history that can lose its process."""

from __future__ import annotations

import asyncio

import pytest

from rowlock import ModelRequest, ModelTurn, PermanentError, ToolCall, Usage
from rowlock.errors import TooLarge
from rowlock.states import EventKind
from rowlock.testing import Crashed, MemoryJournal, ScriptedModel, StillClock, tool_call
from rowlock.testing.voices import Voices

DONE = EventKind.STEP_DONE


def ask(turn: int, emitted: list[str] | None = None) -> ModelRequest:
    """Return a request."""
    emit = (emitted if emitted is not None else []).append
    return ModelRequest(turn, (b'{"role":"user","content":"hi"}',), b"[]", None, emit)


async def test_a_script_may_hold_all_kinds_of_turns() -> None:
    """Text, one call, several, a whole turn, or a function of the conversation."""
    whole = ModelTurn("x", usage=Usage(1, 2, 3))
    call = tool_call("a", x=1)
    model = ScriptedModel([
        "text", call, [call, call], whole, lambda request: request.message(-1)["content"],
    ])  # fmt: skip

    turns = [await model.turn(ask(number)) for number in range(1, 6)]

    assert [turn.text for turn in turns] == ["text", "", "", "x", "hi"]
    assert [len(turn.tool_calls) for turn in turns] == [0, 1, 2, 0, 0]
    assert turns[3] == whole
    assert call == ToolCall("call_a", "a", '{"x":1}')
    assert model.calls == 5


async def test_any_process_can_go_on_with_a_script() -> None:
    """The number of the turn decides, not how often this object was asked."""
    assert (await ScriptedModel(["one", "two"]).turn(ask(2))).text == "two"


async def test_a_script_that_is_over_fails_for_good() -> None:
    """No retry brings another turn."""
    with pytest.raises(PermanentError, match="Turn 2"):
        await ScriptedModel(["one"]).turn(ask(2))


async def test_an_instant_model_does_not_wait() -> None:
    """Its text comes in one piece."""
    clock, emitted = StillClock(), list[str]()
    await ScriptedModel(["hello"], clock=clock).turn(ask(1, emitted))

    assert (clock.slept, emitted) == ([], ["hello"])


async def test_a_paced_model_takes_a_models_time() -> None:
    """Seconds to the first token, then its tokens."""
    clock, emitted = StillClock(), list[str]()
    turn = ModelTurn("x" * 1000, usage=Usage(0, 60))
    model = ScriptedModel([turn], first_token_seconds=0.6, tokens_per_second=60, clock=clock)

    await model.turn(ask(1, emitted))

    assert clock.monotonic() == pytest.approx(1.6)
    assert "".join(emitted) == turn.text


class HeldClock:
    """A clock whose waits end when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self._held = asyncio.Event()

    def monotonic(self) -> float:
        """Return what the test set."""
        return self.now

    async def sleep(self, _seconds: float) -> None:
        """Wait for `release`."""
        await self._held.wait()

    def release(self, now: float) -> None:
        """End the waits that have begun, at `now`."""
        self.now = now
        held, self._held = self._held, asyncio.Event()
        held.set()


async def test_a_paced_text_comes_in_pieces_while_its_turn_waits() -> None:
    """Nothing before the first token; then as much as the time says; the rest at its end."""
    clock, said = HeldClock(), list[str]()
    voices = Voices(clock)
    turn = asyncio.create_task(
        voices.speak("abcdefghij", said.append, silent_seconds=1, seconds=10)
    )
    await asyncio.sleep(0)

    for clock.now in (100.5, 101.0, 103.5, 103.6, 109.0):
        voices.tick()
    assert said == ["ab", "cdefgh"]
    clock.release(111.0)
    await turn
    voices.tick()

    assert said == ["ab", "cdefgh", "ij"]


async def test_a_viewer_that_fails_fails_its_own_turn() -> None:
    """And the others that are being spoken go on."""
    clock, said = HeldClock(), list[str]()
    voices = Voices(clock)

    def fail(_piece: str) -> None:
        raise ConnectionError("nobody there")

    turns = [
        asyncio.create_task(voices.speak("abcd", emit, silent_seconds=0, seconds=4))
        for emit in (fail, said.append)
    ]
    await asyncio.sleep(0)
    clock.now = 102.0
    voices.tick()
    clock.release(104.0)
    failed, fine = await asyncio.gather(*turns, return_exceptions=True)

    assert (type(failed), fine, said) == (ConnectionError, None, ["ab", "cd"])


async def test_a_paced_call_takes_its_time_in_one_piece() -> None:
    """There is no text to show."""
    clock, emitted = StillClock(), list[str]()
    turn = ModelTurn("", (tool_call("a"),), Usage(0, 30))

    await ScriptedModel([turn], tokens_per_second=60, clock=clock).turn(ask(1, emitted))

    assert (clock.slept, emitted) == ([0.5], [])


@pytest.mark.parametrize("crash_at", [2, "b"])
async def test_a_journal_dies_where_it_is_told(crash_at: int | str) -> None:
    """The entry is lost, and nothing of that process is stored any more."""
    journal = MemoryJournal(crash_at=crash_at)
    await journal.write(DONE, "a", b"1")
    with pytest.raises(Crashed):
        await journal.write(DONE, "b", b"2")

    for late in (journal.boundary(), journal.write(DONE, "c", b"3"), journal.pause(1)):
        with pytest.raises(Crashed):
            await late
    with pytest.raises(Crashed):
        journal.note(DONE, "c", b"3")
    assert [entry.key for entry in journal.takeover().entries] == ["a"]


async def test_what_was_only_noted_dies_with_the_process() -> None:
    """It is stored with the next written entry, before it."""
    journal = MemoryJournal()
    journal.note(EventKind.PROGRESS, "n", b"1")

    assert journal.takeover().recall("n") is None
    await journal.write(DONE, "a", b"1")
    assert [entry.key for entry in journal.takeover().entries] == ["n", "a"]


async def test_a_successor_knows_the_run_by_its_number() -> None:
    """A takeover raises the epoch, a new attempt the attempt as well."""
    journal = MemoryJournal(run_id=7)

    assert (journal.takeover().run_id, journal.takeover().epoch) == (7, 2)
    assert (journal.takeover().attempt, journal.next_attempt().attempt) == (1, 2)


async def test_a_journal_has_a_cap() -> None:
    """As the real one has."""
    with pytest.raises(TooLarge, match="'a'"):
        await MemoryJournal(max_body_bytes=3).write(DONE, "a", b"1234")
