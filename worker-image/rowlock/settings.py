"""Settings of the worker and the command line, from `ROWLOCK_…`, checked once at start.

Flags of the command line win over the environment.
A wrong value is one clear error that names the variable; the database URL is never shown.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from rowlock.errors import ConfigurationError


class DatabaseSettings(BaseSettings):
    """How to reach PostgreSQL.

    Parameters
    ----------
    database_url
        `postgresql://user:password@host:5432/name`.
    """

    model_config = SettingsConfigDict(env_prefix="ROWLOCK_", extra="ignore")

    database_url: SecretStr = SecretStr("")


class BatchSettings(BaseSettings):
    """What the reader of a batch's items may do in a worker.

    Parameters
    ----------
    batch_folder
        Below which `file://` addresses may lie; empty for none.
    """

    model_config = SettingsConfigDict(env_prefix="ROWLOCK_", extra="ignore")

    batch_folder: str = ""


class WorkerSettings(DatabaseSettings, BatchSettings):
    """One worker: a supervisor and its loop processes.

    Parameters
    ----------
    pool, namespace
        Name and namespace of the WorkerPool that it serves.
    processes
        Loop processes; default one per core.
    slots
        Runs at once over all loop processes.
    executors
        Calls of blocking tools at once, in each loop process; each takes a process of its own,
        started when it is first needed.
    executor_max_calls
        After so many calls an executor is replaced by a new one.
    quarantine_processes
        Extra processes at most, started when needed, for runs that may be what kills processes and
        therefore go on alone. With 0, or where none can be started, a loop process is lent instead.
    lease_seconds
        For how long a silent worker keeps its runs; a lease must outlive three beats.
    renew_seconds
        Time between two beats.
    stall_ceiling_seconds
        A loop that does not tick for so long is killed.
    drain_seconds
        After SIGTERM, how long runs may take to reach a step boundary.
    pod_name, pod_uid, container, node
        Who it is, from the downward API in a pod; empty elsewhere.
    cluster
        Cluster of its pod, as the operator names it; the operator sets it.
    instance
        Same over restarts of one worker, and different for two that run at once:
        a worker that boots fences earlier boots of its own instance.
        Default: the pod's uid and the container in a pod, else host and process id.
    build
        What the worker runs: an image, best with its digest. Runs of Agents with
        `versionPolicy: Pinned` stay with workers of one build; default this package's version.
    reserved
        It goes on with runs of its own build alone and begins none; the operator sets it for
        workers that stay behind a rollout for pinned runs.
    connect_timeout_seconds
        For how long a worker waits for an absent PostgreSQL at its start.
    metrics_port
        Port of `/metrics` and `/livez`; 0 for none.
    max_result_bytes
        Cap of a step's result and of a run's result.
    batch_folder
        Below which `file://` addresses of batches may lie; empty for none.
    park_seconds
        A run that waits for so long, in `run.sleep`, gives its slot back meanwhile.
    traces
        What instrumented libraries do inside a step joins the run's trace, which the operator
        sends; needs the extra `traces`.
    trace_ratio
        Share of the runs whose traces are sent; the same for workers and operator.
    log_format
        `console` or `json`.
    log_level
        `DEBUG`, `INFO`, `WARNING` or `ERROR`.
    """

    pool: str = "default"
    namespace: str = ""
    processes: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=64)
    slots: int = Field(default=256, ge=1, le=4096)
    executors: int = Field(default=4, ge=1, le=64)
    executor_max_calls: int = Field(default=1000, ge=1)
    quarantine_processes: int = Field(default=1, ge=0, le=64)
    lease_seconds: float = Field(default=15, gt=0, le=3600)
    renew_seconds: float = Field(default=5, gt=0, le=1200)
    stall_ceiling_seconds: float = Field(default=60, ge=1, le=3600)
    drain_seconds: float = Field(default=30, ge=0, le=86400)
    pod_name: str = ""
    pod_uid: str = ""
    container: str = "worker"
    node: str = ""
    cluster: str = ""
    instance: str = ""
    build: str = ""
    reserved: bool = False
    connect_timeout_seconds: float = Field(default=30, ge=0, le=3600)
    metrics_port: int = Field(default=0, ge=0, le=65535)
    max_result_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    park_seconds: float = Field(default=5, ge=0.05, le=86400)
    traces: bool = False
    trace_ratio: float = Field(default=1.0, ge=0, le=1)
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
        """What people see: the pod's name, or host and process id."""
        return self.pod_name or f"{socket.gethostname()}-{os.getpid()}"

    @property
    def instance_name(self) -> str:
        """What earlier boots of this same worker were called, and none other."""
        if self.instance:
            return self.instance
        return f"{self.pod_uid}/{self.container}" if self.pod_uid else self.name


class RetentionSettings(DatabaseSettings):
    """For how long history stays.

    Parameters
    ----------
    history_retention_days
        Days that a run stays readable after its end; 0 keeps all of them.
    """

    history_retention_days: int = Field(default=30, ge=0, le=36500)


Settings = TypeVar("Settings", bound=BaseSettings)


def load(kind: Callable[..., Settings], **flags: Any) -> Settings:
    """Return settings from the environment and from those `flags` that are not None.

    Raises
    ------
    ConfigurationError
        One line that names each wrong variable and never its value.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return kind(**given)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_explain(one) for one in error.errors())) from None


def _explain(error: ErrorDetails) -> str:
    what = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return what
    field = str(error["loc"][0])
    return f"ROWLOCK_{field.upper()} (--{field.replace('_', '-')}): {what}"
