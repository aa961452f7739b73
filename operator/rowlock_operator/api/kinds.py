"""Every kind of the group, in the order of the reference pages; a new kind is added here."""

from __future__ import annotations

from typing import Final

from .agent import Agent
from .agentrun import AgentRun
from .agentrunapproval import AgentRunApproval
from .agentrunbatch import AgentRunBatch
from .resource import Resource
from .workerpool import WorkerPool

KINDS: Final[tuple[type[Resource], ...]] = (
    AgentRun,
    Agent,
    WorkerPool,
    AgentRunApproval,
    AgentRunBatch,
)
