"""Questions to people as AgentRunApprovals: one object a question, decided by its spec.

::

    rows ─ run_change, or a sweep ─→ Agenda ─→ Approvals.run_once ─→ create, /status, Events
    kubectl patch ─ watch ─────────────↗            └─ spec.decision ─→ store.approvals.decide

Each round compares the questions of a run as the database has them with the objects as the API
server has them, so that a lost message, a crash or a second operator changes nothing.
`identity`, `manifest` and `standing` are pure; `objects` and `approvals` act.
"""
