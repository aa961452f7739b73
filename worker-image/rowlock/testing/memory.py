"""A run's history in memory: run an agent against it, let it die at any entry, go on from there."""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.agents.performing import ThreadSeat
from rowlock.agents.protocol import Entry, Seat
from rowlock.errors import TooLarge
from rowlock.options import RunOptions
from rowlock.states import EventKind

_DEFAULT_CAP = 16 * 1024 * 1024


class Crashed(BaseException):
    """The process of the run died here; no agent code may catch it, so it is no `Exception`."""


class MemoryJournal:
    """The history of one run, with the promises that the real one keeps.

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
    entries
        All stored entries, in order.
    pauses
        Seconds of every wait between two tries; none of them is really waited.
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
        self.entries = list(entries)
        self.pauses: list[float] = []
        self.published: list[str] = []
        self.durations: dict[str, int] = {}
        self.usage = (0, 0, 0)
        self._newest = {entry.key: entry for entry in self.entries}
        self._noted: list[Entry] = []
        self._crash_at = crash_at
        self._max_body_bytes = max_body_bytes
        self._writes = 0
        self._crashed = False

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
        self.entries += self._noted
        self._noted = []
        self.entries.append(self._remembered(Entry(kind, key, tries, body)))
        if dur_ms is not None:
            self.durations[key] = dur_ms

    def note(self, kind: EventKind, key: str, body: bytes) -> None:
        """Store an entry together with the next written one."""
        self._alive()
        self._noted.append(self._remembered(Entry(kind, key, 1, body)))

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
        self._newest[entry.key] = entry
        return entry

    def _successor(self, entries: int | None, *, attempt: int) -> MemoryJournal:
        return MemoryJournal(
            self.entries[:entries],
            run_id=self.run_id,
            attempt=attempt,
            epoch=self.epoch + 1,
            options=self.options,
            max_body_bytes=self._max_body_bytes,
        )
