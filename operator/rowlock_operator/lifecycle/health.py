"""What the probes know: set by the loops, read by the HTTP server."""

from __future__ import annotations

import time
from enum import StrEnum, unique


@unique
class Role(StrEnum):
    """How far a process has come; also what `/readyz` says when all is well."""

    STARTING = "starting"
    STANDBY = "standby"
    LEADING = "ok"


class Health:
    """What this process is, whether PostgreSQL answers, and how late our loop wakes up."""

    def __init__(self) -> None:
        self.role = Role.STARTING
        self.database_up = False
        self.stopping = False
        self.ticked_at = time.monotonic()
        self.lag = 0.0
