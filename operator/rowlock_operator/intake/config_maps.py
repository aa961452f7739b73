"""Entries of ConfigMaps that runs take their input from."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from rowlock_operator.intake.inputs import ConfigMapKey
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Denied, NotFound
from rowlock_operator.kube.resources import CONFIG_MAPS


class ConfigMaps:
    """Reads each ConfigMap once a batch and keeps nothing: an input is read when it is taken in."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def entries(
        self, wanted: Collection[tuple[str, ConfigMapKey]]
    ) -> dict[tuple[str, ConfigMapKey], str | None]:
        """Return the text of each (namespace, entry), None where there is none."""
        names = sorted({(namespace, where.name) for namespace, where in wanted})
        maps = dict(
            zip(names, await asyncio.gather(*(self._data(*name) for name in names)), strict=True)
        )
        return {
            (namespace, where): maps[namespace, where.name].get(where.key)
            for namespace, where in wanted
        }

    async def _data(self, namespace: str, name: str) -> dict[str, Any]:
        try:
            item = await self._client.get(CONFIG_MAPS.path(namespace, name))
        except (NotFound, Denied):
            # A missing right must not hold up every other run: this one waits and says so.
            return {}
        return item.get("data") or {}
