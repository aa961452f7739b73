"""An HTTP server of one file for tests: by ranges or not, with faults that a test asks for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class File:
    """What is served, and how.

    Parameters
    ----------
    ranges
        Whether the server knows ranges.
    etag
        The version that it tells; empty for none.
    cuts
        Numbers of requests, from 1 on, that end after half of what they promised.
    codes
        Answers instead of the file, by the number of the request.
    holds
        Numbers of requests that wait until `go_on` is set.
    length
        Whether it says how long the answer is.
    location
        Where it redirects to; empty for nowhere.
    """

    content: bytes
    ranges: bool = True
    etag: str = '"1"'
    cuts: set[int] = field(default_factory=set)
    codes: dict[int, int] = field(default_factory=dict)
    holds: set[int] = field(default_factory=set)
    length: bool = True
    location: str = ""
    asked: list[int] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET."""

    file: File

    def do_GET(self) -> None:
        file, wanted = self.file, self.headers.get("Range", "")
        offset = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        file.asked.append(offset)
        number = len(file.asked)
        if number in file.holds:
            file.go_on.wait(60)
        if code := file.codes.get(number):
            self.send_error(code)
            return
        if file.location:
            self.send_response(302)
            self.send_header("Location", file.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with contextlib.suppress(ConnectionError):
            self._send(offset if file.ranges else 0, cut=number in file.cuts)

    def _send(self, offset: int, *, cut: bool) -> None:
        body, file = self.file.content[offset:], self.file
        self.send_response(206 if offset else 200)
        if offset:
            end = len(file.content)
            self.send_header("Content-Range", f"bytes {offset}-{end - 1}/{end}")
        if file.length:
            self.send_header("Content-Length", str(len(body)))
        if file.etag:
            self.send_header("ETag", file.etag)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(file: File) -> Iterator[str]:
    """Serve a file, and yield its address."""
    handler = type("Handler", (_Handler,), {"file": file})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/items.jsonl"
        finally:
            file.go_on.set()
            server.shutdown()
            thread.join()
