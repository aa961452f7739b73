"""How rows become statuses and Kubernetes Events.

::

    run_change ─ Mirror ─ snapshots ─→ run_status() ─→ StatusDesk ─ JSON Patch ─→ /status
                    └─────────────────→ announcement() → Announcer ─→ events.k8s.io
    Notices (runs without a row) ─→ notice_status() ──→ StatusDesk

The status is a copy: whoever wants to know for sure asks PostgreSQL.
`status`, `leases`, `fit` and `announcements` are pure; `mirror`, `desk` and `announcer` act.
"""
