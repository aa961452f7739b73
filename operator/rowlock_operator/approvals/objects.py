"""The AgentRunApprovals that are not settled, and every request about them.

A status is replaced as a whole, and only on the object that was looked at: the patch tests the uid
and the resourceVersion, so that of two operators neither overwrites what the other wrote later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rowlock_operator.approvals.standing import settled
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.kube.client import METADATA_ONLY, KubeClient, Lane
from rowlock_operator.kube.errors import Conflict, Invalid, NotFound
from rowlock_operator.kube.ownstatus import FIELD_MANAGER
from rowlock_operator.kube.resources import AGENT_RUN_APPROVALS, AGENT_RUNS, ObjectKey

Name = tuple[str, str]


def run_of(seen: Seen) -> str:
    """Return the uid of the AgentRun that an object belongs to; its own where it has none."""
    return seen.owner or seen.key.uid


class Objects:
    """What the watch, lists and our own writes showed, by namespace and name."""

    def __init__(self, client: KubeClient, *, namespaces: Sequence[str] = ()) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._known: dict[Name, Seen] = {}
        self._of_run: defaultdict[str, set[Name]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._known)

    def named(self, namespace: str, name: str) -> Seen | None:
        """Return an object; None if it is settled, or not known."""
        return self._known.get((namespace, name))

    def of_run(self, uid: str) -> list[Seen]:
        """Return the objects of an AgentRun."""
        return [self._known[name] for name in sorted(self._of_run.get(uid, ()))]

    def take(self, seen: Seen) -> bool:
        """Remember an object as it was seen; tell whether it has to be looked at."""
        name = (seen.key.namespace, seen.key.name)
        old = self._known.get(name)
        same = old is not None and old.key.uid == seen.key.uid
        if seen.gone:
            if same:
                self._forget(name)
            return True
        if same and old is not None and old.generation > seen.generation:
            return False
        if settled(seen):
            self._forget(name)
            return False
        self._remember(seen)
        return True

    async def refresh(self) -> list[Seen]:
        """Read all anew and return those to look at: what the watch missed ends here."""
        listed = [seen for where in self._namespaces or (None,) async for seen in self._list(where)]
        uids = {seen.key.uid for seen in listed}
        gone = [replace(it, gone=True) for it in self._known.values() if it.key.uid not in uids]
        return [seen for seen in [*gone, *listed] if self.take(seen)]

    async def _list(self, namespace: str | None) -> AsyncIterator[Seen]:
        async for page in self._client.pages(AGENT_RUN_APPROVALS.path(namespace)):
            for item in page["items"]:
                seen = seen_from(item, AGENT_RUN_APPROVALS.kind)
                if is_of_a_run(seen):
                    yield seen

    async def wanted(self, run: ObjectKey) -> bool:
        """Tell whether an AgentRun is there and stays: else its objects would outlive it."""
        try:
            item = await self._client.get(
                AGENT_RUNS.path(run.namespace, run.name), accept=METADATA_ONLY
            )
        except NotFound:
            return False
        metadata = item["metadata"]
        return bool(metadata["uid"] == run.uid and "deletionTimestamp" not in metadata)

    async def create(self, body: Mapping[str, Any]) -> Seen | None:
        """Create an object and return it, or what has its name; None if that is gone again."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            path = AGENT_RUN_APPROVALS.path(namespace)
            made = await self._client.create(path, body, lane=Lane.STATUS)
        except Conflict:
            return await self.read(namespace, name)
        seen = seen_from({**body, "metadata": made["metadata"]}, AGENT_RUN_APPROVALS.kind)
        return self._remember(seen)

    async def read(self, namespace: str, name: str) -> Seen | None:
        """Read an object anew; None if it is gone."""
        try:
            item = await self._client.get(AGENT_RUN_APPROVALS.path(namespace, name))
        except NotFound:
            self._forget((namespace, name))
            return None
        return self._remember(seen_from(item, AGENT_RUN_APPROVALS.kind))

    async def write(self, seen: Seen, status: Mapping[str, Any]) -> bool:
        """Write a status; False if the object is another by now, or gone: look again.

        Raises
        ------
        KubeError
            The API server did not take it.
        """
        key = seen.key
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": key.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": seen.version},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = AGENT_RUN_APPROVALS.path(key.namespace, key.name, "status")
        try:
            answer = await self._client.json_patch(path, operations, manager=FIELD_MANAGER)
        except (NotFound, Conflict, Invalid) as error:
            if getattr(error, "causes", ()):
                raise
            await self.read(key.namespace, key.name)
            return False
        self.take(replace(seen, version=answer["metadata"]["resourceVersion"], status=status))
        return True

    def _remember(self, seen: Seen) -> Seen:
        name = (seen.key.namespace, seen.key.name)
        self._forget(name)
        self._known[name] = seen
        self._of_run[run_of(seen)].add(name)
        return seen

    def _forget(self, name: Name) -> None:
        old = self._known.pop(name, None)
        if old is None:
            return
        names = self._of_run[run_of(old)]
        names.discard(name)
        if not names:
            del self._of_run[run_of(old)]


def is_of_a_run(seen: Seen) -> bool:
    """Tell an object of a run from one of a batch's item."""
    return "batchItemRef" not in seen.spec
