"""Pods of workers that die: seen early, judged by a pure function, fenced in the database.

::

    API server ── PodWatch ──→ Roster ──┐
    PostgreSQL ── worker_pods ──────────┼─→ judge() ──→ fence_pods, mark_node_lost
    API server ── GET of a pod or node ─┘

Why a watch of our own: kopf selects by label only after it has received and decoded every pod of
the cluster, at about 0.6 ms each. Here the API server selects, and a slim tuple is all we keep.
"""
