"""The promises of `localcluster`, each kept against real binaries and real processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import localcluster
from localcluster import Cluster, binaries, pytest_plugin, standing, start
from localcluster.errors import (
    AlreadyRunningError,
    BuildError,
    ComponentError,
    KubectlError,
    UsageError,
)
from localcluster.progress import Reporter

pytestmark = pytest.mark.cluster

SMALL = ("etcd", "apiserver")
SOURCE_ROOT = Path(localcluster.__file__).parents[1]

LAUNCHER = """
import signal
from localcluster import start
with start(name="launcher", components=("etcd", "apiserver")) as cluster:
    print(cluster.kubeconfig.parent, flush=True)
    signal.pause()
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: lonely}
spec: {containers: [{name: main, image: example.invalid/none}]}
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: pair}
spec:
  replicas: 2
  selector: {matchLabels: {app: pair}}
  template:
    metadata: {labels: {app: pair}}
    spec: {containers: [{name: main, image: example.invalid/none}]}
"""


def eventually(holds: Callable[[], bool], *, within: float = 15) -> bool:
    """Look again and again until it holds; for facts of other processes that send no signal."""
    until, pause = time.monotonic() + within, threading.Event()
    while not holds():
        if time.monotonic() > until:
            return False
        pause.wait(0.02)
    return True


def processes_of(folder: Path) -> list[int]:
    """Return the processes whose command line names the folder; every one of a cluster does."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and os.fsencode(folder) in command_line(entry):
            found.append(int(entry.name))
    return found


def command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@contextmanager
def python(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python; a process that the block has left is killed, so that no failure waits for it."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE_ROOT)} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Shell:
    """Runs the command line with a state folder of its own."""

    def __init__(self, state: Path) -> None:
        self.clusters = state / "rowlock" / "clusters"
        self._state = state

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        mine = {"XDG_STATE_HOME": str(self._state), "KUBEBUILDER_ASSETS": ""}
        variables = mine | variables
        with python("-m", "localcluster", *arguments, **variables) as process:
            output, error = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, output, error)

    def keeper(self) -> int:
        record = json.loads((self.clusters / "dev" / "cluster.json").read_text())
        return int(record["keeper"])


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell("down")


@contextmanager
def namespace(cluster: Cluster, name: str) -> Iterator[str]:
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_a_started_cluster_is_ready_and_takes_pods(cluster: Cluster) -> None:
    assert cluster.kubectl("get", "--raw=/readyz").stdout == "ok"
    with namespace(cluster, "takes-pods") as name:
        cluster.kubectl("apply", "-n", name, "-f", "-", input=POD)
        assert cluster.kubectl("get", "pods", "-n", name, "-o", "name").stdout == "pod/lonely\n"


def test_a_deployment_gets_its_replica_set_and_its_pods(cluster: Cluster) -> None:
    with namespace(cluster, "deploys") as name:
        cluster.kubectl("apply", "-n", name, "-f", "-", input=DEPLOYMENT)
        created = "--for=jsonpath={.status.replicas}=2"
        cluster.kubectl("wait", created, "deployment/pair", "-n", name, "--timeout=30s")
        made = cluster.kubectl("get", "replicasets,pods", "-n", name, "-o", "name").stdout
    assert [line.partition("/")[0] for line in made.splitlines()] == [
        "replicaset.apps",
        *2 * ["pod"],
    ]


def test_a_failing_kubectl_tells_why(cluster: Cluster) -> None:
    with pytest.raises(KubectlError, match='pods "absent" not found'):
        cluster.kubectl("get", "pod", "absent")
    assert cluster.kubectl("get", "pod", "absent", check=False).returncode == 1


def test_clusters_side_by_side_share_nothing() -> None:
    with start(components=SMALL) as one, start(components=SMALL) as other:
        one.kubectl("create", "namespace", "only-here")
        assert "only-here" not in other.kubectl("get", "namespaces").stdout
        stranger = one.kubectl("get", "nodes", "--token", other.token, check=False)
        assert "must be logged in" in stranger.stderr


def test_stopping_leaves_no_process_and_no_file() -> None:
    with start(components=SMALL) as cluster:
        folder = cluster.kubeconfig.parent
        # The keeper and the two components.
        assert len(processes_of(folder)) == 3
    assert processes_of(folder) == []
    assert not folder.exists()
    cluster.stop()


