"""Whose runs a mirror shows: other clusters and operators may use the same database."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from rowlock.store.types import Change, RunId, RunSnapshot

_MOST = 100_000


class Scope:
    """One cluster, and some or all of its namespaces.

    Parameters
    ----------
    cluster
        Uid of the namespace kube-system.
    namespaces
        Empty for all.
    """

    def __init__(self, cluster: str, namespaces: Sequence[str] = ()) -> None:
        self._cluster = cluster
        self._namespaces = frozenset(namespaces)
        self._foreign: OrderedDict[RunId, None] = OrderedDict()

    def may_be_ours(self, changes: Iterable[Change]) -> list[Change]:
        """Return the changes of runs that were not found to belong to others."""
        return [change for change in changes if change.run_id not in self._foreign]

    def leaves(self, snapshot: RunSnapshot | None) -> bool:
        """Tell whether another operator shows the run, and remember that."""
        if snapshot is None or self._is_ours(snapshot):
            return False
        self._foreign[snapshot.run_id] = None
        if len(self._foreign) > _MOST:
            self._foreign.popitem(last=False)
        return True

    def _is_ours(self, snapshot: RunSnapshot) -> bool:
        return snapshot.cluster == self._cluster and (
            not self._namespaces or snapshot.namespace in self._namespaces
        )
