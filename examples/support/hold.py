"""A hook for demos: hold a run in the moment after its refund and before that is recorded.

No agent needs this; it makes the worst moment for a crash long enough to hit it.
If `SUPPORT_HOLD_FILE` names a file that holds an order's number,
the tool that has just refunded that order writes `<file>.held` (its process and run, as JSON)
and waits until the file is gone, five minutes at most.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

_POLL_SECONDS = 0.05
_LIMIT_SECONDS = 300.0


async def hold(order_id: str, run_id: str) -> None:
    """Wait here if somebody asked for it."""
    name = os.environ.get("SUPPORT_HOLD_FILE")
    if not name or _asked_for(Path(name)) != order_id:
        return
    _tell(Path(name), run_id)
    loop = asyncio.get_running_loop()
    end = loop.time() + _LIMIT_SECONDS
    while _asked_for(Path(name)) == order_id and loop.time() < end:  # noqa: ASYNC110 (a file)
        await asyncio.sleep(_POLL_SECONDS)


def _asked_for(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def _tell(path: Path, run_id: str) -> None:
    """Write who is held; whoever watches for the file finds it whole."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(json.dumps({"pid": os.getpid(), "run": run_id}))
    draft.replace(path.with_name(path.name + ".held"))
