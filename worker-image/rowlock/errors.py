"""The errors of Rowlock, in one tree.

Catch at the height you need::

    RowlockError
    ├── ConfigurationError            a person must change something; never retried
    │   ├── InvalidDatabaseURL        the URL cannot be parsed
    │   ├── DatabaseRefused           the server said no: wrong password, database or role; too old
    │   ├── SchemaMissing             the database has no (or an older) Rowlock schema
    │   └── AgentDefinitionError      a decorator was given something that cannot work
    ├── StoreError
    │   ├── StoreUnavailable          PostgreSQL is away or said "not now"; retry, commit unknown
    │   ├── RowRejected               one row can never be stored; its own run fails, nothing else
    │   └── WishRefused               what was asked of a run cannot be done to it
    │       └── HistoryExpired        its finished steps may be gone
    ├── ClientError                   `rowlock.Client` was asked for something that cannot be
    │   ├── InvalidRequest            a parameter makes no sense; the message names it
    │   ├── UnknownAgent              no agent of that name is registered
    │   ├── UnknownPool               no pool of that name is there
    │   ├── UnknownRun                no run of that number is there
    │   ├── IdempotencyConflict       the key belongs to a run with another input
    │   └── RunEnded                  the run that was waited for has no result
    │       ├── RunFailed             it failed, with `reason` and `detail`
    │       └── RunCancelled          somebody cancelled it
    ├── ClusterError                  kubectl did not do what it was asked to
    │   ├── ClusterUnavailable        the API server is away
    │   ├── ClusterForbids            the API server does not let this person do it
    │   ├── ClusterRefuses            the API server takes no such object, or no such change
    │   ├── NotInCluster              there is no such object
    │   └── AlreadyInCluster          there is one of that name
    ├── ModelUnavailable              no whole answer from a model; its turn is tried again
    ├── ModelRefused                  a model or its server refuses; a PermanentError, too
    └── RunError                      ends an attempt of a run, with `reason` shown to its owner
        ├── AgentLoadError            the entry point cannot be imported
        ├── AgentSpecRefused          the Agent object asks for what the code does not allow
        ├── InvalidInput              the input does not fit the agent's annotation
        ├── InvalidOutput             the agent returned something its annotation forbids
        ├── AgentError                the agent's own code raised
        │   └── StepFailed            a step used up its retries, or failed for good
        │       └── ApprovalDenied    a person said no to it, or nobody said yes in time
        ├── NonDeterministic          the code asked for other steps than its history holds
        ├── TooLarge                  a body is over its cap
        ├── BudgetExceeded            the run used more tokens or money than it may
        └── ActiveDeadlineExceeded    the run was active for longer than it may be

    PermanentError                    raise it in a step: never retried
    NotStarted                        raise it in a tool: the effect surely did not begin
    ExecutorLost                      the process that made a blocking call died in it

The docstring of each class is its default message.
Messages never contain a database URL, a password or a token.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import ClassVar

from rowlock.states import FailureReason


class RowlockError(Exception):
    """Something in Rowlock went wrong."""

    #: Would the same call have a chance later, with nothing changed by a person?
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


class ConfigurationError(RowlockError):
    """The configuration is wrong."""


class InvalidDatabaseURL(ConfigurationError):
    """The database URL must look like postgresql://user:password@host:5432/name."""


class DatabaseRefused(ConfigurationError):
    """The database server refuses this role, password or database."""


class SchemaMissing(ConfigurationError):
    """The database has no up-to-date Rowlock schema: run `rowlock migrate`."""


class AgentDefinitionError(ConfigurationError):
    """An agent or tool is declared in a way that cannot work."""


