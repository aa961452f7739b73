"""What becomes of WorkerPools and Agents: Deployments, and the statuses of both kinds.

Level-triggered: every few seconds each pool is brought in line with its spec, and shows how it
goes. `replicas`, `availability` and `status` decide, `pools` and `agents` act.
"""