def test_secrets_are_readable_by_their_owner_only() -> None:
    with start(components=SMALL) as cluster:
        folder = cluster.kubeconfig.parent
        secret = [folder / "tokens.csv", cluster.kubeconfig, *folder.glob("pki/*.key")]
        assert len(secret) == 4
        assert {stat.S_IMODE(file.stat().st_mode) for file in secret} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert cluster.token not in repr(cluster.access)


def test_objects_and_address_outlive_the_api_server() -> None:
    with start(components=SMALL) as cluster:
        cluster.kubectl("create", "namespace", "kept")
        cluster.stop_apiserver()
        assert "refused" in cluster.kubectl("get", "namespace", "kept", check=False).stderr
        cluster.start_apiserver()
        cluster.kubectl("get", "namespace", "kept")


def test_a_cluster_outlives_the_thread_that_started_it() -> None:
    started: list[Cluster] = []
    thread = threading.Thread(target=lambda: started.append(start(components=SMALL)))
    thread.start()
    thread.join()
    with started[0] as cluster:
        assert cluster.kubectl("get", "--raw=/readyz").stdout == "ok"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_cluster_ends_with_its_launcher(how: signal.Signals) -> None:
    with python("-c", LAUNCHER) as launcher:
        assert launcher.stdout is not None
        folder = Path(launcher.stdout.readline().strip())
        assert len(processes_of(folder)) == 3
        launcher.send_signal(how)
        launcher.communicate()
    assert eventually(lambda: not processes_of(folder))
    assert eventually(lambda: not folder.exists())


def test_a_component_that_ends_makes_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = envtest(tmp_path)
    replace(assets / "kube-apiserver", "#!/bin/sh\necho no such luck >&2\nexit 7\n")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    with pytest.raises(ComponentError) as caught:
        start(reporter=Reporter(quiet=True))
    first, *tail = str(caught.value).splitlines()
    assert first == "apiserver ended with exit code 7; the last lines of its log:"
    assert tail == ["no such luck"]


def test_a_component_that_cannot_run_makes_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = envtest(tmp_path)
    replace(assets / "etcd", "not a program")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    with pytest.raises(ComponentError, match=r"etcd ended .*\ncannot run .*/etcd: Exec format"):
        start(reporter=Reporter(quiet=True))


def test_a_component_that_is_late_makes_one_clear_error() -> None:
    with pytest.raises(ComponentError, match="etcd did not answer /health in time"):
        start(within=0)


def test_envtest_binaries_are_enough_for_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assets = envtest(tmp_path)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    with start() as cluster:
        assert cluster.components == SMALL
        cluster.kubectl("apply", "-f", "-", input=POD)
    assert "has no kube-controller-manager, kube-scheduler" in capsys.readouterr().err
    (assets / "kubectl").unlink()
    with pytest.raises(BuildError, match="lacks kubectl"):
        start()


def envtest(folder: Path) -> Path:
    """Return a folder with the binaries that setup-envtest brings."""
    assets = folder / "assets"
    assets.mkdir()
    for name, path in binaries.provide(["etcd", "kube-apiserver", "kubectl"]).items():
        (assets / name).symlink_to(path)
    return assets


