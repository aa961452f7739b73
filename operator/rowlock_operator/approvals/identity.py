"""The name of a question's object: the same in every operator, and never that of another question.

A create whose answer was lost is made again and meets "already exists". The uid keeps the
questions of a re-created run apart from those of its forerunner, and the attempt those of a
re-drive: a decision never counts for a later question.
"""

from __future__ import annotations

import hashlib
from typing import Final

_RUN_LENGTH: Final = 50
_HASH_BYTES: Final = 6


def approval_name(run: str, *, uid: str, step_key: str, digest: str, attempt: int) -> str:
    """Return the name of the AgentRunApproval, at most 63 characters.

    Parameters
    ----------
    run, uid
        Of the AgentRun that asks.
    """
    return f"{run[:_RUN_LENGTH]}-{_hash(uid, step_key, digest, str(attempt))}"


def event_number(name: str) -> int:
    """Return the number that the Events about a question have in their names."""
    return int(name.rpartition("-")[2], 16)


def _hash(*parts: str) -> str:
    data = "\0".join(parts).encode()
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()
