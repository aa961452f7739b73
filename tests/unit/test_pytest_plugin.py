"""The pytest plugin as users get it: from an installation, in pytests of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "test-an-agent.md"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: What an environment of a user has: none of the plugins that this project's tests use.
BARE = ("-p", "no:asyncio", "-p", "no:randomly", "-p", "no:timeout", "-p", "pytest_rowlock", "-q")

AGENT = '''
import pytest

from rowlock import Run, agent
from rowlock.testing import CrashAt, Point, Trials

sent = []


@agent(name="letters")
async def letters(run: Run, to: str) -> str:
    """Send a letter."""

    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    return await run.step("send", send, to, retries=0)
'''


@pytest.fixture(autouse=True)
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a user, whose warnings are errors as ours are."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "worker-image"))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    """Run a test file in a process of its own."""
    pytester.makepyfile(test_it=AGENT + text)
    return pytester.runpytest_subprocess(*(arguments or BARE))


def test_fixtures_work_in_async_tests_without_another_plugin(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
async def test_a_trial(trial: Trials):
    begun = await trial(letters, "ada")
    await begun.run()
    assert begun.result == "sent to ada"


async def test_a_crash(trial: Trials, tmp_path):
    begun = await trial(letters, "bob")
    await begun.run(crash_at=CrashAt(Point.AFTER_EFFECT, "send"))
    await begun.run()
    assert begun.takeovers == 1
    assert trial.begun == [begun]


@pytest.mark.parametrize("to", ["ada", "bob"])
async def test_a_result(run_agent, to):
    assert await run_agent(letters, to) == f"sent to {to}"


class TestStore:
    async def test_a_store(self, memory_store):
        assert await memory_store.pool_demand() == []
        await memory_store.ensure_pool(namespace="", name="default")

    async def test_another_test_has_another_one(self, memory_store):
        assert memory_store.tables.pools == {}


def test_plain_functions_have_them_too(memory_store, trial, run_agent):
    assert trial.begun == []
""",
    )

    done.assert_outcomes(passed=7)


def test_a_failed_test_shows_its_trials_and_no_other_does(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
async def test_fails(trial: Trials):
    begun = await trial(letters, "ada")
    await begun.run(crash_at=CrashAt(Point.AFTER_EFFECT, "send"))
    await trial(letters, 7)
    await trial.begun[1].run()
    assert begun.takeovers == 1


async def test_passes(trial: Trials):
    await trial(letters, "bob")


async def test_fails_without_a_trial(trial: Trials):
    assert trial.begun
""",
    )

    done.assert_outcomes(failed=2, passed=1)
    done.stdout.fnmatch_lines(
        [
            "*- rowlock trials -*",
            "letters: not over",
            "  worker-1 began send#*, and died at after_effect of send",
            "  finished steps: none",
            "letters: failed (InvalidInput: *)",
            "  worker-1 began no step",
        ]
    )
    assert done.stdout.str().count("rowlock trials") == 1


def test_async_tests_of_others_are_left_alone(pytester: pytest.Pytester) -> None:
    """Without a fixture of ours, or with one of the same name, the plugin does nothing."""
    done = run(
        pytester,
        """
@pytest.fixture(name="trial")
def their_own():
    return 7


async def test_theirs(trial):
    assert False, "nobody asked for this"


async def test_without():
    assert False, "nobody asked for this"


def test_plain(trial):
    assert trial == 7
""",
    )

    done.assert_outcomes(failed=2, passed=1)
    assert done.stdout.str().count("async def functions are not natively supported") >= 2
    assert "nobody asked" not in done.stdout.str()


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_it_gets_along_with_pytest_asyncio(pytester: pytest.Pytester, mode: str) -> None:
    """Each test is run once, whoever runs it."""
    done = run(
        pytester,
        """
import asyncio


@pytest.mark.asyncio
async def test_marked(trial: Trials):
    begun = await trial(letters, "ada")
    await begun.run()
    assert begun.result == "sent to ada"
    assert sent == ["ada"]


async def test_not_marked(trial: Trials):
    await asyncio.sleep(0)
    begun = await trial(letters, "bob")
    await begun.run()
    assert sent[-1] == "bob"
    assert len(sent) == 2
""",
        *("-p", "asyncio", "-p", "no:randomly", "-p", "no:timeout", "-p", "pytest_rowlock"),
        *("-o", f"asyncio_mode={mode}", "-o", "asyncio_default_fixture_loop_scope=function"),
    )

    done.assert_outcomes(passed=2)


def test_who_does_not_use_it_imports_nothing_of_rowlock(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
import sys


def test_nothing_is_loaded(request):
    assert request.config.pluginmanager.has_plugin("pytest_rowlock")
    assert not [name for name in sys.modules if name.split(".")[0] == "rowlock"]
    assert not {"pydantic", "asyncpg", "msgspec"} & set(sys.modules)
"""
    )

    pytester.runpytest_subprocess(*BARE).assert_outcomes(passed=1)


def test_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest_subprocess(*BARE, "--fixtures").stdout.str()

    for name in ("trial", "memory_store", "run_agent"):
        assert re.search(rf"^{name} -- .*pytest_rowlock.*\n    \w", listed, re.MULTILINE), name


def test_the_page_is_a_test_file(pytester: pytest.Pytester) -> None:
    """Its tests with fixtures pass; those that it calls itself are no tests here."""
    blocks = _PYTHON.findall(PAGE.read_text())
    mine = [block for block in blocks if "trial: Trials" in block]
    others = [
        re.sub(r"^asyncio\.run\(.*\n", "", block, flags=re.MULTILINE).replace(
            "async def test_", "async def shown_"
        )
        for block in blocks
        if block not in mine
    ]
    pytester.makepyfile(test_refunds="\n".join([*others, *mine]))

    done = pytester.runpytest_subprocess(*BARE, "test_refunds.py")

    [promised] = re.findall(r"^(\d+) passed in", PAGE.read_text(), re.MULTILINE)
    done.assert_outcomes(passed=int(promised))


def test_what_the_page_shows_of_a_failure_is_shown(pytester: pytest.Pytester) -> None:
    text = PAGE.read_text()
    blocks = _PYTHON.findall(text)
    shown = text.partition("-- rowlock trials --")[2].partition("\n")[2].partition("```")[0]
    [mine] = [block for block in blocks if "trial: Trials" in block]
    failing = mine.replace("== run.takeovers == 1", "== run.takeovers == 2")
    assert failing != mine
    pytester.makepyfile(test_refunds=blocks[0] + failing)

    done = pytester.runpytest_subprocess(*BARE, "-k", "dead_worker")

    done.assert_outcomes(failed=1)
    assert shown
    assert shown in done.stdout.str()


def test_an_installation_brings_it_without_being_asked(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """From a wheel as it is built here: nothing but its entry point loads the plugin."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    pytester.makepyfile(
        test_it=AGENT
        + """
import os

import pytest_rowlock


async def test_it(trial: Trials):
    begun = await trial(letters, "ada")
    await begun.run()
    assert begun.result == "sent to ada"
    assert pytest_rowlock.__file__.startswith(os.environ["PYTHONPATH"])
"""
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-p", "no:randomly", "-q"],
        cwd=pytester.path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_module_is_its_entry_points_name() -> None:
    """So `-p pytest_rowlock` means the same, installed or not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"pytest_rowlock": "pytest_rowlock"}