def replace(path: Path, content: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(content)
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "components"),
    [("../up", SMALL), ("", SMALL), ("x", ("etcd",)), ("x", (*SMALL, "kubelet"))],
)
def test_a_wrong_request_is_refused_at_once(name: str, components: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        start(name=name, components=components)


def test_a_named_cluster_outlives_its_command_until_down(shell: Shell) -> None:
    assert shell("status").returncode == 3
    assert shell("up").returncode == 0

    status = shell("status", "-o", "json")
    report = json.loads(status.stdout)
    assert (status.returncode, report["running"], report["ready"]) == (0, True, True)
    assert [part["name"] for part in report["components"]] == list(localcluster.COMPONENTS)
    assert f"export KUBECONFIG={report['kubeconfig']}\n" in shell("env").stdout
    version = json.loads(shell("kubectl", "version", "-o", "json").stdout)
    assert version["serverVersion"]["gitVersion"] == "v1.34.4"

    again = shell("up")
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(shell("status", "-o", "json").stdout) == report
    assert shell("down").returncode == 0
    assert processes_of(shell.clusters / "dev") == []
    assert not (shell.clusters / "dev").exists()


def test_ending_what_does_not_run_is_no_error(shell: Shell) -> None:
    down = shell("down")
    assert (down.returncode, down.stderr) == (0, "cluster dev was not running\n")


def test_a_killed_keeper_takes_all_with_it_and_blocks_nothing(shell: Shell) -> None:
    shell("up")
    os.kill(shell.keeper(), signal.SIGKILL)
    assert eventually(lambda: not processes_of(shell.clusters / "dev"))
    status = shell("status", "-o", "json")
    assert status.returncode == 3
    assert "ended unexpectedly" in json.loads(status.stdout)["reason"]
    assert not (shell.clusters / "dev").exists()
    assert shell("up").returncode == 0


def test_a_lost_component_shows_in_the_status(shell: Shell) -> None:
    shell("up")
    parts = json.loads(shell("status", "-o", "json").stdout)["components"]
    scheduler = next(part["pid"] for part in parts if part["name"] == "scheduler")
    os.kill(scheduler, signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{scheduler}").exists())
    status = shell("status")
    assert status.returncode == 1
    assert "not ready: scheduler ended" in status.stdout


def test_one_name_is_one_cluster(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("up")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(AlreadyRunningError):
        standing.up("dev")


def test_the_users_own_cluster_is_used_only_when_asked_for(shell: Shell, cluster: Cluster) -> None:
    path = str(cluster.kubeconfig)
    assert shell("status", KUBECONFIG=path).returncode == 3
    up = shell("up", "--use-kubeconfig", KUBECONFIG=path)
    assert (up.returncode, shell.clusters.exists()) == (0, False)
    status = shell("status", "--use-kubeconfig", "-o", "json", KUBECONFIG=path)
    report = json.loads(status.stdout)
    assert (report["source"], report["ready"], report["url"]) == ("kubeconfig", True, cluster.url)
    env = shell("env", "--use-kubeconfig", KUBECONFIG=path)
    assert env.stdout == f"export KUBECONFIG={path}\n"
    assert shell("up", "--use-kubeconfig", KUBECONFIG="").returncode == 2


def test_a_cluster_read_from_a_kubeconfig_is_the_same_but_untouchable(cluster: Cluster) -> None:
    with Cluster.from_kubeconfig(cluster.kubeconfig) as same:
        assert (same.url, same.token) == (cluster.url, cluster.token)
        assert same.kubectl("get", "--raw=/readyz").stdout == "ok"
        with pytest.raises(UsageError, match="started here"):
            same.stop_apiserver()
    assert cluster.kubectl("get", "--raw=/readyz").stdout == "ok"


def test_a_test_session_uses_the_cluster_that_it_is_told_to(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pytest_plugin.REUSE, str(cluster.kubeconfig))
    with pytest_plugin.open_cluster() as same:
        assert (same.url, same.components) == (cluster.url, ())


FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
while [ "$1" != -o ]; do shift; done
echo built >> {folder}/builds
read verdict < {folder}/gate
[ "$verdict" = good ] || {{ echo this will not do; exit 1; }}
echo binary > "$2"
"""

BUILD = "from localcluster.binaries import provide; print(provide(['etcd'])['etcd'])"


@pytest.fixture
def fake_go(tmp_path: Path) -> dict[str, str]:
    """Put a Go first on PATH that builds when a word is written to the pipe `gate`."""
    os.mkfifo(tmp_path / "gate")
    replace(tmp_path / "go", FAKE_GO.format(folder=tmp_path))
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    return {"PATH": path, "XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": ""}


def test_two_processes_build_a_binary_once(tmp_path: Path, fake_go: dict[str, str]) -> None:
    with python("-c", BUILD, **fake_go) as first:
        assert eventually((tmp_path / "builds").exists)
        with python("-c", BUILD, **fake_go) as second:
            assert second.stderr is not None
            assert "another process is building" in second.stderr.readline()
            (tmp_path / "gate").write_text("good\n")
            assert first.communicate()[0] == second.communicate()[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "builds").read_text() == "built\n"


def test_a_failed_build_tells_why_and_leaves_no_binary(
    tmp_path: Path, fake_go: dict[str, str]
) -> None:
    with python("-c", BUILD, **fake_go) as process:
        (tmp_path / "gate").write_text("bad\n")
        error = process.communicate()[1]
    assert error.endswith("BuildError: building etcd failed:\nthis will not do\n")
    assert list(tmp_path.glob("rowlock/bin/*/etcd")) == []
