"""A mail service small enough to read: it knows a call by its idempotency key.

`BATCH_OUTBOX` names a folder. Each mail that leaves is a file there, named by its key,
so a second call with the same key sends nothing; `calls` in it gets a line for each call.
Any number of processes may share it. `BATCH_SECONDS` is how long a call takes (0.02).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from pathlib import Path

from rowlock import PermanentError


class NothingToBill(PermanentError):
    """There is no such mail to send, now or later."""


async def send(number: int, customer: str, cents: int, *, idempotency_key: str) -> None:
    """Send an invoice, unless this call was made before."""
    began = time.time()
    await asyncio.sleep(float(os.environ.get("BATCH_SECONDS", "0.02")))
    name = os.environ.get("BATCH_OUTBOX")
    if not name:
        return
    mail = {"number": number, "customer": customer, "cents": cents}
    repeat = not _leave(Path(name) / f"{_slug(idempotency_key)}.json", mail)
    call = {**mail, "began": began, "ended": time.time(), "repeat": repeat}
    with (Path(name) / "calls").open("a") as calls:
        calls.write(json.dumps(call) + "\n")


def _leave(path: Path, mail: dict[str, object]) -> bool:
    """Write a mail; False if it has left already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(mail))
    try:
        # A mail appears whole or not at all, also when this process is killed in between.
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _slug(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
