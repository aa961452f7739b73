"""An installation on real nodes: helm, kubectl, agents, and the ledger that they write to."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from localcluster import Cluster
from tests.charts import CHART, CRDS, done, helm

INSIDE = Path(__file__).with_name("inside")
SPACE = "rowlock-system"
POSTGRES_USER = 999
PATIENCE = 120.0
"""Seconds to wait for what takes one or two when the machine is free."""

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], what: str, within: float = PATIENCE) -> Seen:
    """Return the first thing that is true."""
    until, pause = time.monotonic() + within, threading.Event()
    while not (found := look()):
        assert time.monotonic() < until, f"not within {within} s: {what}"
        pause.wait(0.1)
    return found


class Space:
    """A namespace under restricted pod security, seen through kubectl."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def create(self) -> None:
        """Make the namespace."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.name, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """Return what kubectl prints as administrator."""
        return self.cluster.kubectl("-n", self.name, *arguments, **options).stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        everything = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", input=json.dumps(everything))

    def get(self, *what: str) -> dict[str, Any]:
        """Return an object or a list; empty if there is none."""
        answer = self.kubectl("get", *what, "-o", "json", "--ignore-not-found")
        return json.loads(answer) if answer else {}

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return the Pods with these labels."""
        return list(self.get("pods", "-l", selector)["items"])

    def run(self, agent: str, label: str, *, pool: str = "e2e", **walk: Any) -> str:
        """Apply an AgentRun and return its name, which is the label."""
        spec = {"agentRef": {"name": agent}, "workerPoolRef": {"name": pool}}
        spec["input"] = {"text": json.dumps({"label": label, **walk})}
        self.apply(self._named("AgentRun", label, spec))
        return label

    def agent(self, name: str) -> None:
        """Apply an Agent of `inside/e2e_agents.py`."""
        self.apply(self._named("Agent", name, {"entrypoint": f"e2e_agents:{name}"}))

    def status(self, run: str) -> dict[str, Any]:
        """Return the status of an AgentRun."""
        return dict(self.get("agentrun", run).get("status", {}))

    def finish(self, run: str, phase: str = "Succeeded") -> dict[str, Any]:
        """Wait for a run's end, which must be this one, and return its status."""
        arguments = ("--for=condition=Finished", f"agentrun/{run}", f"--timeout={PATIENCE:.0f}s")
        self.kubectl("wait", *arguments, check=False)
        status = self.status(run)
        assert status.get("phase") == phase, self.story(run)
        return status

    def phase(self, run: str, phase: str) -> dict[str, Any]:
        """Wait until a run is in a phase and return its status."""
        return eventually(
            lambda: found if (found := self.status(run)).get("phase") == phase else None,
            f"{run} {phase}",
        )

    def events(self, run: str, reason: str = "") -> list[dict[str, Any]]:
        """Return the Events about a run."""
        listed = self.get("events", "--field-selector", f"involvedObject.name={run}")["items"]
        return [each for each in listed if reason in ("", each["reason"])]

    def story(self, run: str) -> str:
        """Return all that tells why a run went as it did."""
        pods = self.kubectl("get", "pods", "-o", "wide")
        described = self.kubectl("describe", f"agentrun/{run}", check=False)
        recent = self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-25:]
        return "\n".join([described, pods, *recent])

    def _named(self, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        head = {"apiVersion": "rowlock.dev/v1alpha1", "kind": kind}
        return {**head, "metadata": {"name": name, "namespace": self.name}, "spec": spec}


class Ledger:
    """What agents did, and the gates that they wait at."""

    def __init__(self, url: str) -> None:
        self._url = url

    def effects(self, label: str) -> list[tuple[float, str]]:
        """Return time and name of each effect of a run, in order."""
        every = json.loads(self._ask("GET", "/effects"))
        mine = [(at, *line.split(" ", 1)) for at, line in every]
        return [(at, name) for at, known, name in mine if known == label]

    def count(self, label: str) -> dict[str, int]:
        """Return how often each effect of a run was there."""
        names = [name for _, name in self.effects(label)]
        return {name: names.count(name) for name in names}

    def wait(self, label: str, name: str, times: int = 1) -> float:
        """Wait until an effect was there so often; return the time of the last of these."""

        def look() -> list[float] | None:
            found = [at for at, known in self.effects(label) if known == name]
            return found if len(found) >= times else None

        return eventually(look, f"effect {name} of {label}, {times} times")[times - 1]

    def open(self, name: str) -> None:
        """Let those go on who wait at a gate."""
        self._ask("PUT", f"/gates/{name}")

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self._url + path, method=method)  # noqa: S310  our own
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  our own
            return bytes(answer.read())


