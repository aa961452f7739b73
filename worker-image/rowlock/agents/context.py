"""What is going on in the current task: the call of a step, and what it adds to its run."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from rowlock.agents.identity import digest_bytes
from rowlock.agents.problems import cut

_MAX_REASON_LENGTH = 256
_MAX_CALL_KEY_LENGTH = 120

Tokens = tuple[int, int, int]

#: What most calls use.
NO_TOKENS: Tokens = (0, 0, 0)


class Totals:
    """What was used and what went wrong, of one call or of a whole run."""

    __slots__ = ("degraded", "used")

    def __init__(self) -> None:
        #: Tokens in, tokens out, millionths of a US dollar.
        self.used = NO_TOKENS
        self.degraded: list[str] = []

    def add(self, used: Tokens, degraded: Sequence[str] = ()) -> None:
        """Add what a call used and said."""
        have = self.used
        self.used = (have[0] + used[0], have[1] + used[1], have[2] + used[2])
        self.degraded.extend(degraded)

    def degrade(self, reason: str) -> None:
        """Remember why the result is not as good as it should be."""
        self.degraded.append(cut(reason, _MAX_REASON_LENGTH))


class Call(Totals):
    """One step that is being done, over all its tries."""

    __slots__ = ("before", "id", "number")

    def __init__(self, run_id: int, key: str, number: int, before: Tokens = NO_TOKENS) -> None:
        super().__init__()
        #: What earlier attempts paid for this step; `used` goes on from there.
        self.before = self.used = before
        # The id goes into HTTP headers and other people's columns: short ASCII.
        plain = key.isascii() and len(key) <= _MAX_CALL_KEY_LENGTH
        self.id = f"{run_id}/{key if plain else digest_bytes(key.encode())}/{number}"
        self.number = number


#: The call of the current task; a function in a thread sees its caller's.
CURRENT: ContextVar[Call | None] = ContextVar("rowlock_call", default=None)
