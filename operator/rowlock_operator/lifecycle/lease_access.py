"""Reads and writes the one Lease on the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.errors import ConfigurationError
from rowlock_operator.kube.client import KubeClient, Lane
from rowlock_operator.kube.errors import NotFound
from rowlock_operator.kube.resources import LEASES
from rowlock_operator.lifecycle.lease import Lease, lease_from


class LeaseMisplaced(ConfigurationError):
    """The Lease cannot be where the settings want it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the Lease is."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaseAccess:
    """The Lease at one place.

    Parameters
    ----------
    client
        One of its own: a leader must not lose its Lease because all connections are busy
        with statuses, nor because their rate was lowered.
    """

    def __init__(self, client: KubeClient, place: Place) -> None:
        self._client = client
        self.place = place

    async def read(self) -> Lease | None:
        """Return the Lease, None if there is none.

        Raises
        ------
        KubeError
            It cannot be read now; `Denied` if the service account may not.
        """
        path = LEASES.path(self.place.namespace, self.place.name)
        try:
            return lease_from(await self._client.get(path, lane=Lane.LEASE))
        except NotFound:
            return None

    async def replace(self, item: Mapping[str, Any]) -> Lease:
        """Write the Lease over the version in `item`; `Conflict` if there is a newer one."""
        path = LEASES.path(self.place.namespace, self.place.name)
        return lease_from(await self._client.replace(path, item, lane=Lane.LEASE))

    async def create(self, item: Mapping[str, Any]) -> Lease:
        """Make the Lease; `Conflict` if somebody was faster.

        Raises
        ------
        LeaseMisplaced
            There is no such namespace.
        """
        path = LEASES.path(self.place.namespace)
        try:
            made = await self._client.create(path, item, lane=Lane.LEASE)
        except NotFound:
            raise LeaseMisplaced(
                f"there is no namespace {self.place.namespace} for the Lease: create it,"
                " or set ROWLOCK_LEASE_NAMESPACE"
            ) from None
        return lease_from({**item, "metadata": made["metadata"]})