class Installation(Space):
    """A release of the chart with its kinds, a database, a pool of two workers and a ledger."""

    def __init__(self, cluster: Cluster, home: Path, images: str, tag: str) -> None:
        super().__init__(cluster, SPACE)
        self.home, self.images, self.tag = home, images, tag

    def helm(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm on the cluster."""
        ended = helm(*arguments, home=self.home, kubeconfig=self.cluster.kubeconfig)
        if check:
            done(ended)
        return ended

    def install(self) -> None:
        """Install kinds and release on an empty cluster, and wait until all of it is ready."""
        self.create()
        self.volume("rowlock-e2e")
        self.bring_agents(self)
        self.helm("install", "rowlock-crds", CRDS)
        established = ("wait", "--for=condition=Established", "crd/agentruns.rowlock.dev")
        # kubectl refuses to wait for what has no conditions at all yet.
        eventually(
            lambda: self.cluster.kubectl(*established, check=False).returncode == 0, "the kinds"
        )
        self.release("install")
        self.kubectl("rollout", "status", "deployment/ledger", "--timeout=180s")
        (pod,) = self.pods("app=ledger")
        self.ledger = Ledger(f"http://{pod['status']['podIP']}:8080")
        self.ready()

    def release(self, verb: str, **changes: Any) -> None:
        """Install or upgrade the release."""
        values = self.home / "values.json"
        values.write_text(json.dumps(self.values() | changes))
        self.helm(verb, "rowlock", CHART, "-n", SPACE, "-f", values)

    def ready(self, workers: int = 2) -> None:
        """Wait until the operator, the database and the workers are ready."""
        for each in ("statefulset/rowlock-database", "deployment/rowlock-operator"):
            self.kubectl("rollout", "status", each, "--timeout=180s")
        self.pool_ready("e2e", workers)

    def pool_ready(self, pool: str, workers: int) -> None:
        """Wait until exactly so many workers of a pool are ready, on its newest template."""
        name = f"rowlock-{pool}"
        eventually(lambda: self.get("deployment", name), f"Deployment of pool {pool}")
        self.kubectl("rollout", "status", f"deployment/{name}", "--timeout=180s")
        eventually(
            lambda: self.get("deployment", name)["status"].get("readyReplicas", 0) == workers,
            f"{workers} workers of {pool}",
        )

    def values(self) -> dict[str, Any]:
        """Return the values of the release."""
        agents = {"walker": {"entrypoint": "e2e_agents:walker"}}
        agents["refunder"] = {"entrypoint": "e2e_agents:refunder"}
        agents["hello"] = {"entrypoint": "rowlock.hello:hello"}
        image = {"repository": f"{self.images}/rowlock-operator", "tag": self.tag}
        database = f"{self.images}/rowlock-postgres:{self.tag}"
        return {
            "image": image,
            "workerImage": {"repository": f"{self.images}/rowlock-worker", "tag": self.tag},
            "rbac": {"namespaces": [SPACE]},
            "database": {"dev": {"enabled": True, "image": database, "storage": "1Gi"}},
            "operator": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}},
            "workerPools": {"e2e": pool()},
            "agents": agents,
        }

    def volume(self, name: str) -> None:
        """Offer a volume of the first node, since no storage class makes one."""
        folder = self.home / name
        folder.mkdir()
        terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [self.first_node]}]
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}},
        }
        head = {"apiVersion": "v1", "kind": "PersistentVolume"}
        self.apply({**head, "metadata": {"name": name}, "spec": spec})

    @property
    def first_node(self) -> str:
        """Name of the node with the volumes."""
        return self.cluster.nodes[0].name

    def bring_agents(self, space: Space) -> None:
        """Bring the agents' code, and into the release's own namespace the ledger."""
        code = {path.name: path.read_text() for path in sorted(INSIDE.glob("*.py"))}
        head = {"apiVersion": "v1", "kind": "ConfigMap"}
        metadata = {"name": "e2e-agents", "namespace": space.name}
        space.apply({**head, "metadata": metadata, "data": code})
        if space is self:
            space.apply(*_ledger(f"{self.images}/rowlock-worker:{self.tag}"))


def pool(**changes: Any) -> dict[str, Any]:
    """Return the spec of a pool whose workers have the agents of `inside`."""
    worker = {
        "name": "worker",
        "env": [{"name": "E2E_LEDGER", "value": f"http://ledger.{SPACE}.svc:8080"}],
        "volumeMounts": [{"name": "agents", "mountPath": "/opt/agents"}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    volumes = [{"name": "agents", "configMap": {"name": "e2e-agents"}}]
    spec = {"containers": [worker], "volumes": volumes}
    scaling = {"mode": "None"}
    defaults = {"slotsPerWorker": 8, "processesPerWorker": 1, "replicas": 2, "autoscaling": scaling}
    return {**defaults, "podTemplate": {"spec": spec}, **changes}


def _ledger(image: str) -> list[dict[str, Any]]:
    labels, metadata = {"app": "ledger"}, {"name": "ledger", "namespace": SPACE}
    container = {
        "name": "ledger",
        "image": image,
        "command": ["python", "/inside/ledger.py"],
        "volumeMounts": [{"name": "inside", "mountPath": "/inside"}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "inside", "configMap": {"name": "e2e-agents"}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"port": 8080}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]


def fresh(word: str) -> str:
    """Return a name that no other run has."""
    return f"{word}-{uuid.uuid4().hex[:6]}"


def pod_of(worker: str) -> str:
    """Return the name of the Pod of a worker, as a status names it."""
    return re.split(r"[/ ]", worker)[0]
