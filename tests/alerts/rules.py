"""The alerts of the chart, as its values make them, and what promtool and Prometheus are given."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.charts import CHART, ROOT, done, helm, objects

Rule = dict[str, Any]

RELEASE = "system/rowlock"
OURS = f'rowlock_release="{RELEASE}"'
SOURCE = CHART / "files" / "alerts.yaml"
CASES = Path(__file__).with_name("cases.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks"
MONITORS = ("serviceMonitor", "podMonitor", "prometheusRule")
ALL_ON = ["--set", ",".join(f"monitoring.{each}.enabled=true" for each in MONITORS)]
DATABASE = ["--set", "database.existingSecret.name=database"]

NO_PROMETHEUS = "needs prometheus and promtool of Debian's package prometheus (make alerts-tools)"


def missing_tools() -> bool:
    """Tell whether Prometheus is not installed here."""
    return not (shutil.which("promtool") and shutil.which("prometheus"))


def source() -> list[Rule]:
    """Return the alerts as they are written down."""
    return list(yaml.safe_load(SOURCE.read_text()))


@cache
def values() -> dict[str, Any]:
    """Return the chart's own values for its alerts, by name."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]
    return dict(found["alerts"])


def rendered(home: Path, *more: str) -> list[dict[str, Any]]:
    """Return what the chart makes of its monitoring values, all of it switched on."""
    place = ("template", "rowlock", CHART, "--namespace", "system")
    shown = ("-s", "templates/monitoring.yaml")
    return objects(done(helm(*place, *shown, *DATABASE, *ALL_ON, *more, home=home)))


def groups(home: Path, *more: str) -> dict[str, Any]:
    """Return the rules as Prometheus reads them from a file."""
    [found] = [each for each in rendered(home, *more) if each["kind"] == "PrometheusRule"]
    return dict(found["spec"])


def rules(home: Path, *more: str) -> list[Rule]:
    """Return the alerts of the chart."""
    return [rule for group in groups(home, *more)["groups"] for rule in group["rules"]]


def minutes(duration: str) -> int:
    """Return a `for` of whole minutes."""
    assert duration.endswith("m"), duration
    return int(duration.removesuffix("m"))


def unit_tests(alerts: list[Rule], file: Path) -> dict[str, Any]:
    """Return promtool's tests: each alert a minute before its `for` is over, then, and never."""
    cases = yaml.safe_load(CASES.read_text())
    tests = [test for rule in alerts for test in _tests_of(rule, cases[rule["alert"]])]
    return {"rule_files": [str(file)], "evaluation_interval": "1m", "tests": tests}


def _tests_of(rule: Rule, case: dict[str, Any]) -> list[dict[str, Any]]:
    name, fires = rule["alert"], case["starts"] + minutes(rule["for"])
    said = {
        "exp_labels": {**rule["labels"], **case["labels"]},
        "exp_annotations": {
            **rule["annotations"],
            "description": _said(rule["annotations"]["description"], case),
        },
    }
    once = [
        {"eval_time": f"{fires - 1}m", "alertname": name, "exp_alerts": []},
        {"eval_time": f"{fires}m", "alertname": name, "exp_alerts": [said]},
    ]
    never = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for minute in (fires, fires + 5, fires + 20)
    ]
    return [
        {"name": name, "interval": "1m", "input_series": _series(case["series"])}
        | {"alert_rule_test": once},
        {"name": f"{name}: never", "interval": "1m", "input_series": _series(case["never"])}
        | {"alert_rule_test": never},
    ]


def _said(description: str, case: dict[str, Any]) -> str:
    """Return a description as Prometheus fills it in for the labels and the value of a case."""
    for label, value in case["labels"].items():
        description = description.replace(f"{{{{ $labels.{label} }}}}", value)
    return re.sub(r"\{\{ \$value[^}]*\}\}", case.get("value", ""), description)


def _series(given: dict[str, str]) -> list[dict[str, str]]:
    return [
        {"series": series.replace("OURS", OURS), "values": values}
        for series, values in given.items()
    ]
