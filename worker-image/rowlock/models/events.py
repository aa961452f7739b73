"""Server-sent events out of bytes, however they were cut."""

from __future__ import annotations

_DATA = b"data:"


class Events:
    """The `data` of each event; comments and other fields are dropped.

    What has no end of line yet is kept as pieces and joined once:
    a line of n bytes costs n, in however many pieces it comes.
    """

    __slots__ = ("_data", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, each line ended by LF, CR or CRLF."""
        if b"\n" not in data and b"\r" not in data:
            self._pieces.append(data)
            return []
        if self._pieces:
            self._pieces.append(data)
            data = b"".join(self._pieces)
        lines = data.splitlines()
        self._pieces = [] if data.endswith((b"\n", b"\r")) else [lines.pop()]
        return self._events(lines)

    def rest(self) -> list[bytes]:
        """Return the event that a stream's end completes, if there is one."""
        return self._events([b"".join(self._pieces), b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        found, data = [], self._data
        for line in lines:
            if line.startswith(_DATA):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and data:
                found.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        return found
