"""How commands show what they found, and how they read what people type."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer.main
import yaml
from click import Context
from rich.console import Console

from rowlock.cli import app
from rowlock.client.happenings import RunEvent
from rowlock.commands import verdict
from rowlock.commands.describing import summary
from rowlock.commands.following import event_line
from rowlock.commands.listing import moment
from rowlock.commands.output import ago, document, lasted, show, table, until
from rowlock.commands.progress import Waiting, share
from rowlock.commands.rows import of_info, used, wait_shape
from rowlock.commands.screen import steps_table
from rowlock.commands.shapes import Told, Usage
from rowlock.commands.timeline import timeline
from rowlock.errors import InvalidRequest
from rowlock.states import ParkReason, Phase, Place, TimerReason, WaitReason
from rowlock.store import lines
from rowlock.store.reading import RunInfo
from rowlock.store.types import RunId
from rowlock.waiting import wait_reason

NOW = datetime(2026, 5, 7, 12, tzinfo=UTC)


def event(kind: str, **fields: Any) -> RunEvent:
    """Return an event of now."""
    given: dict[str, Any] = {"seq": 3, "attempt": 1, "epoch": 2, "at": NOW}
    return RunEvent(kind=kind, **given | fields)


def info(**fields: Any) -> RunInfo:
    """Return a run that is under way."""
    given: dict[str, Any] = {
        "id": RunId(7), "agent": "a", "key": None, "priority": 0, "phase": Phase.RUNNING,
        "attempt": 1, "takeovers": 0, "worker": None, "created_at": NOW, "started_at": NOW,
        "due_at": None, "finished_at": None, "reason": None, "message": None, "outcome": None,
        "tokens_in": 0, "tokens_out": 0, "cost_micro": 0,
    }  # fmt: skip
    return RunInfo(**given | fields)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"),
        (3600, "1h00m"), (86_399, "23h59m"), (86_400, "1d0h"), (200_000, "2d7h"),
    ],
)  # fmt: skip
def test_a_length_of_time_has_two_units_at_most(seconds: float, text: str) -> None:
    span = timedelta(seconds=seconds)

    assert lasted(span) == text
    assert ago(NOW - span, NOW) == text
    assert until(NOW + span, NOW) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, None),
        ("30s", NOW - timedelta(seconds=30)),
        ("2h", NOW - timedelta(hours=2)),
        ("1w", NOW - timedelta(weeks=1)),
        ("2026-05-07T09:00Z", NOW - timedelta(hours=3)),
        ("2026-05-07T09:00+02:00", NOW - timedelta(hours=5)),
    ],
)
def test_since_is_a_length_or_a_date(text: str | None, meant: datetime | None) -> None:
    assert moment(text, NOW) == meant


def test_a_date_without_a_zone_is_of_this_place() -> None:
    found = moment("2026-05-07")

    assert found is not None
    assert found == datetime(2026, 5, 7).astimezone()


@pytest.mark.parametrize("text", ["", "h", "2", "2 h", "-2h", "999999w", "yesterday", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--since: .* is no time"):
        moment(text, NOW)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("12 of 40 pages", (12, 40)),
        ("page 3/9", (3, 9)),
        ("40 of 40", (40, 40)),
        ("41 of 40", None),
        ("0 of 0", None),
        ("version 1.2/3.4", None),
        ("reading", None),
    ],
)
def test_progress_tells_a_share_where_it_can(text: str, part: tuple[int, int] | None) -> None:
    assert share(text) == part


def test_the_bar_says_phase_steps_and_what_is_done() -> None:
    bar = Waiting(Console(file=io.StringIO()))

    bar.show(event("state", data={"phase": "Running"}))
    bar.show(event("step_done", step="boil#abc.0"))
    assert bar.line() == "Running · 1 step · boil"
    bar.show(event("step_done", step="pour"))
    bar.show(event("progress", data={"text": "[b]2 of 3[/b]"}))
    assert bar.line() == "Running · 2 steps · [b]2 of 3[/b]"


def test_the_bar_moves_on_a_terminal_and_nowhere_else() -> None:
    shown = {}
    for terminal in (True, False):
        out = io.StringIO()
        with Waiting(Console(file=out, force_terminal=terminal, width=100)) as bar:
            bar.show(event("progress", data={"text": "2 of 4 [pages]"}))
        shown[terminal] = out.getvalue()

    assert "2 of 4 [pages]" in shown[True]
    assert "━" in shown[True]
    assert shown[False] == ""


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (
            event("step_done", step="boil#abc.0", tries=2, duration_ms=12),
            "   3 1/2 step_done boil (try 2) 12 ms",
        ),
        (
            event("step_failed", step="pay", data={"error": "no\nmoney"}),
            "   3 1/2 step_failed pay: no money",
        ),
        (
            event("state", data={"phase": "Running", "worker": "w", "takeovers": 0}),
            "   3 1/2 state: phase=Running worker=w",
        ),
        (event("progress", data={"text": "half"}), "   3 1/2 progress: half"),
        (
            event("parked", data={"reason": "Parked", "waits_for": ["sleep", "approval"]}),
            "   3 1/2 parked: sleep, approval",
        ),
        (
            event(
                "decided",
                step="answer:pay#abc.0:d:1",
                data={"step_key": "pay#abc.0", "decision": 1, "by": "ada"},
            ),
            "   3 1/2 decided: pay: approved by ada",
        ),
        (
            event("taken_over", data={"reason": "Stalled", "takeovers": 2}),
            "   3 1/2 taken_over: Stalled, takeover 2",
        ),
        (event("step_done", step="s", data=None), "   3 1/2 step_done s: (over 64 KiB)"),
    ],
)
def test_an_event_is_one_line(happened: RunEvent, line: str) -> None:
    shown = event_line(happened)

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown[:19])
    assert shown[19:] == f" {line}"


def test_a_long_event_stays_one_line() -> None:
    shown = event_line(event("progress", data={"text": "word " * 400}))

    assert "\n" not in shown
    assert len(shown) < 220
    assert shown.endswith("…")


def test_usage_is_that_of_the_end_or_else_of_the_steps() -> None:
    steps = [
        event("step_done", data={"usage": [9, 1, 1_000]}),
        event("step_failed", data={"usage": [1, 0, 5]}),
        event("step_done", data={}),
        event("step_done", data=None),
    ]

    assert used(info(), steps) == Usage(10, 1, 1_005)
    assert used(info(), []) == Usage()
    assert str(used(info(finished_at=NOW, tokens_in=1200, tokens_out=3), steps)) == (
        "1,200 tokens in, 3 out"
    )
    assert str(Usage(1, 2, 1_500_000)) == "1 tokens in, 2 out, $1.500000"


def test_the_timeline_shows_attempts_only_where_there_are_more_than_one() -> None:
    def shown(*attempts: int) -> str:
        out = io.StringIO()
        steps = [event("step_done", step="[b]", attempt=n, duration_ms=5) for n in attempts]
        Console(file=out, width=120).print(steps_table(timeline(steps)))
        return out.getvalue()

    assert "attempt" not in shown(1, 1)
    assert "attempt" in shown(1, 2)
    assert "[b]" in shown(1)


def test_what_a_run_waits_for_is_told_with_its_place_and_time() -> None:
    waiting = lines.Waiting(
        RunId(7), "", "default", "a", None, 0, Place.BACKLOG, False, 1, 4,
        datetime.now(UTC), datetime.now(UTC) + timedelta(minutes=5, seconds=30), None, (),
    )  # fmt: skip

    told = dict(summary(Told(of_info(info(phase=Phase.QUEUED)), waits=wait_shape(waiting))))

    assert told["waits"] == "ConcurrencyLimit, for 0s, place 4 in line, 5m29s to go"
    assert told["phase"] == "Queued"
    assert dict(summary(Told(of_info(info()))))["waits"] == ""


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((Place.READY, (), None, False), WaitReason.WAITING_FOR_WORKER),
        ((Place.READY, (), None, True), WaitReason.QUARANTINED),
        ((Place.BACKLOG, (), None, True), WaitReason.CONCURRENCY_LIMIT),
        ((Place.TIMER, (), TimerReason.RETRY_BACKOFF, False), WaitReason.RETRY_BACKOFF),
        ((Place.TIMER, (), TimerReason.TAKEOVER_BACKOFF, False), WaitReason.TAKEOVER_BACKOFF),
        ((Place.PARKED, tuple(ParkReason), None, False), WaitReason.SUSPENDED),
        (
            (Place.PARKED, (ParkReason.SLEEP, ParkReason.APPROVAL), None, False),
            WaitReason.AWAITING_APPROVAL,
        ),
        ((Place.PARKED, (ParkReason.RETRY, ParkReason.SLEEP), None, False), WaitReason.SLEEPING),
        ((Place.PARKED, (ParkReason.RETRY,), None, False), WaitReason.RETRY_BACKOFF),
    ],
)
def test_a_run_waits_for_one_thing_that_a_person_should_know(
    given: tuple[Place, tuple[str, ...], int | None, bool], reason: WaitReason
) -> None:
    place, parked_for, timer, quarantined = given

    found = wait_reason(place, parked_for=parked_for, timer_reason=timer, quarantined=quarantined)

    assert found is reason


@pytest.mark.parametrize(
    "text", ["a: b", "- x", "yes", "ü 😀", "line\nline", "\x7f\x85", "'\"", ""]
)
def test_documents_say_the_same_in_both_languages(text: str) -> None:
    value = {"text": text, "when": NOW, "phase": Phase.FAILED, "n": [1, None, True, 2.5]}

    as_json = json.loads(document(value, "json"))

    assert as_json == yaml.safe_load(document(value, "yaml"))
    assert as_json["text"] == text
    assert (as_json["when"], as_json["phase"]) == ("2026-05-07T12:00:00Z", "Failed")


def test_a_verdict_says_what_a_person_must_know() -> None:
    end = of_info(
        info(
            phase=Phase.FAILED, finished_at=NOW + timedelta(seconds=1.5), takeovers=2,
            reason="AgentError", message="the provider is out",
        )
    )  # fmt: skip

    assert verdict.said(end) == (
        "run 7 failed in 1.50 s, taken over 2 times: AgentError: the provider is out"
    )
    assert not verdict.good(end)


COMMANDS = sorted(typer.main.get_command(app).commands.items())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_each_commands_help_has_examples_that_begin_with_it(name: str, command: Any) -> None:
    told = command.get_help(Context(command, info_name=f"rowlock {name}"))

    _, found, examples = told.partition("  Examples:\n")
    lines_ = [line.strip() for line in examples.partition("\n\n")[0].splitlines()]
    assert found
    assert lines_
    for line in lines_:
        assert line.removeprefix("kubectl ").startswith(f"rowlock {name}")


def test_a_pipe_gets_no_spaces_at_line_ends(capsys: pytest.CaptureFixture[str]) -> None:
    made = table("run", "why")
    made.add_row("1", "")
    made.add_row("2", "a long reason")

    show(made, "", made)

    lines_ = capsys.readouterr().out.split("\n")
    assert lines_ == [
        "run  why",
        "1",
        "2    a long reason",
        "",
        "run  why",
        "1",
        "2    a long reason",
        "",
    ]
