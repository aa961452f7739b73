"""A payment provider small enough to read: it keeps refunds in a file, one JSON line each.

`SUPPORT_LEDGER` names the file; without it refunds are computed and kept nowhere.
Like real providers it knows a call by its idempotency key:
a second call with the same key is answered with the first refund, and makes no other.

Beside the ledger, `<ledger>.calls` gets one line for every call.
So both can be counted: how often somebody asked, and how often money moved.
Any number of processes may share a ledger.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel

from rowlock import PermanentError


class Refund(BaseModel):
    """Money given back."""

    id: str
    order_id: str
    cents: int


async def refund(order_id: str, cents: int, *, idempotency_key: str) -> tuple[Refund, bool]:
    """Give money back; return the refund, and whether this call was a repetition.

    Raises
    ------
    PermanentError
        The key was used for another refund.
    """
    made = Refund(id=_refund_id(idempotency_key), order_id=order_id, cents=cents)
    path = os.environ.get("SUPPORT_LEDGER")
    if not path:
        return made, False
    return await asyncio.to_thread(_ledger(path).keep, made, idempotency_key)


class Ledger:
    """The file of all refunds that were made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls = path.with_name(path.name + ".calls")
        self._known: dict[str, Refund] = {}
        self._read_to = 0

    def keep(self, made: Refund, key: str) -> tuple[Refund, bool]:
        """Append a refund unless its key is known."""
        with self._locked() as file:
            self._catch_up(file)
            before = self._known.get(key)
            if before is None:
                self._append(file, {"key": key, **made.model_dump()})
                self._catch_up(file)
            self._log_call(made, key, repeat=before is not None)
        if before is not None and before != made:
            raise PermanentError(f"The key {key!r} belongs to another refund: {before!r}.")
        return made, before is not None

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file  # closing the file gives the lock back

    def _catch_up(self, file: BinaryIO) -> None:
        """Read what was appended since the last call, by this process or another."""
        file.seek(self._read_to)
        for line in file:
            entry = json.loads(line)
            self._known[entry.pop("key")] = Refund(**entry)
        self._read_to = file.tell()

    def _log_call(self, made: Refund, key: str, *, repeat: bool) -> None:
        with self._calls.open("ab") as calls:
            call = {"key": key, **made.model_dump(), "repeat": repeat, "pid": os.getpid()}
            self._append(calls, call)

    @staticmethod
    def _append(file: BinaryIO, entry: dict[str, Any]) -> None:
        file.write(json.dumps(entry).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


_ledgers: dict[str, Ledger] = {}


def _ledger(path: str) -> Ledger:
    return _ledgers.setdefault(path, Ledger(Path(path)))


def _refund_id(key: str) -> str:
    return "re_" + hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
