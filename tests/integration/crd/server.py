"""The API server as the tests of the custom resources see it.

One connection is kept open: a request takes 2 ms, a kubectl process 100.
"""

from __future__ import annotations

import json
import ssl
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from localcluster import Cluster
from rowlock_operator.api.agent import Agent
from rowlock_operator.api.agentrun import AgentRun
from rowlock_operator.api.agentrunapproval import AgentRunApproval
from rowlock_operator.api.agentrunbatch import AgentRunBatch
from rowlock_operator.api.names import GROUP, VERSION
from rowlock_operator.api.resource import Resource
from rowlock_operator.api.workerpool import WorkerPool

JSON = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

#: The smallest spec of each kind that the server accepts.
SMALLEST: dict[type[Resource], JSON] = {
    AgentRun: {"agentRef": {"name": "triage"}},
    Agent: {"entrypoint": "acme.triage:agent"},
    WorkerPool: {"image": "acme/agents:1"},
    AgentRunApproval: {"runRef": {"name": "triage-1"}, "tool": "mail", "digest": "0123456789ab"},
    AgentRunBatch: {
        "runTemplate": {"agentRef": {"name": "triage"}, "priority": 0},
        "items": [{"id": "one", "text": "1"}],
    },
}


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    body: JSON

    @property
    def ok(self) -> bool:
        """Whether it did what was asked."""
        return self.status < 300

    @property
    def message(self) -> str:
        """What it says was wrong; empty if nothing was."""
        return "" if self.ok else str(self.body.get("message", ""))


class KubeApi:
    """One open connection to an API server, as its administrator."""

    def __init__(self, cluster: Cluster) -> None:
        address = urlsplit(cluster.url)
        trust = ssl.create_default_context(cafile=cluster.ca_file)
        self._connection = HTTPSConnection(str(address.hostname), address.port, context=trust)
        self._headers = {"Authorization": f"Bearer {cluster.token}"}

    def call(
        self, method: str, path: str, body: object = None, *, content: str = "json", **query: str
    ) -> Reply:
        """Make one request; `content` is the subtype of the body's media type."""
        headers = {**self._headers, "Content-Type": f"application/{content}"}
        target = f"{path}?{urlencode(query)}" if query else path
        self._connection.request(method, target, json.dumps(body) if body else None, headers)
        with self._connection.getresponse() as response:
            text = response.read().decode()
            structured = response.headers.get_content_type() == "application/json"
        return Reply(response.status, json.loads(text) if structured else {"message": text})

    def install(self, definition: Mapping[str, Any]) -> None:
        """Create or change a CustomResourceDefinition and wait until it is served."""
        name = definition["metadata"]["name"]
        query = {"fieldManager": "tests", "force": "true"}
        path = f"{DEFINITIONS}/{name}"
        applied = self.call("PATCH", path, definition, content="apply-patch+yaml", **query)
        assert applied.ok, applied.message
        served = f"/apis/{definition['spec']['group']}/{VERSION}/{name.split('.')[0]}"
        self.wait_for(lambda: self.call("GET", served, limit="1").ok, f"{served} is served")

    def wait_for(self, condition: Any, what: str) -> None:
        """Ask again until the condition holds."""
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"not within 20 s: {what}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@dataclass(frozen=True)
class Objects:
    """The objects of one kind in one namespace; `dry` asks without storing."""

    api: KubeApi
    kind: type[Resource]
    namespace: str
    group: str = GROUP

    @property
    def path(self) -> str:
        """Path of the collection."""
        plural = self.kind.definition.plural
        return f"/apis/{self.group}/{VERSION}/namespaces/{self.namespace}/{plural}"

    def manifest(self, spec: JSON | None = None, *, name: str = "") -> JSON:
        """Return an object with the smallest valid spec and what is given beside it."""
        return {
            "apiVersion": f"{self.group}/{VERSION}",
            "kind": self.kind.definition.kind,
            "metadata": {"name": name or f"t-{uuid.uuid4().hex[:12]}"},
            "spec": {**SMALLEST[self.kind], **(spec or {})},
        }

    def create(self, spec: JSON | None = None, *, name: str = "", dry: bool = False) -> Reply:
        """Create an object."""
        return self.post(self.manifest(spec, name=name), dry=dry)

    def post(self, manifest: object, *, dry: bool = False) -> Reply:
        """Create an object from a whole manifest."""
        return self.api.call("POST", self.path, manifest, **_query(dry))

    def make(self, spec: JSON | None = None, status: JSON | None = None) -> str:
        """Create an object that must be accepted, and return its name."""
        created = self.create(spec)
        assert created.ok, created.message
        name = str(created.body["metadata"]["name"])
        if status is not None:
            written = self.patch(name, {"status": status}, sub="/status")
            assert written.ok, written.message
        return name

    def get(self, name: str, *, sub: str = "") -> Reply:
        """Read an object, or a subresource of it."""
        return self.api.call("GET", f"{self.path}/{name}{sub}")

    def patch(self, name: str, patch: JSON, *, sub: str = "", dry: bool = False) -> Reply:
        """Merge a patch into an object, or into a subresource of it."""
        path = f"{self.path}/{name}{sub}"
        return self.api.call("PATCH", path, patch, content="merge-patch+json", **_query(dry))

    def change(self, name: str, spec: JSON, *, dry: bool = True) -> Reply:
        """Merge a patch into a spec; None removes a field."""
        return self.patch(name, {"spec": spec}, dry=dry)

    def names(self, selector: str) -> list[str]:
        """Return the names that a field selector finds."""
        found = self.api.call("GET", self.path, fieldSelector=selector)
        assert found.ok, found.message
        return [item["metadata"]["name"] for item in found.body["items"]]


def _query(dry: bool) -> dict[str, str]:
    return {"fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
