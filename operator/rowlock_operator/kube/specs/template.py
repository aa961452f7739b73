"""Merging a WorkerPool's `podTemplate` into the generated one.

Lists whose name is in `MERGE_KEYS` are merged entry by entry, all others replaced as a whole;
docs/explanation/operator.md has the same table, and a test that says so.
Maps are merged key by key; `null` takes a key away. Entries that match nothing are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "ports": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `patch` laid over it."""
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(key, merged.get(key), value)
    return merged


def _merged(key: str, base: Any, patch: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return merge(base, patch)
    by = MERGE_KEYS.get(key)
    if by and isinstance(base, Sequence) and _all_have(by, patch):
        return _merged_list(base, patch, by)
    return patch


def _all_have(by: str, entries: Any) -> bool:
    return isinstance(entries, Sequence) and all(
        isinstance(entry, Mapping) and isinstance(entry.get(by), str) for entry in entries
    )


def _merged_list(
    base: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], by: str
) -> list[dict[str, Any]]:
    entries = {entry[by]: dict(entry) for entry in base}
    for entry in patch:
        known = entries.get(entry[by], {})
        # A value given here must not meet the valueFrom that it replaces, nor the reverse.
        if by == "name" and ("value" in entry or "valueFrom" in entry):
            known = {}
        entries[entry[by]] = merge(known, entry)
    return list(entries.values())
