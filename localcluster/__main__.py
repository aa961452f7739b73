"""A local Kubernetes control plane for the shell: ``python -m localcluster --help``."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from . import standing
from .binaries import PACKAGES, WITHOUT_NODES, provide
from .cluster import Cluster
from .errors import LocalClusterError, NotRunningError, UsageError
from .node import install, load_into, missing_packages
from .progress import Reporter
from .report import Report, as_json, report_foreign, report_named, show

DONE, FAILED, WRONG_USAGE, NOT_RUNNING, INTERRUPTED = 0, 1, 2, 3, 130

_EXAMPLES = """\
examples:
  python -m localcluster up                        start a cluster, ready in about 4 s
  eval "$(python -m localcluster env)"             point this shell's kubectl at it
  python -m localcluster kubectl get namespaces    or use the kubectl that belongs to it
  python -m localcluster status -o json
  python -m localcluster down

  python -m localcluster up --name other           as many as you like, side by side
  python -m localcluster build                     build the binaries now (minutes, once)

  python -m localcluster up --nodes 1              with a node that runs pods (root)
  python -m localcluster load localhost/mine:1     give its nodes an image that buildah built
  python -m localcluster packages --install        install what nodes need of Debian

  KUBECONFIG=~/mine python -m localcluster status --use-kubeconfig

variables:
  KUBECONFIG           the cluster of --use-kubeconfig; ignored without that option
  KUBEBUILDER_ASSETS   take etcd, kube-apiserver and kubectl from this folder, build nothing
  XDG_CACHE_HOME       binaries go to rowlock/bin below it (default ~/.cache)
  XDG_STATE_HOME       clusters go to rowlock/clusters below it (default ~/.local/state)

exit codes:
  0    done; for status: the cluster is ready
  1    failed; for status: the cluster is up, but not ready
  2    wrong usage
  3    no such cluster is running (down takes that for done)
  130  interrupted by Ctrl-C, and all that was started is gone
  kubectl ends with the exit code of kubectl.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    ours, kubectl_arguments = _split(list(sys.argv[1:] if argv is None else argv))
    options = _parser().parse_args(ours)
    options.kubectl_arguments = kubectl_arguments
    try:
        code: int = options.run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except LocalClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return _exit_code(error)
    return code


def _exit_code(error: LocalClusterError) -> int:
    match error:
        case UsageError():
            return WRONG_USAGE
        case NotRunningError():
            return NOT_RUNNING
    return FAILED


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split off what belongs to kubectl, whose options argparse would take for ours."""
    if argv[:1] != ["kubectl"]:
        return argv, []
    end = 1
    if argv[1:2] == ["--name"]:
        end = 3
    elif argv[1:2] and argv[1].startswith("--name="):
        end = 2
    return argv[:end], argv[end:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localcluster",
        description="A throw-away Kubernetes: a real control plane, and nodes where asked for.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build the binaries, if they are not there")
    build.add_argument("--nodes", action="store_true", help="also those that nodes need")
    build.set_defaults(run=_build)
    packages = commands.add_parser("packages", help="list missing packages that nodes need")
    packages.add_argument("--install", action="store_true", help="install them (root)")
    packages.set_defaults(run=_packages)
    name = argparse.ArgumentParser(add_help=False)
    name.add_argument("--name", default="dev", help="name of the cluster (default: dev)")
    foreign = argparse.ArgumentParser(add_help=False, parents=[name])
    foreign.add_argument(
        "--use-kubeconfig",
        action="store_true",
        help="start nothing: use the cluster that KUBECONFIG names",
    )
    add = commands.add_parser
    up = add("up", parents=[foreign], help="start a cluster that stays")
    up.add_argument("--nodes", type=int, default=0, help="nodes that run its pods (default: 0)")
    up.set_defaults(run=_up)
    add("down", parents=[name], help="end a cluster, remove its files").set_defaults(run=_down)
    status = add("status", parents=[foreign], help="tell whether a cluster is ready")
    status.add_argument("-o", "--output", choices=["text", "json"], default="text")
    status.set_defaults(run=_status)
    load = add("load", parents=[name], help="bring an image of buildah's store into the nodes")
    load.add_argument("image")
    load.set_defaults(run=_load)
    add("env", parents=[foreign], help="print variables for a shell").set_defaults(run=_env)
    usage = "python -m localcluster kubectl [--name NAME] ARGUMENT..."
    kubectl = add("kubectl", parents=[name], help="run kubectl on a cluster", usage=usage)
    kubectl.set_defaults(run=_kubectl)
    return parser


def _build(options: argparse.Namespace) -> int:
    paths = provide(PACKAGES if options.nodes else WITHOUT_NODES)
    for path in paths.values():
        sys.stdout.write(f"{path}\n")
    return DONE


def _up(options: argparse.Namespace) -> int:
    report = _report(options)
    if not options.use_kubeconfig and not report.running:
        reporter = Reporter()
        reporter.say(f"starting cluster {options.name}")
        standing.up(options.name, nodes=options.nodes, within=120, reporter=reporter)
        report = _report(options)
    elif len(report.nodes) < options.nodes:
        raise UsageError(f"cluster {report.name} is up with fewer nodes: end it first")
    return _print(report)


def _load(options: argparse.Namespace) -> int:
    count = load_into(standing.find(options.name).layout.root, options.image)
    Reporter().say(f"loaded {options.image} into {count} node{'s' * (count != 1)}")
    return DONE


def _packages(options: argparse.Namespace) -> int:
    missing = missing_packages()
    if missing and options.install:
        Reporter().say(f"installing {' '.join(missing)}")
        install(missing)
        return DONE
    sys.stdout.write("".join(f"{package}\n" for package in missing))
    return DONE


def _down(options: argparse.Namespace) -> int:
    ended = standing.down(options.name)
    state = "is down" if ended else "was not running"
    Reporter().say(f"cluster {options.name} {state}")
    return DONE


def _status(options: argparse.Namespace) -> int:
    report = _report(options)
    if options.output == "text":
        return _print(report)
    sys.stdout.write(as_json(report) + "\n")
    return _state_code(report)


def _env(options: argparse.Namespace) -> int:
    if options.use_kubeconfig:
        variables = {"KUBECONFIG": str(_user_kubeconfig())}
    else:
        access = standing.find(options.name).access
        variables = access.environment
        if shutil.which("kubectl") is None:
            variables["PATH"] = os.pathsep.join([os.environ["PATH"], str(access.kubectl.parent)])
    for key, value in variables.items():
        sys.stdout.write(f"export {key}={shlex.quote(value)}\n")
    return DONE


def _kubectl(options: argparse.Namespace) -> NoReturn:
    access = standing.find(options.name).access
    command = [str(access.kubectl), *options.kubectl_arguments]
    os.execve(access.kubectl, command, os.environ | access.environment)  # noqa: S606


def _report(options: argparse.Namespace) -> Report:
    if not options.use_kubeconfig:
        return report_named(options.name)
    with Cluster.from_kubeconfig(_user_kubeconfig()) as cluster:
        return report_foreign(cluster)


def _user_kubeconfig() -> Path:
    value = os.environ.get("KUBECONFIG")
    if not value:
        raise UsageError("--use-kubeconfig needs KUBECONFIG to name a file")
    return Path(value).absolute()


def _print(report: Report) -> int:
    show(report, Console(highlight=False))
    return _state_code(report)


def _state_code(report: Report) -> int:
    if report.ready:
        return DONE
    return FAILED if report.running else NOT_RUNNING


if __name__ == "__main__":
    sys.exit(main())
