"""Cuts bytes into lines, and lines into chunks that a reader checkpoints; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rowlock.batches.lines import MAX_LINE_BYTES, broken

#: Lines, and bytes, after which a chunk ends: what is read again after a crash.
CHUNK_LINES: Final = 5000
CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines.

    Parameters
    ----------
    lines
        With their numbers.
    length
        Bytes that they take.
    last
        Nothing follows.
    """

    lines: tuple[tuple[int, bytes], ...]
    length: int
    last: bool


def lines_of(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends, none longer than a line may be.

    Raises
    ------
    ValueError
        A line is longer.
    """
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError("a line does not end")
    if rest:
        yield rest


def next_chunk(
    blocks: Iterator[bytes],
    first: int,
    *,
    most_lines: int = CHUNK_LINES,
    most_bytes: int = CHUNK_BYTES,
) -> Chunk:
    """Return the next chunk, whose first line has the number `first`.

    Raises
    ------
    BrokenItem
        A line does not end.
    """
    lines: list[tuple[int, bytes]] = []
    length = 0
    try:
        for line in lines_of(blocks):
            if len(lines) >= most_lines or (lines and length + len(line) > most_bytes):
                return Chunk(tuple(lines), length, last=False)
            lines.append((first + len(lines), line))
            length += len(line)
    except ValueError:
        raise broken(
            f"line {first + len(lines)}", f"is longer than {MAX_LINE_BYTES} bytes"
        ) from None
    return Chunk(tuple(lines), length, last=True)
