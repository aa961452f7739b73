"""Writing the status of kinds with one writer and few objects: Agents and WorkerPools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Invalid, NotFound
from rowlock_operator.kube.resources import Resource

FIELD_MANAGER = "rowlock-operator"


async def write_status(
    client: KubeClient,
    resource: Resource,
    namespace: str,
    name: str,
    *,
    uid: str,
    status: Mapping[str, Any],
) -> bool:
    """Replace the status of an object; False if it is gone, or another one has its name.

    Raises
    ------
    KubeError
        The API server did not take it.
    """
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status", "value": status},
    ]
    path = resource.path(namespace, name, "status")
    try:
        await client.json_patch(path, operations, manager=FIELD_MANAGER)
    except NotFound:
        return False
    except Invalid as error:
        if error.causes:
            raise
        return False
    return True
