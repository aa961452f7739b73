"""Settings of the worker and the command line, from `ROWLOCK_…`, checked once at start.

Flags of the command line win over the environment.
A wrong value is one clear error that names the variable; the database URL is never shown.
"""

from __future__ import annotations

import os
import socket
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class DatabaseSettings(BaseSettings):
    """How to reach PostgreSQL.

    Parameters
    ----------
    database_url
        `postgresql://user:password@host:5432/name`.
    """

    model_config = SettingsConfigDict(env_prefix="ROWLOCK_", extra="ignore")

    database_url: SecretStr = SecretStr("")


class WorkerSettings(DatabaseSettings):
    """One worker: a supervisor and its loop processes.

    Parameters
    ----------
    pool, namespace
        The WorkerPool it serves.
    processes
        Loop processes; default one per core.
    slots
        Runs at once over all loop processes.
    lease_seconds, renew_seconds
        Lease duration and time between beats; a lease must outlive three beats.
    stall_ceiling_seconds
        A loop that does not tick for so long is killed.
    drain_seconds
        After SIGTERM, how long runs may take to reach a step boundary.
    pod_name, pod_uid, container, node
        Set from the downward API in a pod; empty elsewhere.
    metrics_port
        Port of `/metrics` and `/livez`; 0 for none.
    max_result_bytes
        Cap of a step's result and of a run's result.
    """

    pool: str = "default"
    namespace: str = ""
    processes: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=64)
    slots: int = Field(default=256, ge=1, le=4096)
    lease_seconds: float = Field(default=15, gt=0, le=3600)
    renew_seconds: float = Field(default=5, gt=0, le=1200)
    stall_ceiling_seconds: float = Field(default=60, ge=1, le=3600)
    drain_seconds: float = Field(default=30, ge=0, le=86400)
    pod_name: str = ""
    pod_uid: str = ""
    container: str = "worker"
    node: str = ""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    max_result_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    log_format: str = Field(default="console", pattern="^(console|json)$")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @model_validator(mode="after")
    def _lease_outlives_three_beats(self) -> Self:
        if self.renew_seconds * 3 > self.lease_seconds:
            raise ValueError(
                f"renew_seconds must be at most a third of lease_seconds: "
                f"{self.renew_seconds} * 3 > {self.lease_seconds}"
            )
        return self

    @property
    def name(self) -> str:
        """What people see: the pod's name, or the host's."""
        return self.pod_name or socket.gethostname()
