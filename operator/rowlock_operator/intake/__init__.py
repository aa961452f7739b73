"""How AgentRuns come in, and how what the watch missed is found again.

::

    kopf (own thread) ─ EchoFilter ─ Handover ─┐
                                               ├→ Inbox ─ resolver ─→ enqueue (PostgreSQL)
    Sweep (paged list ⇄ rows, every 5 min) ────┘     └─→ Notices (waits, refusals) → status
         └→ Departures (deleted objects, confirmed by a GET) → cancel

Nothing here is the only way that something is noticed: a watch event is a hint, the sweep repairs.
"""
