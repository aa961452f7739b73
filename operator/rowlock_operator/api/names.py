"""The words by which the API server knows our custom resources."""

from __future__ import annotations

from typing import Final

GROUP: Final = "rowlock.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

#: `kubectl get rowlock` lists every kind.
#: It must never equal a plural: `kubectl delete agents --all` would then delete runs and pools too.
CATEGORY: Final = "rowlock"

AGENT_RUNS: Final = "agentruns"
AGENTS: Final = "agents"
WORKER_POOLS: Final = "workerpools"
AGENT_RUN_APPROVALS: Final = "agentrunapprovals"
AGENT_RUN_BATCHES: Final = "agentrunbatches"

#: Finalizer of an AgentRun whose deletion is held until its run has ended; off by default.
HOLD: Final = f"{GROUP}/hold"
