"""Rowlock: durable AI-agent runs, checkpointed in PostgreSQL.

Everything that an agent's author needs is listed here; the rest of the package is private to it.
"""

import importlib
import typing

from rowlock.agents.budget import Budget
from rowlock.agents.chat import ChatAgent
from rowlock.agents.function import agent
from rowlock.agents.messages import Model, ModelRequest, ModelTurn, ToolCall, Usage
from rowlock.agents.record import OutcomeUnknown
from rowlock.agents.run import Run
from rowlock.agents.tools import Tool, tool
from rowlock.errors import (
    AgentDefinitionError,
    AgentError,
    ApprovalDenied,
    BudgetExceeded,
    ClientError,
    HistoryExpired,
    IdempotencyConflict,
    InvalidInput,
    InvalidOutput,
    InvalidRequest,
    ModelRefused,
    ModelUnavailable,
    NonDeterministic,
    NotStarted,
    PermanentError,
    RowlockError,
    RunCancelled,
    RunEnded,
    RunFailed,
    StepFailed,
    UnknownAgent,
    UnknownPool,
    UnknownRun,
    WishRefused,
)
from rowlock.models import ModelTimeouts, OpenAIChat, Prices

if typing.TYPE_CHECKING:
    from rowlock.client import (
        Client,
        PendingApproval,
        RunEvent,
        RunHandle,
        RunInfo,
        SyncClient,
        SyncRunHandle,
    )

__all__ = [
    "AgentDefinitionError",
    "AgentError",
    "ApprovalDenied",
    "Budget",
    "BudgetExceeded",
    "ChatAgent",
    "Client",
    "ClientError",
    "HistoryExpired",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidOutput",
    "InvalidRequest",
    "Model",
    "ModelRefused",
    "ModelRequest",
    "ModelTimeouts",
    "ModelTurn",
    "ModelUnavailable",
    "NonDeterministic",
    "NotStarted",
    "OpenAIChat",
    "OutcomeUnknown",
    "PendingApproval",
    "PermanentError",
    "Prices",
    "RowlockError",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunEvent",
    "RunFailed",
    "RunHandle",
    "RunInfo",
    "StepFailed",
    "SyncClient",
    "SyncRunHandle",
    "Tool",
    "ToolCall",
    "UnknownAgent",
    "UnknownPool",
    "UnknownRun",
    "Usage",
    "WishRefused",
    "agent",
    "tool",
]

#: Loaded when they are first asked for: whoever only runs agents has no use for a database driver,
#: and executors must have none.
_OF_CLIENT = frozenset(
    {"Client", "PendingApproval", "RunEvent", "RunHandle", "RunInfo", "SyncClient", "SyncRunHandle"}
)


def __getattr__(name: str) -> object:
    if name in _OF_CLIENT:
        found = globals()[name] = getattr(importlib.import_module("rowlock.client"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
