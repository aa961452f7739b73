"""Every alert: tried by promtool, made of metrics that exist, explained by a page."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowlock import metrics as of_workers
from rowlock_operator import metrics as of_operator
from tests.alerts import rules
from tests.charts import CHART, helm

ALERTS = rules.source()
NAMES = [rule["alert"] for rule in ALERTS]
every_alert = pytest.mark.parametrize("alert", ALERTS, ids=NAMES)

needs_prometheus = pytest.mark.skipif(rules.missing_tools(), reason=rules.NO_PROMETHEUS)

#: Of a target: what Prometheus, or the monitors of the chart, add to each sample.
OF_EVERY_TARGET = {"rowlock_release", "component"}
OF_EVERY_WORKER = {"namespace", "pool"}
SERIES = re.compile(r"\b(rowlock_[a-z_]+|up)\{([^}]*)\}")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@needs_prometheus
def test_each_alert_fires_at_its_time_and_not_before(tmp_path: Path) -> None:
    file, tests = tmp_path / "rules.yaml", tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump(rules.groups(tmp_path)))
    tests.write_text(yaml.safe_dump(rules.unit_tests(rules.rules(tmp_path), file)))
    ended = promtool("test", "rules", tests)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_prometheus
def test_promtool_finds_an_alert_that_fires_too_early(tmp_path: Path) -> None:
    """What the test above rests on: it fails for a duration that is a minute too short."""
    file, tests = tmp_path / "rules.yaml", tmp_path / "tests.yaml"
    name = "RowlockQueueStalled"
    early = rules.groups(tmp_path, "--set", f"monitoring.alerts.{name}.for=9m")
    file.write_text(yaml.safe_dump(early))
    tests.write_text(yaml.safe_dump(rules.unit_tests(rules.rules(tmp_path), file)))
    ended = promtool("test", "rules", tests)
    assert ended.returncode != 0
    assert name in ended.stdout + ended.stderr


def test_values_schema_cases_and_pages_are_about_the_same_alerts() -> None:
    assert list(rules.values()) == NAMES
    assert list(yaml.safe_load(rules.CASES.read_text())) == NAMES
    pages = {path.stem for path in rules.RUNBOOKS.glob("rowlock*.md")}
    assert pages == {name.lower() for name in NAMES}


@every_alert
def test_an_alert_asks_for_metrics_and_labels_that_exist(alert: dict[str, Any]) -> None:
    found = SERIES.findall(alert["expr"])
    assert len(found) == alert["expr"].count("OURS")
    grouped = {
        label.strip()
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", alert["expr"])
        for label in group.split(",")
    }
    for name, matchers in found:
        matched = set(re.findall(r"(\w+)!?=", matchers))
        known = labels_of(name)
        assert matched <= known, name
        assert grouped - {"le"} <= known, name


def labels_of(name: str) -> set[str]:
    """Return all labels that a sample of that name has, or fail if there is none."""
    if name == "up":
        return OF_EVERY_TARGET
    base = name.removesuffix("_bucket")
    if base in of_operator.TABLE:
        metric = of_operator.TABLE[base]
        assert (metric.kind == "histogram") == (name != base), name
        return OF_EVERY_TARGET | {*metric.labels, *(["le"] if name != base else [])}
    return OF_EVERY_TARGET | OF_EVERY_WORKER | {*of_workers.TABLE[name].labels}


@every_alert
def test_an_alert_asks_for_values_of_labels_that_exist(alert: dict[str, Any]) -> None:
    for name, matchers in SERIES.findall(alert["expr"]):
        metric = of_operator.TABLE.get(name)
        for label, value in re.findall(r'(\w+)="([^"]*)"', matchers):
            if metric and metric.values and label in metric.labels:
                assert value in metric.values, name


@every_alert
def test_an_alert_needs_the_monitors_of_its_metrics(alert: dict[str, Any]) -> None:
    names = {name for name, _ in SERIES.findall(alert["expr"])}
    workers = {name for name in names if name in of_workers.TABLE}
    wanted = ["serviceMonitor"] * bool(names - workers) + ["podMonitor"] * bool(workers)
    assert alert["needs"] == wanted


@every_alert
def test_a_threshold_is_given_where_it_is_used(alert: dict[str, Any]) -> None:
    assert ("threshold" in rules.values()[alert["alert"]]) == ("THRESHOLD" in alert["expr"])


@every_alert
def test_a_page_tells_what_to_do(alert: dict[str, Any]) -> None:
    page = (rules.RUNBOOKS / f"{alert['alert'].lower()}.md").read_text()
    assert page.startswith(f"# {alert['alert']}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        "Meaning", "Impact", "Diagnosis", "Mitigation",
    ]  # fmt: skip
    assert "```console" in page


def test_the_index_of_the_pages_is_up_to_date() -> None:
    page = rules.RUNBOOKS / "README.md"
    start, end = "<!-- alerts -->\n", "<!-- end of alerts -->"
    before, rest = page.read_text().split(start)
    wanted = before + start + index() + end + rest.split(end)[1]
    if os.environ.get("WRITE_REFERENCE"):
        page.write_text(wanted)
    assert page.read_text() == wanted, "WRITE_REFERENCE=1 make alerts-test"


def index() -> str:
    """Return the table of all alerts with their values."""
    lines = ["| alert | severity | threshold | for | says |", "|---|---|---|---|---|"]
    for rule in ALERTS:
        name, value = rule["alert"], rules.values()[rule["alert"]]
        link = f"[{name}]({name.lower()}.md)"
        shown = (link, value["severity"], value.get("threshold", ""), value["for"], rule["summary"])
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    return "\n".join(lines) + "\n"


def test_a_rule_takes_its_values(tmp_path: Path) -> None:
    name = "RowlockQueueOldestRunTooOld"
    given = ("enabled=true", "threshold=60", "for=1m", "severity=critical")
    values = ",".join(f"monitoring.alerts.{name}.{each}" for each in given)
    values += ",monitoring.prometheusRule.runbookUrl=https://example.test/books/"
    values += ",monitoring.prometheusRule.ruleLabels.team=agents,monitoring.labels.release=kps"
    found = rules.rendered(tmp_path, "--set", values)
    assert {each["metadata"]["labels"]["release"] for each in found} == {"kps"}
    [rule] = [each for each in rules.rules(tmp_path, "--set", values) if each["alert"] == name]
    assert rule["for"] == "1m"
    assert rule["labels"] == {"severity": "critical", "team": "agents"}
    assert rule["expr"].endswith("> 60")
    assert rule["annotations"]["runbook_url"] == f"https://example.test/books/{name.lower()}.md"


def test_a_rule_can_be_switched_off(tmp_path: Path) -> None:
    off = "monitoring.alerts.RowlockSweepHeld.enabled=false"
    assert "RowlockSweepHeld" not in [r["alert"] for r in rules.rules(tmp_path, "--set", off)]


def test_rules_without_their_metrics_are_left_out(tmp_path: Path) -> None:
    for left, gone in (("serviceMonitor", "podMonitor"), ("podMonitor", "serviceMonitor")):
        found = rules.rules(tmp_path, "--set", f"monitoring.{gone}.enabled=false")
        wanted = [rule["alert"] for rule in ALERTS if rule["needs"] == [left]]
        assert [rule["alert"] for rule in found] == wanted


def test_no_placeholder_is_left(tmp_path: Path) -> None:
    for rule in rules.rules(tmp_path):
        assert "OURS" not in rule["expr"]
        assert "THRESHOLD" not in rule["expr"]
        assert rule["expr"].count(rules.OURS) >= 1


def test_monitors_find_what_the_chart_and_the_operator_make(tmp_path: Path) -> None:
    found = {each["kind"]: each for each in rules.rendered(tmp_path)}
    [endpoint] = found["ServiceMonitor"]["spec"]["endpoints"]
    # Otherwise the namespace of a pool would become `exported_namespace`.
    assert endpoint["honorLabels"] is True
    assert endpoint["port"] == "http"
    [worker] = found["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert worker["port"] == "metrics"
    assert found["PodMonitor"]["spec"]["namespaceSelector"] == {"any": True}
    for each in (endpoint, worker):
        targets = {label["targetLabel"]: label for label in each["relabelings"]}
        assert targets["rowlock_release"]["replacement"] == rules.RELEASE
        assert targets.keys() >= OF_EVERY_TARGET
    some = rules.rendered(tmp_path, "--set", "rbac.namespaces={team-a,team-b}")
    [pods] = [each for each in some if each["kind"] == "PodMonitor"]
    assert pods["spec"]["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}


REFUSED = {
    "monitoring.alerts.RowlockSweepHeld.enabld=true": "RowlockSweepHeld': additional properties",
    "monitoring.alerts.RowlockSweepHeld.threshold=1": "RowlockSweepHeld': additional properties",
    "monitoring.alerts.RowlockSwepHeld.enabled=true": "/alerts': additional properties",
    "monitoring.alerts.RowlockQueueStalled.for=soon": "/RowlockQueueStalled/for'",
    "monitoring.alerts.RowlockQueueStalled.severity=loud": "/RowlockQueueStalled/severity'",
    "monitoring.alerts.RowlockQueueStalled.threshold=long": "/RowlockQueueStalled/threshold'",
    "monitoring.serviceMonitors.enabled=true": "/monitoring': additional properties",
    "monitoring.prometheusRule.enabled=true": "no alert is left",
}


@pytest.mark.parametrize(("value", "says"), REFUSED.items(), ids=list(REFUSED))
def test_a_typo_in_an_alert_is_refused(value: str, says: str, tmp_path: Path) -> None:
    ended = helm("template", "r", CHART, *rules.DATABASE, "--set", value, home=tmp_path)
    assert ended.returncode != 0
    assert says in ended.stderr


def test_nothing_is_rendered_unless_it_is_asked_for(tmp_path: Path) -> None:
    ended = helm("template", "r", CHART, *rules.DATABASE, home=tmp_path)
    assert ended.returncode == 0
    assert "monitoring.coreos.com" not in ended.stdout
