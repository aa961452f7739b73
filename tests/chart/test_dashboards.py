"""The dashboards that the chart renders: there when asked for, and what the description says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from charts.dashboards.__main__ import DASHBOARDS
from tests.charts import CHART, done, helm, objects

DATABASE = "database.existingSecret.name=database"
ON = f"{DATABASE},dashboards.enabled=true"
MOST_BYTES_OF_A_CONFIG_MAP = 1024 * 1024


def rendered(home: Path, *values: str) -> list[dict[str, Any]]:
    """Return the ConfigMaps of dashboards of a release `rowlock` in the namespace `system`."""
    place = ("template", "rowlock", CHART, "--namespace", "system")
    found = objects(done(helm(*place, *values, home=home)))
    component = "app.kubernetes.io/component"
    return [o for o in found if o["metadata"].get("labels", {}).get(component) == "dashboards"]


def test_there_are_none_unless_asked_for(tmp_path: Path) -> None:
    assert rendered(tmp_path, "--set", DATABASE) == []


def test_each_dashboard_is_one_config_map_with_its_file(tmp_path: Path) -> None:
    found = {it["metadata"]["name"]: it for it in rendered(tmp_path, "--set", ON)}
    assert set(found) == {f"rowlock-dashboard-{each.name}" for each in DASHBOARDS}
    for each in DASHBOARDS:
        it = found[f"rowlock-dashboard-{each.name}"]
        assert (it["kind"], it["metadata"]["namespace"]) == ("ConfigMap", "system")
        assert it["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert "annotations" not in it["metadata"]
        file = (CHART / "dashboards" / f"{each.name}.json").read_text()
        assert it["data"] == {f"rowlock-{each.name}.json": file}
        assert len(json.dumps(it).encode()) < MOST_BYTES_OF_A_CONFIG_MAP


def test_the_place_and_the_marks_are_the_values(tmp_path: Path) -> None:
    marks = "dashboards.labels.mine=yes,dashboards.annotations.grafana_folder=Rowlock"
    for it in rendered(tmp_path, "--set", f"{ON},dashboards.namespace=grafana,{marks}"):
        assert it["metadata"]["namespace"] == "grafana"
        assert it["metadata"]["labels"].items() >= {"mine": "yes", "grafana_dashboard": "1"}.items()
        assert it["metadata"]["annotations"] == {"grafana_folder": "Rowlock"}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("dashboards.enable=true", "/dashboards': additional properties 'enable'"),
        ("dashboards.namespace=Grafana", "/dashboards/namespace'"),
        ("dashboards.enabled=1", "/dashboards/enabled'"),
    ],
)
def test_a_typo_is_refused_with_its_path(value: str, path: str, tmp_path: Path) -> None:
    ended = helm("template", "r", CHART, "--set", f"{DATABASE},{value}", home=tmp_path)
    assert ended.returncode != 0
    assert path in ended.stderr
