"""Settings of the operator, from the environment (`ROWLOCK_…`) and flags, checked once at start.

Flags win over the environment. A wrong value is one clear error that names the variable;
the database URL is never shown. `docs/reference/operator-settings.md` is generated from here.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rowlock.errors import ConfigurationError
from rowlock.settings import DatabaseSettings, load

_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")


class RunDefaults(BaseSettings):
    """What a run gets that neither it nor its Agent says (`ROWLOCK_DEFAULT_…`)."""

    model_config = SettingsConfigDict(
        env_prefix="ROWLOCK_DEFAULT_", extra="ignore", use_attribute_docstrings=True, frozen=True
    )

    pool: str = Field(default="default", min_length=1, max_length=52)
    """WorkerPool whose workers claim the run."""

    queue_deadline_seconds: int | None = Field(default=None, ge=1)
    """Seconds that a run may wait for its first worker; unset for no limit."""

    active_deadline_seconds: int = Field(default=1800, ge=1, le=604_800)
    """Seconds of work, summed over takeovers."""

    max_attempts: int = Field(default=1, ge=1, le=20)
    """How often the agent's code may be started."""

    max_takeovers: int = Field(default=5, ge=0, le=100)
    """How many losses of a worker may be put down to a run."""

    retry_backoff_seconds: int = Field(default=10, ge=0)
    """Seconds before the second attempt; doubled for each further one."""

    max_retry_backoff_seconds: int = Field(default=300, ge=0)
    """Upper bound of the wait between attempts, in seconds."""

    max_total_tokens: int | None = Field(default=None, ge=1)
    """Tokens that a run may use up, in and out together; unset for no limit."""

    max_cost_micro_usd: int | None = Field(default=None, ge=1)
    """Cost that a run may use up, in millionths of a US dollar; unset for no limit."""

    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=2_147_483_647)
    """Seconds after its end until an AgentRun is deleted; unset to keep it."""


