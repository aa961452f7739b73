"""The binaries of a cluster, and helm: built once from Go modules, or taken from envtest.

They lie in a cache folder whose name is a hash of all that decides what comes out: go.mod,
go.sum, Go's version, the flags. What not everybody needs has a go.mod of its own, so that a new
version of it leaves the other binaries valid.
A binary is built beside its place and then renamed, so one that is there is complete.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError, UsageError
from .layout import cache_folder, last_lines
from .locks import locked
from .progress import Reporter, Steps
from .toolchain import Go, environment, find_go

OF_NODES = ("kubelet", "kube-proxy", "pause", "coredns")
"""What nodes need beside the control plane."""

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "pause": "rowlock.dev/localcluster/kubelet/pause",
    "coredns": "github.com/coredns/coredns",
}
"""Every binary and the Go package that it is built from."""

WITHOUT_NODES = tuple(name for name in PACKAGES if name not in OF_NODES)
"""What a cluster without nodes, and a chart, need."""

_FOLDER = Path(__file__).parent
_SHIM = _FOLDER / "_child.py"
_NOT_IN_ENVTEST = {"kube-controller-manager", "kube-scheduler"}


def provide(names: Iterable[str], *, reporter: Reporter | None = None) -> dict[str, Path]:
    """Return the paths of binaries, building those that are not there yet.

    With ``KUBEBUILDER_ASSETS`` set the control plane is not built: it comes from that folder, and
    the controller manager and the scheduler are left out of the result if it has none.

    Args:
        names: Some of `PACKAGES`.
        reporter: Told what takes long; by default standard error.

    Raises:
        UsageError: A name is unknown.
        ToolchainError: There is no Go, and none could be installed.
        BuildError: A build failed, or the assets lack etcd, kube-apiserver or kubectl.
    """
    wanted = list(dict.fromkeys(names))
    reporter = reporter or Reporter()
    if unknown := sorted(set(wanted) - set(PACKAGES)):
        raise UsageError(f"unknown binaries {unknown}: choose from {list(PACKAGES)}")
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        built = _from_cache([name for name in wanted if name in _MODULES], reporter)
        others = [name for name in wanted if name not in _MODULES]
        return _from_assets(Path(assets), others, reporter) | built
    return _from_cache(wanted, reporter)


def _from_assets(folder: Path, names: Sequence[str], reporter: Reporter) -> dict[str, Path]:
    found = {name: folder / name for name in names if os.access(folder / name, os.X_OK)}
    missing = [name for name in names if name not in found]
    if needed := [name for name in missing if name not in _NOT_IN_ENVTEST]:
        raise BuildError(f"KUBEBUILDER_ASSETS={folder} lacks {', '.join(needed)}")
    if missing:
        reporter.say(f"KUBEBUILDER_ASSETS={folder} has no {', '.join(missing)}: going on without")
    return found


def _from_cache(names: Sequence[str], reporter: Reporter) -> dict[str, Path]:
    modules = {name: _MODULES.get(name, _KUBERNETES) for name in names}
    paths: dict[str, Path] = {}
    for module in dict.fromkeys(modules.values()):
        ours = [name for name in names if modules[name] is module]
        paths |= _of_module(module, ours, reporter)
    return {name: paths[name] for name in names}


def _of_module(module: _Module, names: Sequence[str], reporter: Reporter) -> dict[str, Path]:
    recipe = _read_recipe(module, reporter)
    paths = {name: recipe.folder / name for name in names}
    if any(not path.exists() for path in paths.values()):
        waiting = "another process is building these binaries; waiting for it"
        with locked(recipe.folder / ".lock", on_wait=lambda: reporter.say(waiting)):
            _build_missing(recipe, paths, reporter)
    return paths


@dataclass(frozen=True)
class _Recipe:
    """How to build, and the folder that belongs to this way of building."""

    go: Go
    source: Path
    flags: tuple[str, ...]
    folder: Path


def _read_recipe(module: _Module, reporter: Reporter) -> _Recipe:
    text = (module.folder / "go.mod").read_text()
    go = find_go(module.only(r"^go (\S+)$", text), reporter=reporter)
    flags = _flags(module.stamps(text))
    decisive = [text, (module.folder / "go.sum").read_text(), go.version, *flags]
    decisive.append(platform.machine())
    decisive += [(module.folder / path).read_text() for path in module.sources]
    digest = hashlib.sha256("\0".join(decisive).encode()).hexdigest()
    return _Recipe(go, module.folder, flags, cache_folder() / "bin" / digest[:16])


@dataclass(frozen=True)
class _Module:
    """A folder with a go.mod, and what its programs must be told about themselves.

    Args:
        pattern: Finds the version that they are stamped with in go.mod.
        variables: Go variables by what they hold: ``version``, ``major`` or ``minor``.
        sources: Files of our own that are compiled, too.
    """

    folder: Path
    pattern: str
    variables: tuple[tuple[str, str], ...]
    sources: tuple[str, ...] = ()

    def stamps(self, text: str) -> dict[str, str]:
        """Return the value of each variable, from the text of go.mod."""
        version = self.only(self.pattern, text)
        # The libraries of Kubernetes 1.34 are v0.34: only the minor version counts in helm.
        _, minor, _ = version.removeprefix("v").split(".", maxsplit=2)
        known = {"version": version, "major": "1", "minor": minor}
        return {variable: known[what] for variable, what in self.variables}

    def only(self, pattern: str, text: str) -> str:
        """Return what the pattern finds in the text of go.mod."""
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.folder / 'go.mod'} has no line like {pattern}")
        return found.group(1)


_BASE = "k8s.io/component-base/version"


def _of_kubernetes(folder: Path, sources: tuple[str, ...] = ()) -> _Module:
    return _Module(
        folder,
        r"^\s*k8s\.io/kubernetes (v\S+)",
        # A Kubernetes built from its module calls itself v0.0.0, which clients such as helm refuse.
        (
            (f"{_BASE}.gitVersion", "version"),
            (f"{_BASE}.gitMajor", "major"),
            (f"{_BASE}.gitMinor", "minor"),
        ),
        sources,
    )


_KUBERNETES = _of_kubernetes(_FOLDER)
_NODE = _of_kubernetes(_FOLDER / "kubelet", ("pause/main.go",))
_HELM = _Module(
    _FOLDER / "helm",
    r"^\s*k8s\.io/client-go (v\S+)",
    # Without a cluster, helm renders and lints for the Kubernetes of its own libraries.
    tuple(
        (f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part.title()}", part)
        for package in ("lint/rules", "chartutil")
        for part in ("major", "minor")
    ),
)
_COREDNS = _Module(_FOLDER / "coredns", r"^\s*github\.com/coredns/coredns (v\S+)", ())
_MODULES = {
    "helm": _HELM,
    "kubelet": _NODE,
    "kube-proxy": _NODE,
    "pause": _NODE,
    "coredns": _COREDNS,
}
"""The module of each binary that is not of the control plane."""


def _flags(stamps: dict[str, str]) -> tuple[str, ...]:
    variables = " ".join(f"-X {variable}={value}" for variable, value in stamps.items())
    return ("-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {variables}")


def _build_missing(recipe: _Recipe, paths: dict[str, Path], reporter: Reporter) -> None:
    # Asked again under the lock: the process that held it may have built them all.
    missing = [name for name, path in paths.items() if not path.exists()]
    if not missing:
        return
    reporter.say(f"building {', '.join(missing)} into {recipe.folder}: minutes, but only once")
    with reporter.steps(len(missing)) as steps:
        for name in missing:
            with steps.step(f"building {name}"):
                _build(recipe, name, steps)


def _build(recipe: _Recipe, name: str, steps: Steps) -> None:
    unfinished, log = recipe.folder / f".{name}.part", recipe.folder / f".{name}.log"
    command = [str(recipe.go.executable), "build", *recipe.flags, "-o", str(unfinished)]
    # The shim ends the compiler if this process is killed.
    shim = [sys.executable, "-I", "-S", str(_SHIM), str(os.getpid())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*shim, *command, PACKAGES[name]],
            cwd=recipe.source,
            env=environment(),
            stdout=output,
            stderr=output,
        )
        code = _wait(process, name, steps)
    if code != 0:
        raise BuildError(f"building {name} failed:\n{last_lines(log)}")
    log.unlink()
    unfinished.rename(recipe.folder / name)


def _wait(process: subprocess.Popen[bytes], name: str, steps: Steps) -> int:
    try:
        while True:
            try:
                return process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                steps.still(f"building {name}")
    finally:
        process.kill()
        process.wait()
