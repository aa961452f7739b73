"""Items as lines of JSON: `{"id": "a-dns-label", "text": "the agent's input"}`; pure.

A message says which line is wrong and what would be right, and never what the line holds:
it may be a secret of whatever the address leads to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from rowlock.errors import RowlockError
from rowlock.store import bodies
from rowlock.store.batches import NewItem

#: Bytes of an item's text, as of any input from a custom resource.
MAX_TEXT_BYTES: Final = 64 * 1024
#: Bytes of a line: a text of that size may need six times as many in JSON.
MAX_LINE_BYTES: Final = 512 * 1024

_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_SHAPE: Final = '{"id": "…", "text": "…"}'


class BrokenItem(RowlockError):
    """An item can never be run; the message says where it stands and what would be right."""


def read_line(number: int, line: bytes) -> NewItem | None:
    """Return the item of a line, None for an empty one.

    Raises
    ------
    BrokenItem
        It is no item.
    """
    text = line.strip()
    if not text:
        return None
    if len(line) > MAX_LINE_BYTES:
        raise broken(f"line {number}", f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise broken(f"line {number}", f"is not JSON; right is {_SHAPE}") from None
    if not isinstance(given, dict) or given.keys() != {"id", "text"}:
        raise broken(f"line {number}", f"is not an object with exactly id and text: {_SHAPE}")
    return item(f"line {number}", number, given["id"], given["text"])


def item(where: str, place: int, name: object, text: object) -> NewItem:
    """Return one item.

    Raises
    ------
    BrokenItem
        Its id or its text cannot be used.
    """
    if not isinstance(name, str) or not _ID.fullmatch(name):
        why = "id must be a DNS label of at most 40 characters: a-z, 0-9 and '-', as in issue-17"
        raise broken(where, why)
    if not isinstance(text, str):
        raise broken(where, "text must be a string; JSON for the agent goes into it as a string")
    return NewItem(place, name, _packed(where, text))


def read_lines(raw: bytes) -> Iterator[NewItem]:
    """Yield the items of a whole text.

    Raises
    ------
    BrokenItem
        Naming the first line that is wrong.
    """
    for number, line in enumerate(raw.splitlines(), 1):
        if (found := read_line(number, line)) is not None:
            yield found


def unique(items: Iterable[NewItem]) -> Iterator[NewItem]:
    """Yield items as long as each has an id of its own.

    Raises
    ------
    BrokenItem
        Naming the second item of an id, and the first.
    """
    places: dict[str, int] = {}
    for found in items:
        first = places.setdefault(found.item, found.place)
        if first != found.place:
            raise doubled(found.place, first)
        yield found


def doubled(place: int, first: int) -> BrokenItem:
    """Return the error of an id that was given before."""
    return broken(f"line {place}", f"has the id of line {first}; each item needs its own")


def broken(where: str, why: str) -> BrokenItem:
    """Return the error of an item."""
    return BrokenItem(f"{where}: {why}")


def _packed(where: str, text: str) -> bytes:
    """Return the text as stored: as the JSON value that it is, else as a JSON string."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise broken(where, "text is not valid Unicode") from None
    if len(raw) > MAX_TEXT_BYTES:
        raise broken(where, f"text has {len(raw)} bytes, at most {MAX_TEXT_BYTES} are allowed")
    return bodies.pack(raw if _is_json(raw) else msgspec.json.encode(text))


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
