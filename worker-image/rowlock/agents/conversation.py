"""A conversation that only grows at its end: every message is serialized and hashed once."""

from __future__ import annotations

import hashlib

from rowlock.agents.identity import DIGEST_BYTES


class Conversation:
    """The messages of one run, as bytes.

    The instructions are not part of the digest:
    a run that is under way when they are edited keeps its finished turns
    and follows the new instructions from the next turn on.

    Parameters
    ----------
    system
        The first message.
    """

    __slots__ = ("_rolling", "messages")

    def __init__(self, system: bytes) -> None:
        self.messages = [system]
        self._rolling = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, message: bytes) -> None:
        """Append one message; costs as much as that message is long."""
        self.messages.append(message)
        self._rolling.update(message)

    def digest(self, turn: int) -> str:
        """Return what stands for all messages before the model's turn with this number."""
        rolling = self._rolling.copy()
        rolling.update(b"%d" % turn)
        return rolling.hexdigest()