class StoreError(RowlockError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """PostgreSQL is out of reach; whether the statement was committed is unknown."""

    retryable = True


class RowRejected(StoreError):
    """PostgreSQL can never store this row."""

    def __init__(self, message: str | None = None, *, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class WishRefused(StoreError):
    """What was asked cannot be done to this run."""


class HistoryExpired(WishRefused):
    """The history of this run is past its retention: start a new run."""


class ClientError(RowlockError):
    """A client was asked for something that cannot be done."""


class InvalidRequest(ClientError):
    """A parameter makes no sense."""


class UnknownAgent(ClientError):
    """No agent of that name is registered."""


class UnknownPool(ClientError):
    """No pool of that name is there."""


class UnknownRun(ClientError):
    """No run of that number is there; it may be past its retention."""


class IdempotencyConflict(ClientError):
    """The idempotency key belongs to a run with another input.

    Attributes
    ----------
    runs
        The runs that hold the keys, by key.
    """

    def __init__(
        self, message: str | None = None, *, runs: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.runs = dict(runs or {})


class RunEnded(ClientError):
    """The run has ended without a result.

    Attributes
    ----------
    run_id
        The run's number.
    reason
        A word of the closed set `rowlock.states.FailureReason`.
    detail
        What its owner is told.
    """

    def __init__(
        self, message: str | None = None, *, run_id: int, reason: str, detail: str
    ) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.reason = reason
        self.detail = detail


class RunFailed(RunEnded):
    """The run has failed."""


class RunCancelled(RunEnded):
    """The run was cancelled."""


class ClusterError(RowlockError):
    """The cluster did not do what was asked."""


class ClusterUnavailable(ClusterError):
    """The cluster's API server is out of reach."""

    retryable = True


class ClusterForbids(ClusterError):
    """The cluster does not let you do this."""


class ClusterRefuses(ClusterError):
    """The cluster takes no such object, or no such change of one."""


class NotInCluster(ClusterError):
    """There is no such object in the cluster.

    Attributes
    ----------
    resource, name
        What was looked for, such as `agentruns.rowlock.dev` and `order-7`.
    """

    def __init__(self, message: str | None = None, *, resource: str = "", name: str = "") -> None:
        super().__init__(message)
        self.resource = resource
        self.name = name


class AlreadyInCluster(ClusterError):
    """There is an object of that name in the cluster."""


class RunError(RowlockError):
    """The attempt of this run is over."""

    #: What status.failure.reason will say.
    reason: ClassVar[FailureReason] = FailureReason.AGENT_ERROR


class AgentLoadError(RunError):
    """The agent's entry point cannot be imported."""

    reason = FailureReason.AGENT_LOAD_ERROR


class AgentSpecRefused(RunError):
    """The Agent object asks for what the agent's code does not allow."""

    reason = FailureReason.INVALID_SPEC


class InvalidInput(RunError):
    """The input does not fit the agent's type."""

    reason = FailureReason.INVALID_INPUT


class InvalidOutput(RunError):
    """The agent's result does not fit its return annotation."""

    reason = FailureReason.INVALID_OUTPUT


class AgentError(RunError):
    """The agent's code raised an error."""


class StepFailed(AgentError):
    """A step failed for good."""


class ApprovalDenied(StepFailed):
    """Nobody allowed this step."""


class NonDeterministic(RunError):
    """The agent's code asked for another step than its history holds."""

    reason = FailureReason.NON_DETERMINISTIC


class TooLarge(RunError):
    """A body is larger than its cap."""

    reason = FailureReason.TOO_LARGE


class BudgetExceeded(RunError):
    """The run used more tokens or money than its budget."""

    reason = FailureReason.BUDGET_EXCEEDED


class ActiveDeadlineExceeded(RunError):
    """The run was active for longer than activeDeadlineSeconds."""

    reason = FailureReason.ACTIVE_DEADLINE_EXCEEDED


class ModelUnavailable(RowlockError):
    """A model's server gave no whole answer; the same question has a chance later.

    Parameters
    ----------
    retry_after
        Seconds that the server asks to wait; None if it does not say.
    """

    retryable = True

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PermanentError(Exception):
    """Raise inside a step to fail it at once, without a retry."""


class ModelRefused(RowlockError, PermanentError):
    """A model or its server refuses this request and would do so again.

    Parameters
    ----------
    used
        Tokens in, tokens out, millionths of a US dollar: a refusal is paid for, too.
    """

    def __init__(
        self, message: str | None = None, *, used: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        super().__init__(message)
        self.used = used


class NotStarted(Exception):
    """Raise inside a tool when its effect surely did not begin, so that it may be tried again."""


class ExecutorLost(Exception):
    """The executor process died in the middle of a call: the effect may have happened."""
