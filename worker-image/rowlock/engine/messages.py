"""What a supervisor and a loop process say to each other: JSON lines over a socket pair.

The database URL travels here and nowhere else:
a process that imports agents, and all that it starts, has it in no environment variable.
"""

from __future__ import annotations

import socket

import msgspec

#: Exit codes of a loop process that ended as it should; anything else is a death.
EXIT_LEFT = 0
EXIT_FENCED = 3


class Boot(msgspec.Struct, frozen=True, tag=True):
    """First line to a loop process: who it is.

    Parameters
    ----------
    index
        Number of the process inside its worker.
    name
        What people see of it in events and logs.
    executors, executor_max_calls
        Blocking calls at once, and how many one executor makes before it is replaced.
    lease_seconds
        For how long PostgreSQL trusts it after a beat.
    watched
        Somebody looks at its runs: their live text is sent up.
    crash_at
        A step behind whose effect it dies, in a run that was not taken over yet.
    park_seconds
        A shorter wait of a run is spent in the process.
    quarantine
        It claims only runs that are to be alone, one at a time; it has one slot.
    trace_ratio
        Share of the runs whose steps are joined to a trace; None for none, without OpenTelemetry.
    build
        What it runs, as other workers compare it.
    """

    database_url: str
    worker_id: int
    pool_id: int
    index: int
    name: str
    slots: int
    lease_seconds: float
    max_result_bytes: int
    log_format: str
    log_level: str
    executors: int = 4
    executor_max_calls: int = 1000
    watched: bool = False
    crash_at: str = ""
    park_seconds: float = 5.0
    quarantine: bool = False
    trace_ratio: float | None = None
    build: str = ""

    @property
    def label(self) -> str:
        """What metrics call it."""
        return f"q{self.index}" if self.quarantine else str(self.index)


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Somebody asked to cancel these runs: (run, why)."""

    runs: list[tuple[int, str | None]]


class Capped(msgspec.Struct, frozen=True, tag=True):
    """These agents have caps, no others: the end of one of their runs makes room for another."""

    agents: list[int]


class Look(msgspec.Struct, frozen=True, tag=True):
    """Runs were promoted, or a person asked for one: look for them now."""


class Suspend(msgspec.Struct, frozen=True, tag=True):
    """Somebody asked to suspend these runs."""

    runs: list[int]


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Claim nothing more; hand each run over at its next step boundary; then leave."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Let go of everything now and leave."""


class Fence(msgspec.Struct, frozen=True, tag=True):
    """PostgreSQL refused the beat: stop quietly, nothing can be written any more."""


class Report(msgspec.Struct, frozen=True, tag=True):
    """From the loop, once a second: counters that moved and gauges as they stand."""

    counters: list[tuple[tuple[str, ...], float]]
    gauges: list[tuple[str, float]]


class Live(msgspec.Struct, frozen=True, tag=True):
    """From the loop: what a watched run says just now; it is stored nowhere.

    Parameters
    ----------
    step
        Key of the step that says it; empty outside of steps.
    """

    run: int
    step: str
    text: str


ToLoop = Boot | Cancel | Suspend | Capped | Look | Drain | Stop | Fence
FromLoop = Report | Live

_encoder = msgspec.json.Encoder()
_to_loop: msgspec.json.Decoder[ToLoop] = msgspec.json.Decoder(ToLoop)
_from_loop: msgspec.json.Decoder[FromLoop] = msgspec.json.Decoder(FromLoop)

#: Longest line that a reader must be ready for: a poll's worth of cancels.
LINE_LIMIT = 4 * 1024 * 1024


def line(message: ToLoop | FromLoop) -> bytes:
    """Return `message` as one line."""
    return _encoder.encode(message) + b"\n"


def to_loop(raw: bytes) -> ToLoop:
    """Return what the supervisor said."""
    return _to_loop.decode(raw)


def from_loop(raw: bytes) -> FromLoop:
    """Return what the loop said."""
    return _from_loop.decode(raw)


def read_boot(control: socket.socket) -> Boot:
    """Return the first line, blocking.

    Reads not one byte beyond it: the rest belongs to the stream that is opened later.
    """
    raw = bytearray()
    while not raw.endswith(b"\n"):
        byte = control.recv(1)
        if not byte:
            raise EOFError("the supervisor is gone")
        raw += byte
    message = to_loop(bytes(raw))
    if not isinstance(message, Boot):
        raise TypeError(f"expected Boot, got {type(message).__name__}")
    return message
