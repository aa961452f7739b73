"""The answers on one HTTP/1.1 connection, parsed one at a time."""

from __future__ import annotations

from collections.abc import Callable

import httptools


class Message:
    """The answer that is coming in; what follows it unasked is not read.

    Parameters
    ----------
    head
        Called with status and headers (names in lower case) as soon as they are complete.

    Attributes
    ----------
    headed, complete
        How far it has come.
    keep_alive
        The connection may carry another one.
    """

    def __init__(self, head: Callable[[int, dict[bytes, bytes]], None]) -> None:
        self.headed = self.complete = self.keep_alive = False
        self._head = head
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._bodies: list[bytes] = []
        self._surplus = False

    def begin(self) -> None:
        """Make ready for the answer to another request."""
        self.headed = self.complete = self.keep_alive = self._surplus = False
        self._headers = {}

    def feed(self, data: bytes) -> bytes:
        """Parse what came and return what it holds of the body.

        Raises
        ------
        httptools.HttpParserError
            It is no HTTP.
        """
        self._parser.feed_data(data)
        bodies, self._bodies = self._bodies, []
        return bodies[0] if len(bodies) == 1 else b"".join(bodies)

    @property
    def ends_with_connection(self) -> bool:
        """The body has no other end."""
        told = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        return self.headed and not told

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Note what nobody has asked for: the connection is not to be used again."""
        self._surplus = self.complete
        self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; the last one of a name wins."""
        if not self._surplus:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Tell, unless this is only the announcement of an answer."""
        status = self._parser.get_status_code()
        if status >= 200 and not self._surplus:
            self.headed = True
            self._head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        """Keep a piece."""
        if not self._surplus:
            self._bodies.append(data)

    def on_message_complete(self) -> None:
        """Note the end; whether another message may follow can only be asked here."""
        if self._surplus:
            return
        if self._parser.get_status_code() >= 200:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
        else:
            self._headers = {}
