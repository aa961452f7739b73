"""Making a status fit: etcd stores it, every watcher reads it, so it stays within 8 KiB.

The schema's limits count characters; four bytes each, and escapes of JSON, can break the cap
all the same. What people can spare most goes first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowlock_operator.kube.text import cut

MAX_STATUS_BYTES = 8 * 1024
_FEWEST_LEASES = 2


def size(status: dict[str, Any]) -> int:
    """Return the bytes of `status` as JSON."""
    return len(msgspec.json.encode(status))


def fit(status: dict[str, Any], *, limit: int = MAX_STATUS_BYTES) -> dict[str, Any]:
    """Return `status`, cut until it has at most `limit` bytes: old leases first, then texts."""
    while size(status) > limit and len(status.get("history", ())) > _FEWEST_LEASES:
        status = {**status, "history": status["history"][1:], "historyTruncated": True}
    share = 512
    while size(status) > limit and share >= 16:
        status = _shortened(status, share)
        share //= 2
    return status


def _shortened(status: dict[str, Any], share: int) -> dict[str, Any]:
    short = dict(status)
    if "failure" in short:
        short["failure"] = _cut_field(short["failure"], "message", share)
    if "result" in short:
        short["result"] = _cut_field(short["result"], "preview", share)
    if share <= 128:
        short["conditions"] = [
            _cut_field(condition, "message", share) for condition in short["conditions"]
        ]
    return short


def _cut_field(part: dict[str, Any], field: str, limit: int) -> dict[str, Any]:
    return {**part, field: cut(part[field], limit)} if part.get(field) else part
