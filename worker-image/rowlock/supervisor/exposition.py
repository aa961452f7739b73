"""`/metrics` and `/livez` of a worker.

They are served from a thread: if the supervisor's own loop stands still, the probe must say so.
PostgreSQL being away is no reason to restart a worker, so the probe does not ask for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST

from rowlock.errors import ConfigurationError
from rowlock.metrics import Exporter

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

#: The supervisor's loop must have shown itself within so many seconds.
_ALIVE_SECONDS = 15.0

Response = tuple[str, str, bytes]


class Pulse:
    """When the supervisor's loop last worked; written there, read by the probe's thread."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        """Say that the loop works."""
        self._at = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since."""
        return time.monotonic() - self._at


def respond(path: str, exporter: Exporter, pulse: Pulse) -> Response:
    """Return status, content type and body for a GET of `path`."""
    if path == "/metrics":
        return "200 OK", CONTENT_TYPE_LATEST, exporter.text()
    if path == "/livez":
        if pulse.age < _ALIVE_SECONDS:
            return "200 OK", "text/plain", b"ok\n"
        text = f"the supervisor's loop stands still for {pulse.age:.0f} s\n"
        return "503 Service Unavailable", "text/plain", text.encode()
    return "404 Not Found", "text/plain", b"there is /metrics and /livez\n"


def serve(port: int, exporter: Exporter, pulse: Pulse) -> None:
    """Serve on all interfaces at `port` from a daemon thread.

    Raises
    ------
    ConfigurationError
        The port is taken or forbidden.
    """

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body = respond(environ.get("PATH_INFO", ""), exporter, pulse)
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    try:
        server = make_server("", port, app, _Server, handler_class=_Quiet)
    except OSError as error:
        raise ConfigurationError(f"metrics port {port}: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="exposition", daemon=True).start()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is inherited
        """Keep scrapes out of the log."""