class OperatorSettings(DatabaseSettings):
    """One operator process."""

    model_config = SettingsConfigDict(
        env_prefix="ROWLOCK_", extra="ignore", use_attribute_docstrings=True
    )

    kubeconfig: Path | None = None
    """Kubeconfig file; unset: KUBECONFIG, then the Pod's service account, then ~/.kube/config."""

    context: str | None = None
    """Context of the kubeconfig; unset for the current one."""

    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces to watch, separated by commas; empty for the whole cluster."""

    cluster_id: str = ""
    """Name of this cluster in the database; empty for the uid of the namespace kube-system.

    Set it where the operator may not read that namespace. Never change it while runs are under way.
    """

    http_host: str = ""
    """Address of the HTTP server; empty for all."""

    http_port: int = Field(default=8080, ge=0, le=65_535)
    """Port of `/livez`, `/readyz` and `/metrics`; 0 for none."""

    start_timeout_seconds: float = Field(default=60, gt=0, le=3600)
    """How long to wait at start for the API server and PostgreSQL before giving up."""

    election: bool = True
    """Lead only while holding the Lease, so that of several replicas one works and the others wait.

    Switch it off for a single operator on a laptop: it then starts at once after any end.
    """

    lease_name: str = Field(default="rowlock-operator", min_length=1, max_length=253)
    """Name of the Lease: another one for each operator with a namespace list of its own."""

    lease_namespace: str = Field(default="", max_length=63)
    """Namespace of the Lease; empty for the operator's own."""

    lease_seconds: float = Field(default=15, ge=1, le=300)
    """A leader that gave no sign of life for so long is replaced."""

    lease_renew_seconds: float = Field(default=10, gt=0, le=300)
    """A leader that could not renew its Lease for so long ends; below `ROWLOCK_LEASE_SECONDS`."""

    lease_retry_seconds: float = Field(default=2, gt=0, le=60)
    """Time between two renewals, at most half of `ROWLOCK_LEASE_RENEW_SECONDS`."""

    connections: int = Field(default=32, ge=4, le=256)
    """Requests to the API server in flight at once, watches left out."""

    status_writes_per_second: float = Field(default=200, ge=1, le=5000)
    """Status writes a second at most; the operator slows down by itself when the server asks."""

    events_per_second: float = Field(default=50, ge=1, le=1000)
    """Kubernetes Events a second at most; they never slow status writes down."""

    normal_events: bool = True
    """Write Events of type Normal too, not Warnings alone."""

    show_delay_seconds: float = Field(default=0.3, ge=0, le=10)
    """How long a change that is not urgent waits for more of its run, to share one status write."""

    sweep_seconds: float = Field(default=300, ge=5, le=86_400)
    """Time between two comparisons of all AgentRuns with all rows."""

    watch_silence_seconds: float = Field(default=70, ge=2, le=3600)
    """A watch that says nothing for so long is opened anew; the API server speaks once a minute."""

    max_vanished_percent: float = Field(default=10, ge=0, le=100)
    """If more of the live runs than this lost their AgentRun at once, a sweep cancels none.

    Ten at a time are always believed. 100 switches the brake off.
    """

    deletion_hold: bool = False
    """Hold AgentRuns that are deleted until their runs have ended, by a finalizer of our own.

    While the operator is away, nothing releases them: they and their namespace stay. Off, no
    deletion ever waits for the operator.
    """

    deletion_hold_seconds: float = Field(default=600, ge=1, le=86_400)
    """How long a deleted AgentRun is held at most."""

    pool_period_seconds: float = Field(default=5, ge=0.2, le=300)
    """Time between two looks at all WorkerPools; a shorter pollPeriodSeconds of one cuts it."""

    batch_status_seconds: float = Field(default=2, ge=0.2, le=300)
    """Time between two status writes of an AgentRunBatch at least."""

    worker_database_secret: str = ""
    """Secret (`name` or `name/key`) with the database URL, for WorkerPools that name none."""

    traces: bool = False
    """Send an OpenTelemetry trace of each run that ended; needs the extra `traces`.

    Where to stands in OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
    """

    trace_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of the runs whose traces are sent; the same for workers and operator."""

    log_format: str = Field(default="console", pattern="^(console|json)$")
    """`console` for people, `json` for one JSON object a line."""

    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """DEBUG, INFO, WARNING or ERROR."""

    run_defaults: RunDefaults = Field(default_factory=RunDefaults)
    """Defaults of runs, each with a variable of its own."""

    @field_validator("lease_renew_seconds")
    @classmethod
    def _ends_before_its_lease(cls, given: float, info: ValidationInfo) -> float:
        lease = info.data.get("lease_seconds", math.inf)
        if given >= lease:
            raise ValueError(f"must be less than ROWLOCK_LEASE_SECONDS, which is {lease:g}")
        return given

    @field_validator("lease_retry_seconds")
    @classmethod
    def _may_fail_once(cls, given: float, info: ValidationInfo) -> float:
        renew = info.data.get("lease_renew_seconds", math.inf)
        if given > renew / 2:
            raise ValueError(
                f"must be at most half of ROWLOCK_LEASE_RENEW_SECONDS, which is {renew:g}"
            )
        return given

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        return tuple(dict.fromkeys(part.strip() for part in given.split(",") if part.strip()))

    @field_validator("namespaces")
    @classmethod
    def _are_labels(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for namespace in given:
            if not _DNS_LABEL.match(namespace) or len(namespace) > 63:
                raise ValueError(f"{namespace!r} is no name of a namespace")
        return given


def load_settings(**flags: object) -> OperatorSettings:
    """Return the settings from the environment and from those `flags` that are not None.

    Raises
    ------
    ConfigurationError
        One line that names each wrong variable and never its value.
    """
    try:
        defaults = RunDefaults()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise ConfigurationError("; ".join(map(_explain, problems))) from None
    settings = load(OperatorSettings, run_defaults=defaults, **flags)
    if not settings.database_url.get_secret_value():
        raise ConfigurationError(
            "ROWLOCK_DATABASE_URL is not set: postgresql://user:password@host:5432/name"
        )
    return settings


def _explain(error: ErrorDetails) -> str:
    field = "_".join(map(str, error["loc"])).upper()
    return f"{RunDefaults.model_config.get('env_prefix', '')}{field}: {error['msg']}"
