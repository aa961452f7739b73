"""Log lines and the exposition: what people and machines see of a worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from rowlock import logs, metrics
from rowlock.metrics import Exporter, Tally
from rowlock.supervisor.exposition import Pulse, respond


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def fail() -> None:
    """Raise an error with a cause."""
    try:
        raise OSError("no route")
    except OSError as error:
        raise ValueError("no answer") from error


def test_a_json_line_holds_the_whole_chain_of_causes(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(log_format="json", process=3)
    try:
        fail()
    except ValueError:
        structlog.get_logger("rowlock.test").exception("It failed", run="17")
    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["run"], line["process"]) == ("It failed", "17", 3)
    assert (line["level"], line["logger"]) == ("error", "rowlock.test")
    chain = [(link["exc_type"], link["exc_value"], link["is_cause"]) for link in line["exception"]]
    assert chain == [("ValueError", "no answer", False), ("OSError", "no route", True)]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_line_shows_local_variables(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    logs.configure(log_format=log_format)

    def leak() -> None:
        password = "".join(["hunter", "2"])
        raise ValueError(f"{len(password)} characters")

    try:
        leak()
    except ValueError:
        structlog.get_logger("rowlock.test").exception("It failed")
    said = capsys.readouterr().err
    assert "7 characters" in said
    assert "hunter2" not in said


def test_lines_of_libraries_look_like_ours(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(log_format="json", process=0)
    logging.getLogger("some.library").warning("%d left", 3)
    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["logger"], line["process"]) == ("3 left", "some.library", 0)


def test_a_level_hides_what_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(level="WARNING")
    structlog.get_logger("rowlock.test").info("unseen")
    assert capsys.readouterr().err == ""


def test_counters_arrive_in_the_text_format() -> None:
    tally, exporter = Tally(), Exporter()
    tally.add(metrics.TAKEOVERS, "WorkerDied")
    tally.add(metrics.RUNS_FINISHED, "Failed", "AgentError", by=2)
    exporter.add(tally.take())
    exporter.show(metrics.SLOTS, 128, "0")
    text = exporter.text().decode()
    for line in (
        'rowlock_takeovers_total{reason="WorkerDied"} 1.0',
        'rowlock_takeovers_total{reason="LeaseExpired"} 0.0',
        'rowlock_runs_finished_total{reason="AgentError",status="Failed"} 2.0',
        'rowlock_slots{process="0"} 128.0',
    ):
        assert line in text
    assert tally.take() == []


def test_the_probe_fails_when_the_supervisors_loop_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter, pulse = Exporter(), Pulse()
    assert respond("/livez", exporter, pulse)[0] == "200 OK"
    monkeypatch.setattr(Pulse, "age", 16.0)
    status, _, body = respond("/livez", exporter, pulse)
    assert status.startswith("503")
    assert b"stands still for 16 s" in body


def test_other_paths_are_not_found() -> None:
    assert respond("/", Exporter(), Pulse())[0] == "404 Not Found"
