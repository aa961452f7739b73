"""Stands for a vision model: it takes its time, costs money with each call, and may be out.

While the file that `RESEARCH_OUTAGE` names holds a page's number, calls for that page fail.
`RESEARCH_CALLS` names a file that gets one JSON line for each call: what a provider would bill.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from pydantic import BaseModel

_SUBJECTS = ("revenue", "staff", "risks", "the new kiln", "shipping", "the outlook")


class Note(BaseModel):
    """What one page says."""

    page: int
    words: int
    text: str


class ProviderOut(Exception):
    """The provider does not answer; later it may."""


async def read_page(document: str, page: int, seconds: float) -> Note:
    """Read one page.

    Raises
    ------
    ProviderOut
        This page's provider is away.
    """
    await asyncio.sleep(seconds)
    out = str(page) in _pages_out()
    _bill(document, page, failed=out)
    if out:
        raise ProviderOut(f"503: no vision model is there for page {page}")
    subject = _SUBJECTS[page % len(_SUBJECTS)]
    return Note(page=page, words=180 + page * 37 % 240, text=f"It is about {subject}.")


def _pages_out() -> list[str]:
    name = os.environ.get("RESEARCH_OUTAGE")
    try:
        return Path(name).read_text().split() if name else []
    except FileNotFoundError:
        return []


def _bill(document: str, page: int, *, failed: bool) -> None:
    name = os.environ.get("RESEARCH_CALLS")
    if not name:
        return
    line = json.dumps({"document": document, "page": page, "failed": failed, "pid": os.getpid()})
    with Path(name).open("a") as bill:
        bill.write(line + "\n")
