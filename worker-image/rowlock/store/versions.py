"""Which migrations this program brings along: files named `NNNN_{pre|post}_words.sql`.

`pre` files go in before new code runs and never break the old code;
`post` files go in when the old code is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

_NAME: Final = re.compile(r"(\d{4})_(pre|post)_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    phase: str
    name: str
    text: str


def files(folder: Traversable | None = None) -> tuple[Migration, ...]:
    """Return the migrations of `folder` (default: Rowlock's own) in their order."""
    return _own() if folder is None else tuple(_read(folder))


@cache
def newest_pre() -> int:
    """Return the number of the newest `pre` migration, without which this code cannot run."""
    return max(migration.number for migration in files() if migration.phase == "pre")


@cache
def _own() -> tuple[Migration, ...]:
    return tuple(_read(resources.files(__package__) / "migrations"))


def _read(folder: Traversable) -> Iterator[Migration]:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if match := _NAME.fullmatch(file.name):
            text = file.read_text(encoding="utf-8")
            yield Migration(int(match[1]), match[2], file.name, text)
