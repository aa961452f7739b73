"""What the probes know: set by the loops, read by the HTTP server."""

from __future__ import annotations

import time


class Health:
    """Whether PostgreSQL answers, and how late our loop wakes up."""

    def __init__(self) -> None:
        self.database_up = False
        self.started = False
        self.stopping = False
        self.ticked_at = time.monotonic()
        self.lag = 0.0
