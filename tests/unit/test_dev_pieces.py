"""The parts of `rowlock dev` that decide: inputs, the timeline, what changed, what is said live."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rowlock.client import RunEvent
from rowlock.commands.screen import Screen
from rowlock.commands.timeline import step_name, timeline
from rowlock.dev.reload import changed, stamps
from rowlock.dev.target import BadTarget, parse_input
from rowlock.engine.live import LiveText, joined
from rowlock.engine.messages import Live, from_loop
from rowlock.engine.rehearsal import is_step

START = datetime(2026, 5, 7, tzinfo=UTC)


def event(kind: str, at: float, step: str | None = None, **fields: Any) -> RunEvent:
    """Return an event `at` seconds after the start."""
    given = {"seq": 1, "attempt": 1, "epoch": 1, **fields}
    return RunEvent(kind=kind, at=START + timedelta(seconds=at), step=step, **given)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ('{"a": 1}', {"a": 1}),
        ("7", 7),
        ('"x"', "x"),
        ("Is there any tea?", "Is there any tea?"),
        ("", ""),
    ],
)
def test_an_input_is_json_or_else_words(text: str | None, value: object) -> None:
    assert parse_input(text) == value


@pytest.mark.parametrize("text", ['{"a": }', " [1,", '"open'])
def test_what_begins_as_json_must_be_json(text: str) -> None:
    with pytest.raises(BadTarget, match="--input: is not valid JSON"):
        parse_input(text)


@pytest.mark.parametrize(
    ("key", "asked", "fits"),
    [
        ("issue_refund:3.0", "issue_refund", True),
        ("issue_refund:3.0", "issue_refund:3.0", True),
        ("issue_refund:3.0", "issue", False),
        ("boil#abc.0", "boil", True),
        ("model:2", "model:3", False),
    ],
)
def test_a_step_is_named_by_its_key_or_by_its_name(key: str, asked: str, fits: bool) -> None:
    assert is_step(key, asked) is fits


def test_the_timeline_holds_steps_losses_and_what_was_left_open() -> None:
    lines = timeline(
        [
            event("state", 0),
            event("step_done", 1, "first", duration_ms=1000),
            event("progress", 1.5),
            event("step_intent", 2, "pay"),
            event("taken_over", 5, epoch=2, data={"reason": "WorkerDied", "takeovers": 1}),
            event("step_failed", 6, "second", epoch=2, tries=3, data={"error": "no"}),
        ]
    )

    assert [(line.what, line.status, line.started) for line in lines] == [
        ("first", "done", 0.0),
        ("taken over", "event", 5.0),
        ("second", "failed", 6.0),
        ("pay", "interrupted", 2.0),
    ]
    assert (lines[1].note, lines[2].note, lines[2].tries) == ("WorkerDied, takeover 1", "no", 3)


def test_a_run_without_history_has_no_timeline() -> None:
    assert timeline([event("state", 0)]) == []


def test_changes_are_new_gone_and_other_files(tmp_path: Path) -> None:
    for name in ("same.py", "other.py", "gone.py", "text.txt"):
        (tmp_path / name).write_text("1")
    for hidden in (".venv", "node_modules", "__pycache__"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "x.py").write_text("1")
    before = stamps(tmp_path)
    (tmp_path / "other.py").write_text("22")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "text.txt").write_text("22")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "new.py").touch()

    names = [Path(file).name for file in changed(before, stamps(tmp_path))]

    assert len(before) == 3
    assert sorted(names) == ["gone.py", "new.py", "other.py"]


def test_pieces_that_follow_each_other_are_one_line() -> None:
    pieces = deque([Live(1, "a", "x"), Live(1, "a", "y"), Live(2, "a", "z"), Live(2, "b", "w")])

    assert joined(pieces) == [Live(1, "a", "xy"), Live(2, "a", "z"), Live(2, "b", "w")]
    assert joined(deque()) == []


async def test_live_text_goes_soon_and_old_text_makes_room() -> None:
    lines: list[bytes] = []
    arrived = asyncio.Event()

    def write(line: bytes) -> None:
        lines.append(line)
        arrived.set()

    live = LiveText(write, lambda: 0)
    live.say(7, "model:1", "a" * 60_000)
    live.say(7, "model:1", "b" * 60_000)
    live.say(7, "model:1", "")
    async with asyncio.timeout(5):
        await arrived.wait()

    [line] = lines
    assert from_loop(line) == Live(7, "model:1", "b" * 60_000)


async def test_live_text_that_nobody_reads_is_dropped() -> None:
    lines: list[bytes] = []
    unread = 10**6
    live = LiveText(lines.append, lambda: unread)
    live.say(7, "", "lost")
    live.flush()
    unread = 0
    live.say(7, "", "shown")
    live.flush()

    assert [from_loop(line) for line in lines] == [Live(7, "", "shown")]


def test_each_steps_text_stands_under_its_name() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=80))
    screen.say(Live(1, "model:1", "Hel"))
    screen.say(Live(1, "model:1", "lo [b]"))
    screen.say(Live(1, "model:2", "Bye"))
    screen.show(event("step_done", 1, "boil#ab.1", duration_ms=1500))

    assert out.getvalue() == "model:1 Hello [b]\nmodel:2 Bye\n✓ boil (2) 1.50 s\n"


@pytest.mark.parametrize(
    ("key", "name"),
    [("a#0f.0", "a"), ("a#0f.2", "a (3)"), ("a:b", "a:b"), ("a:b#c", "a:b#c"), ("", "")],
)
def test_a_person_reads_no_digest(key: str, name: str) -> None:
    assert step_name(key) == name
