"""What becomes of WorkerPools and Agents: Deployments and their companions, how many workers there
are, and the statuses of both kinds.

Level-triggered: every few seconds each pool is brought in line with its spec, and shows how it
goes. `scaling`, `victims`, `rollout`, `replicas`, `availability`, `announcements` and `status`
decide; `pools`, `deployments`, `autoscaler`, `mover` and `agents` act.
"""
