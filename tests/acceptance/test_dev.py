"""`rowlock dev` as a person runs it: a process, a terminal's signals, an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rowlock.dev.database import fingerprint
from tests.workers import ROOT, eventually

SECRET = "s3cret-pass"

AGENTS = '''
import asyncio
from pathlib import Path

from pydantic import BaseModel

from rowlock import ApprovalDenied, Run, agent, tool


class Cups(BaseModel):
    cups: int


@agent(name="kitchen")
async def kitchen(run: Run, order: Cups) -> str:
    """Brew."""

    async def boil(cups: int) -> str:
        run.text(f"boiling {cups} cups")
        return f"{cups} cups"

    run.progress("one of one")
    return await run.step("boil", boil, order.cups)


@agent(name="burnt")
async def burnt(run: Run) -> str:
    """Fail."""

    async def burn() -> str:
        raise ValueError("the milk is burnt")

    return await run.step("burn", burn, retries=0)


@tool(side_effects="idempotent", approval="always")
async def refund(cents: int) -> str:
    """Move money."""
    return f"{cents} cents are back"


@agent(name="careful")
async def careful(run: Run) -> str:
    """Ask first."""
    try:
        return await run.step("refund", refund, 700)
    except ApprovalDenied as error:
        return str(error)


@agent(name="slow")
async def slow(run: Run) -> None:
    """Never end."""

    async def wait() -> None:
        run.text("thinking")
        await asyncio.sleep(3600)

    await run.step("wait", wait)
'''


class Dev:
    """One `rowlock dev` in a session of its own, as in a terminal."""

    def __init__(
        self,
        folder: Path,
        cache: Path,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        **environment: str,
    ) -> None:
        self.folder = folder
        roots = (ROOT / "worker-image", ROOT / "examples", ROOT)
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rowlock.cli", "dev", *arguments],
                stdin=stdin,
                stdout=out,
                stderr=err,
                cwd=folder,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, roots)),
                    "XDG_CACHE_HOME": str(cache),
                    "COLUMNS": "160",
                    **environment,
                },
            )

    @property
    def out(self) -> str:
        """What it wrote to stdout."""
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it wrote to stderr."""
        return self._err.read_text(errors="replace")

    async def says(self, text: str, times: int = 1) -> None:
        """Wait until `text` stands on stdout."""

        async def look() -> bool:
            assert self.process.poll() is None or self.out.count(text) >= times, self.err
            return self.out.count(text) >= times

        await eventually(look, f"{text!r} in {self.out!r}; stderr {self.err!r}", 60)

    async def ends(self) -> int:
        """Return its exit code."""

        async def look() -> bool:
            return self.process.poll() is not None

        await eventually(look, f"an end; so far {self.out!r} {self.err!r}", 90)
        return self.process.wait()

    def descendants(self) -> list[Path]:
        """Return where each process below it stands, while it lives."""
        found: list[Path] = []
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                told = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                waiting += map(int, told)
                found += [Path(f"/proc/{child}") for child in told]
        return found

    def interrupt(self) -> None:
        """Press Ctrl-C: the terminal signals every process of its foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def destroy(self) -> None:
        """End whatever is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


async def all_gone(processes: list[Path]) -> None:
    """Wait until none of the processes lives; a zombie whose parent died is nobody's any more."""

    def lives(process: Path) -> bool:
        try:
            return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    async def look() -> bool:
        return not any(map(lives, processes))

    left = [p.joinpath("cmdline").read_text() for p in processes if p.exists()]
    await eventually(look, f"the end of all processes; left {left}", 20)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache: the first trial of the session fills it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(tmp_path: Path, cache: Path) -> Iterator[Any]:
    """Starts `rowlock dev` in a folder with agents."""
    (tmp_path / "mine.py").write_text(AGENTS)
    started: list[Dev] = []

    def begin(*arguments: str, in_cache: Path = cache, **options: Any) -> Dev:
        started.append(Dev(tmp_path, in_cache, *arguments, **options))
        return started[-1]

    yield begin
    for dev in started:
        dev.destroy()


async def test_the_first_trial_and_the_next_one_give_the_result(start: Any, tmp_path: Path) -> None:
    """The first fills an empty cache, the second begins from it; neither leaves its run there."""
    fresh = tmp_path / "fresh"
    runs = []
    for _ in ("cold", "warm"):
        dev = start(
            "support.agent:support", "--input", '{"order_id": "1001"}', "-o", "json", in_cache=fresh
        )
        assert await dev.ends() == 0, dev.err
        told = json.loads(dev.out)
        runs.append(told["run"])
        assert (told["phase"], told["result"]["refunded_cents"]) == ("Succeeded", 21880)
        assert [line["what"] for line in told["timeline"]][-2:] == ["issue_refund:3.0", "model:4"]
        assert "I have refunded" in dev.err
        [kept] = (fresh / "rowlock").iterdir()
        assert kept.stat().st_mode & 0o077 == 0
    assert runs[0] != runs[1]


