"""The SQL texts, by name.

They lie in `queries/*.sql`, many to a file, each under a header::

    -- name: claim
    -- One line that says what it does.

Nothing else in Rowlock holds SQL.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_HEADER = re.compile(r"^-- name: (\w+)\n-- (.+)$", re.MULTILINE)


@cache
def load() -> dict[str, str]:
    """Return every statement by its name.

    Raises
    ------
    ValueError
        A name is given twice.
    """
    found: dict[str, str] = {}
    for text in _files():
        marks = list(_HEADER.finditer(text))
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        for mark, end in zip(marks, ends, strict=True):
            if mark[1] in found:
                raise ValueError(f"two statements are named {mark[1]}")
            found[mark[1]] = f"-- {mark[1]}\n{text[mark.end() : end].strip().rstrip(';')}"
    return found


def get(name: str) -> str:
    """Return the text of one statement; its first line names it in `pg_stat_activity`."""
    return load()[name]


def _files() -> list[str]:
    folder = resources.files(__package__) / "queries"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files if file.name.endswith(".sql")]
