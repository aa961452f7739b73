"""The processes of the demo: control plane, PostgreSQL, operator, two workers.

All of them end with the stage, also when the demo is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import localcluster
from localcluster import binaries
from rowlock.embedded import database_url
from rowlock.store.migrate import migrate

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "examples" / "support"
_CHILD = Path(localcluster.__file__).with_name("_child.py")
_NAMESPACE = "default"
_POOL = "default"
_READY_SECONDS = 30.0


class DemoError(Exception):
    """The demo cannot go on; the message says what a person can do."""


@dataclass
class Stage:
    """What the story plays on.

    Parameters
    ----------
    folder
        Logs, the ledger of refunds, and the files by which the story holds one worker.
    """

    cluster: localcluster.Cluster
    database: str
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        """The payment provider's book: one line for each refund that it made."""
        return self.folder / "refunds.jsonl"

    @property
    def hold(self) -> Path:
        """Names the order whose refund is held between its effect and its record."""
        return self.folder / "hold"

    def start(self, name: str, *command: str, **environment: str) -> None:
        """Start a program of the virtual environment that ends with this process."""
        log = (self.folder / f"{name}.log").open("ab")
        program = str(Path(sys.executable).with_name(command[0]))
        shim = [sys.executable, "-I", "-S", str(_CHILD), str(os.getpid())]
        paths = os.pathsep.join(
            str(ROOT / part) for part in ("worker-image", "operator", "examples")
        )
        settings = {"ROWLOCK_DATABASE_URL": self.database, "PYTHONPATH": paths, **environment}
        self.processes[name] = subprocess.Popen(
            [*shim, program, *command[1:]], stdout=log, stderr=log, env={**os.environ, **settings}
        )
        log.close()

    def log_tail(self, name: str, lines: int = 12) -> str:
        """Return the last lines that a process logged."""
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def check_alive(self) -> None:
        """Raise if a process ended that should run.

        Raises
        ------
        DemoError
            With the end of its log.
        """
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise DemoError(f"{name} ended with {process.returncode}:\n{self.log_tail(name)}")

    def wait_for(
        self, what: str, ready: Callable[[], bool], seconds: float = _READY_SECONDS
    ) -> None:
        """Return as soon as `ready()` is true.

        Raises
        ------
        DemoError
            It was not within `seconds`, or a process ended meanwhile.
        """
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while not ready():
            self.check_alive()
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {name}\n{self.log_tail(name)}" for name in self.processes)
                raise DemoError(f"waited {seconds:.0f} s for {what}\n{logs}")
            pause.wait(0.05)

    def end(self) -> None:
        """End operator and workers, politely at first."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def stage(context: str | None, say: Callable[[str], None]) -> Iterator[Stage]:
    """Yield a stage with everything running, and end it all afterwards.

    Parameters
    ----------
    context
        Name of a context of the user's kubeconfig; None starts a cluster.
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(_cluster(context, say))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowlock-demo-")))
        url = stack.enter_context(database_url(os.environ.get("ROWLOCK_DATABASE_URL")))
        say("PostgreSQL runs")
        asyncio.run(migrate(url))
        here = Stage(cluster, url, folder)
        if context:
            stack.callback(_clear, cluster)
        stack.callback(here.end)
        _install(here)
        say("custom resources installed")
        _start_processes(here)
        say("operator and two workers run")
        yield here


@contextmanager
def _cluster(context: str | None, say: Callable[[str], None]) -> Iterator[localcluster.Cluster]:
    if context is None:
        with localcluster.start(name="demo") as cluster:
            say("Kubernetes API server, controller manager and scheduler run")
            yield cluster
        return
    with _proxy(context) as kubeconfig, localcluster.Cluster.from_kubeconfig(kubeconfig) as cluster:
        say(f"using your context {context}")
        yield cluster


@contextmanager
def _proxy(context: str) -> Iterator[Path]:
    """Serve the user's cluster on loopback, by whatever way of logging in kubectl knows."""
    kubectl = shutil.which("kubectl") or str(binaries.provide(["kubectl"])["kubectl"])
    proxy = subprocess.Popen(
        [kubectl, "proxy", f"--context={context}", "--port=0"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = proxy.stdout.readline() if proxy.stdout else ""
        if "127.0.0.1:" not in line:
            raise DemoError(f"kubectl proxy --context={context} did not start")
        port = line.strip().rsplit(":", 1)[1]
        with tempfile.TemporaryDirectory(prefix="rowlock-demo-") as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(_KUBECONFIG.format(port=port))
            yield kubeconfig
    finally:
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(timeout=10)


_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: demo, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: demo, user: {{}}}}]
contexts: [{{name: demo, context: {{cluster: demo, user: demo}}}}]
current-context: demo
"""


def _clear(cluster: localcluster.Cluster) -> None:
    """Leave nothing in the user's cluster but the definitions of the custom resources."""
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(MANIFESTS), check=False)


def _install(here: Stage) -> None:
    here.cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    here.cluster.kubectl(
        "wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=30s"
    )


def _start_processes(here: Stage) -> None:
    port = _free_port()
    here.start(
        "operator",
        "rowlock-operator",
        f"--namespaces={_NAMESPACE}",
        f"--http-port={port}",
        "--no-election",
        KUBECONFIG=str(here.cluster.kubeconfig),
    )
    for number in (1, 2):
        here.start(
            f"worker-{number}",
            "rowlock",
            "worker",
            f"--pool={_POOL}",
            f"--namespace={_NAMESPACE}",
            f"--instance=worker-{number}",
            "--processes=1",
            SUPPORT_LEDGER=str(here.ledger),
            SUPPORT_HOLD_FILE=str(here.hold),
            SUPPORT_MODEL_PACE="demo",
        )
    here.wait_for("the operator to be ready", lambda: _answers(port))


def _free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer,
    ):
        return bool(answer.status == 200)
    return False
