"""The custom resources of the group rowlock.dev, as typed models and as the API server sees them.

Each kind has a module of its own, as `agentrun` or `workerpool`; the models are the only
source of the files in crds/ and of the reference pages (`python -m rowlock_operator.api generate`,
`docs`).

    run = AgentRun.model_validate(obj)      # or AgentRunSpec.model_validate(obj["spec"])
    status = AgentRunStatus(phase=Phase.QUEUED, conditions=(...)).to_dict()
"""

from .agent import Agent, AgentSpec, AgentStatus
from .agentrun import AgentRun, AgentRunSpec, DesiredState
from .agentrun_status import AgentRunStatus
from .agentrunbatch import AgentRunBatch, AgentRunBatchSpec, BatchItem, Materialize
from .agentrunbatch_status import AgentRunBatchStatus, BatchPhase, FailedItem
from .conditions import Condition, ConditionStatus
from .limits import Budget, RunLimits
from .names import (
    AGENT_RUN_BATCHES,
    AGENT_RUNS,
    AGENTS,
    API_VERSION,
    CATEGORY,
    GROUP,
    VERSION,
    WORKER_POOLS,
)
from .workerpool import WorkerPool, WorkerPoolSpec, WorkerPoolStatus

__all__ = [
    "AGENTS",
    "AGENT_RUNS",
    "AGENT_RUN_BATCHES",
    "API_VERSION",
    "CATEGORY",
    "GROUP",
    "VERSION",
    "WORKER_POOLS",
    "Agent",
    "AgentRun",
    "AgentRunBatch",
    "AgentRunBatchSpec",
    "AgentRunBatchStatus",
    "AgentRunSpec",
    "AgentRunStatus",
    "AgentSpec",
    "AgentStatus",
    "BatchItem",
    "BatchPhase",
    "Budget",
    "Condition",
    "ConditionStatus",
    "DesiredState",
    "FailedItem",
    "Materialize",
    "RunLimits",
    "WorkerPool",
    "WorkerPoolSpec",
    "WorkerPoolStatus",
]
