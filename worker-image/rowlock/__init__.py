"""Rowlock: durable AI-agent runs, checkpointed in PostgreSQL.

Everything that an agent's author needs is listed here; the rest of the package is private to it.
"""

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
    InvalidInput,
    InvalidOutput,
    ModelRefused,
    ModelUnavailable,
    NonDeterministic,
    NotStarted,
    PermanentError,
    RowlockError,
    StepFailed,
)
from rowlock.models import ModelTimeouts, OpenAIChat, Prices

__all__ = [
    "AgentDefinitionError",
    "AgentError",
    "ApprovalDenied",
    "Budget",
    "BudgetExceeded",
    "ChatAgent",
    "InvalidInput",
    "InvalidOutput",
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
    "PermanentError",
    "Prices",
    "RowlockError",
    "Run",
    "StepFailed",
    "Tool",
    "ToolCall",
    "Usage",
    "agent",
    "tool",
]