async def test_text_output_shows_text_progress_steps_and_the_result(start: Any) -> None:
    dev = start("mine:kitchen", "-i", '{"cups": 2}')

    assert await dev.ends() == 0, dev.err

    for part in ("boil boiling 2 cups", "· one of one", "✓ boil", "succeeded in", "\n2 cups\n"):
        assert part in dev.out
    assert dev.err == ""


async def test_an_input_comes_from_a_file(start: Any, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"cups": 3}')

    dev = start("mine:kitchen", "-i", "@order.json")

    assert await dev.ends() == 0, dev.err
    assert "\n3 cups\n" in dev.out


async def test_a_crash_behind_the_effect_is_taken_over_and_pays_once(
    start: Any, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    dev = start(
        "support.agent:support", "-i", '{"order_id": "1001"}', "-o", "json",
        "--crash-at", "issue_refund", SUPPORT_LEDGER=str(ledger),
    )  # fmt: skip

    assert await dev.ends() == 0, dev.err
    told = json.loads(dev.out)
    calls = [json.loads(line) for line in (tmp_path / "ledger.calls").read_text().splitlines()]
    assert [call["repeat"] for call in calls] == [False, True]
    assert len({call["pid"] for call in calls}) == 2
    assert len(ledger.read_text().splitlines()) == told["takeovers"] == 1
    what = [line["what"] for line in told["timeline"]]
    assert what.index("model:3") < what.index("taken over") < what.index("issue_refund:3.0")
    assert [line["epoch"] for line in told["timeline"]][-1] == 2
    assert "taken over: WorkerDied after 5 steps" in dev.err


async def test_a_step_to_crash_at_that_never_comes_is_named(start: Any) -> None:
    dev = start("mine:kitchen", "-i", '{"cups": 2}', "--crash-at", "fry")

    assert await dev.ends() == 0
    assert "--crash-at fry: there was no such step; those done were boil" in dev.out


async def test_a_failing_agent_is_a_failing_command_with_its_reason(start: Any) -> None:
    dev = start("mine:burnt", "-o", "json")

    assert await dev.ends() == 1
    told = json.loads(dev.out)
    assert (told["phase"], told["reason"], told["result"]) == ("Failed", "AgentError", None)
    assert "the milk is burnt" in told["message"]
    assert 'raise ValueError("the milk is burnt")' in dev.err
    assert told["timeline"][0]["status"] == "failed"


@pytest.mark.parametrize(
    ("typed", "result"),
    [
        (b"y\n", "700 cents are back"),
        (b"not this month\n", "not this month"),
        (b"n\n", "denied in the terminal"),
        (b"", "nobody is at the terminal to ask"),
    ],
)
async def test_an_approval_is_asked_for_in_the_terminal(
    start: Any, typed: bytes, result: str
) -> None:
    """The answer is typed when the question stands there."""
    dev = start("mine:careful", stdin=subprocess.PIPE)
    await dev.says("? refund")
    assert "700" in dev.out
    dev.process.stdin.write(typed)
    dev.process.stdin.close()

    assert await dev.ends() == 0, dev.err
    assert result in dev.out.splitlines()[-1]


async def test_an_interrupt_ends_a_question(start: Any) -> None:
    dev = start("mine:careful", stdin=subprocess.PIPE)
    await dev.says("allow it?")
    below = dev.descendants()

    dev.interrupt()

    assert await dev.ends() == 130
    await all_gone(below)
    dev.process.stdin.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mine:nothing",), "no attribute 'nothing'; agents there are mine:kitchen, mine:burnt"),
        (("mine",), "does not look like module:attribute"),
        (("no_such_module:x",), "No module named 'no_such_module'"),
        (("broken:x",), "ZeroDivisionError: division by zero (broken.py, line 2)"),
        (("mine:kitchen", "-i", '{"cups": "many"}'), "--input: The input does not fit agent"),
        (("mine:kitchen", "-i", '{"cups": 2'), "--input: is not valid JSON"),
        (("mine:kitchen", "-i", "@nothing.json"), "--input: @nothing.json cannot be read"),
        (("mine:kitchen",), "cups: is required"),
        (("mine:burnt", "--database", f"mysql://u:{SECRET}@h/d"), "postgresql://user:password"),
    ],
)
async def test_bad_input_is_one_line_and_code_2_before_anything_is_started(
    start: Any, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "broken.py").write_text("import os\nx = 1 / 0\n")
    dev = start(*arguments, in_cache=tmp_path / "untouched")

    assert await dev.ends() == 2
    [line] = dev.err.splitlines()
    assert line.startswith("rowlock: ")
    assert says in line
    assert SECRET not in line
    assert not (tmp_path / "untouched").exists()
    assert dev.out == ""


