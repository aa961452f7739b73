"""Runs as a cluster shows them: everything that people do to AgentRuns with kubectl's rights.

`kubectl` itself is run for it: it brings contexts, credentials and their plugins,
and what it may do is what the person may do.

- `kubectl`: the process, and `refusals`, what its errors mean
- `objects`: from AgentRun, WorkerPool, AgentRunApproval and Event to what commands show; pure
- `side`, `wishes`, `starting`, `watching`, `podlogs`: what commands ask
"""
