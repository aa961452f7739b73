"""A run's history in memory: run an agent against it, let it die at any entry, go on from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rowlock.agents.performing import ThreadSeat
from rowlock.agents.protocol import Entry, Question, Reply, Seat
from rowlock.errors import TooLarge
from rowlock.options import RunOptions
from rowlock.states import EventKind
from rowlock.testing.clock import StillClock
from rowlock.testing.store.single import SingleRun

_DEFAULT_CAP = 16 * 1024 * 1024


class Crashed(BaseException):
    """The process of the run died here; no agent code may catch it, so it is no `Exception`."""


class Parked(BaseException):
    """The run waits for a person: see `MemoryJournal.questions`."""


class MemoryJournal:
    """The history of one run, with the promises that the real one keeps.

    Time passes only where the run waits, and then at once.
    A question that nobody has answered ends the run with `Parked`:
    answer it with `decide`, and go on with `takeover`.
    A noted entry is lost in a crash unless a written one followed it, as it may be in the real one.

    Parameters
    ----------
    entries
        What was stored before.
    crash_at
        Die at this write, when the effect has happened and is not stored:
        its number in this journal's life, from 1, or the key of a step whose end is written.
    max_body_bytes
        Cap of an entry's body.

    Attributes
    ----------
    clock
        Passes only where the run waits.
    pauses, sleeps
        Seconds of every wait between two tries, and of every `run.sleep`; none is really waited.
    questions
        Open ones, by their step.
    published
        Live text.
    durations
        Milliseconds of each finished step, by its key.
    usage
        Tokens in, tokens out, millionths of a US dollar.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        run_id: int = 1,
        attempt: int = 1,
        epoch: int = 1,
        options: RunOptions | None = None,
        crash_at: int | str | None = None,
        max_body_bytes: int = _DEFAULT_CAP,
    ) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.epoch = epoch
        self.options = options or RunOptions()
        self.pauses: list[float] = []
        self.sleeps: list[float] = []
        self.questions: dict[str, Question] = {}
        self.clock = StillClock()
        self._stored_run = SingleRun(self.clock, run_id, attempt=attempt, epoch=epoch)
        self._replies: dict[tuple[str, str], tuple[int, Reply]] = {}
        self._written_at: dict[str, float] = {}
        self.published: list[str] = []
        self.durations: dict[str, int] = {}
        self.usage = (0, 0, 0)
        self._newest: dict[str, Entry] = {}
        self._seq = 0
        self._stored_run.append(*map(self._remembered, entries))
        self._noted: list[Entry] = []
        self._crash_at = crash_at
        self._max_body_bytes = max_body_bytes
        self._writes = 0
        self._crashed = False

    @property
    def entries(self) -> list[Entry]:
        """All stored entries, in order."""
        return self._stored_run.entries()

    @property
    def now(self) -> float:
        """Seconds that were waited in the whole run."""
        return self.clock.monotonic()

    def takeover(self, *, entries: int | None = None) -> MemoryJournal:
        """Return the journal of the next worker, which knows the first `entries` (None: all)."""
        return self._successor(entries, attempt=self.attempt)

    def next_attempt(self) -> MemoryJournal:
        """Return the journal of the next attempt."""
        return self._successor(None, attempt=self.attempt + 1)

    def kinds(self, key: str) -> list[EventKind]:
        """Return what was stored of one step, in order."""
        return [entry.kind for entry in self.entries if entry.key == key]

    def recall(self, key: str) -> Entry | None:
        """Return the newest entry of `key`."""
        return self._newest.get(key)

    def recorded(self) -> Iterable[Entry]:
        """Return the newest entry of each step."""
        return list(self._newest.values())

    async def write(
        self, kind: EventKind, key: str, body: bytes, *, tries: int = 1, dur_ms: int | None = None
    ) -> None:
        """Store an entry, or die."""
        self._alive()
        if len(body) > self._max_body_bytes:
            raise TooLarge(
                f"Step {key!r}: {len(body)} bytes are over the cap of {self._max_body_bytes}."
            )
        self._writes += 1
        if self._dies_at(kind, key):
            self._crashed = True
            raise Crashed
        self._store_noted()
        self._stored_run.append(self._remembered(Entry(kind, key, tries, body)))
        if dur_ms is not None:
            self.durations[key] = dur_ms

    def note(self, kind: EventKind, key: str, body: bytes, *, tries: int = 1) -> None:
        """Store an entry together with the next written one."""
        self._alive()
        self._noted.append(self._remembered(Entry(kind, key, tries, body)))

    def age(self, key: str) -> float:
        """Return the seconds waited since the newest entry of `key`."""
        return self.now - self._written_at.get(key, self.now)

    async def executor(self) -> Seat:
        """Return a thread: arguments and results cross as they do to a process."""
        self._alive()
        return ThreadSeat()

    async def boundary(self) -> None:
        """Return at once, unless the process is dead."""
        self._alive()

    async def pause(self, seconds: float) -> None:
        """Remember the wait and return at once."""
        self._alive()
        self.pauses.append(seconds)
        self._pass(seconds)

    async def sleep(self, seconds: float) -> None:
        """Remember the wait and return at once."""
        self._alive()
        self.sleeps.append(seconds)
        self._pass(seconds)

    async def ask(self, question: Question) -> Reply:
        """Return the answer that holds in this attempt, or end the run."""
        self._alive()
        known = self._replies.get((question.key, question.digest))
        if known is not None and (known[0] == self.attempt or known[1].approved):
            return known[1]
        self.questions[question.key] = question
        raise Parked

    def decide(self, key: str, *, approved: bool, by: str = "somebody", reason: str = "") -> None:
        """Answer the open question about step `key`.

        Raises
        ------
        KeyError
            There is none.
        """
        question = self.questions.pop(key)
        reply = Reply(approved, by, reason)
        self._replies[question.key, question.digest] = (self.attempt, reply)

    def _pass(self, seconds: float) -> None:
        """Let time pass: what was noted is stored long before a wait is over."""
        self._store_noted()
        self.clock.advance(seconds)

    def _store_noted(self) -> None:
        self._stored_run.append(*self._noted)
        self._noted = []

    def watched(self) -> bool:
        """Tell that the test does, which finds it in `published`."""
        return True

    def publish(self, text: str) -> None:
        """Collect live text."""
        self.published.append(text)

    def count_usage(self, tokens_in: int, tokens_out: int, cost_micro: int) -> None:
        """Add up."""
        have = self.usage
        self.usage = (have[0] + tokens_in, have[1] + tokens_out, have[2] + cost_micro)

    def _alive(self) -> None:
        if self._crashed:
            raise Crashed

    def _dies_at(self, kind: EventKind, key: str) -> bool:
        if isinstance(self._crash_at, str):
            return key == self._crash_at and kind is not EventKind.STEP_INTENT
        return self._writes == self._crash_at

    def _remembered(self, entry: Entry) -> Entry:
        self._seq += 1
        entry = replace(entry, seq=self._seq)
        self._newest[entry.key] = entry
        self._written_at[entry.key] = self.now
        return entry

    def _successor(self, entries: int | None, *, attempt: int) -> MemoryJournal:
        heir = MemoryJournal(
            self.entries[:entries],
            run_id=self.run_id,
            attempt=attempt,
            epoch=self.epoch + 1,
            options=self.options,
            max_body_bytes=self._max_body_bytes,
        )
        heir.clock.advance(self.now)
        heir._written_at = {key: self._written_at[key] for key in heir._newest}
        heir._replies = dict(self._replies)
        if attempt == self.attempt:
            heir.questions = dict(self.questions)
        return heir