async def test_an_interrupt_ends_everything(start: Any) -> None:
    """Live text has arrived by then: it is shown while the step runs."""
    dev = start("mine:slow")
    await dev.says("thinking")
    below = dev.descendants()
    assert len(below) > 5  # a loop process, and PostgreSQL with its own

    dev.interrupt()

    assert await dev.ends() == 130
    await all_gone(below)
    assert "Traceback" not in dev.err


async def test_a_killed_trial_leaves_no_process(start: Any) -> None:
    dev = start("mine:slow")
    await dev.says("thinking")
    below = dev.descendants()

    dev.process.kill()

    await all_gone(below)


async def test_a_given_database_keeps_the_history(start: Any, dsn: str) -> None:
    dev = start("mine:kitchen", "-i", '{"cups": 2}', "-o", "json", "--database", dsn)

    assert await dev.ends() == 0, dev.err
    sql = await asyncpg.connect(dsn)
    try:
        run = await sql.fetchrow("SELECT run_id, agent, ended FROM rowlock.run_status")
        assert run is not None
        assert tuple(run) == (json.loads(dev.out)["run"], "kitchen", "Succeeded")
        assert (
            await sql.fetchval("SELECT count(*) FROM rowlock.worker WHERE fenced_at IS NULL") == 0
        )
    finally:
        await sql.close()


async def test_an_interrupt_leaves_no_run_in_a_given_database(start: Any, dsn: str) -> None:
    dev = start("mine:slow", "--database", dsn)
    await dev.says("thinking")
    below = dev.descendants()

    dev.interrupt()

    assert await dev.ends() == 130
    await all_gone(below)
    sql = await asyncpg.connect(dsn)
    try:
        assert await sql.fetchval("SELECT ended FROM rowlock.run_status") == "Cancelled"
        assert await sql.fetchval("SELECT count(*) FROM rowlock.violations") == 0
    finally:
        await sql.close()


async def test_watch_runs_again_when_code_changes_and_ends_with_an_interrupt(
    start: Any, tmp_path: Path
) -> None:
    dev = start("mine:kitchen", "-i", '{"cups": 2}', "--watch")
    await dev.says("waiting for a change")
    changed = AGENTS.replace('f"{cups} cups"', 'f"{cups} mugs"')

    (tmp_path / "mine.py").write_text(changed)

    await dev.says("changed: mine.py")
    await dev.says("waiting for a change", times=2)
    assert "\n2 mugs\n" in dev.out
    below = dev.descendants()
    dev.interrupt()
    assert await dev.ends() == 130
    await all_gone(below)


async def test_watch_ends_a_run_that_is_under_way(start: Any, tmp_path: Path) -> None:
    dev = start("mine:slow", "--watch")
    await dev.says("thinking")

    (tmp_path / "other.py").touch()

    await dev.says("thinking", times=2)
    below = dev.descendants()
    dev.process.kill()
    await all_gone(below)


async def test_a_broken_cache_is_made_anew(start: Any, tmp_path: Path) -> None:
    broken = tmp_path / "cache" / "rowlock" / f"postgres-{fingerprint()}"
    broken.mkdir(parents=True)

    dev = start("mine:kitchen", "-i", '{"cups": 2}', in_cache=tmp_path / "cache")

    assert await dev.ends() == 0, dev.err
    assert "\n2 cups\n" in dev.out
    assert (broken / "data" / "PG_VERSION").exists()


async def test_two_trials_at_once_do_not_disturb_each_other(start: Any, tmp_path: Path) -> None:
    both = [start("mine:kitchen", "-i", '{"cups": 2}', "-o", "json", in_cache=tmp_path / "c")]
    (tmp_path / "out").rename(tmp_path / "out-1")
    both[0]._out = tmp_path / "out-1"
    both.append(start("mine:kitchen", "-i", '{"cups": 4}', "-o", "json", in_cache=tmp_path / "c"))

    assert await asyncio.gather(*(dev.ends() for dev in both)) == [0, 0]
    assert [json.loads(dev.out)["result"] for dev in both] == ["2 cups", "4 cups"]


PAGE = ROOT / "docs" / "how-to" / "try-an-agent.md"
_COMMAND = re.compile(r"^```console\n\$ rowlock dev ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def without_figures(text: str) -> str:
    """Return `text` with every number as N, for those differ from run to run."""
    return re.sub(r"\d+(\.\d+)?( ms| s\b)?", "N", text)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [found for found in _COMMAND.findall(PAGE.read_text()) if "--watch" not in found[0]],
)
async def test_the_page_shows_what_its_commands_show(
    start: Any, arguments: str, shown: str
) -> None:
    dev = start(*shlex.split(arguments))

    assert await dev.ends() == 0, dev.err
    told = without_figures(dev.out)
    for line in shown.splitlines():
        assert without_figures(line) in told
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE.read_text()):
        assert (PAGE.parent / target).exists()
