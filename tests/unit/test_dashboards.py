"""The generated dashboards: every name they use exists, and Grafana can lay them out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from charts.dashboards.__main__ import folders
from charts.dashboards.model import Panel, of_pool
from rowlock import metrics as w
from rowlock_operator import metrics as o
from rowlock_operator.api.generated import drift
from rowlock_operator.metrics import Metric

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "charts" / "rowlock" / "dashboards").glob("*.json"))
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)

#: Labels that the scrape adds.
OF_THE_SCRAPE = {"rowlock_release", "namespace", "pool", "instance"}
#: Words of PromQL in our queries.
WORDS = {"sum", "max", "min", "by", "rate", "increase", "histogram_quantile", "time", "or"}


def labels_by_name() -> dict[str, set[str]]:
    """Return the labels of every series that is exported, by its name."""
    found = {name: set(metric.labels) for name, metric in w.TABLE.items()}
    for name, metric in o.TABLE.items():
        if metric.kind == "histogram":
            found[f"{name}_bucket"] = {*metric.labels, "le"}
        else:
            found[name] = set(metric.labels)
    return found


def panels(file: Path) -> list[dict[str, Any]]:
    """Return the panels of a file."""
    found: list[dict[str, Any]] = json.loads(file.read_text())["panels"]
    return found


def targets(file: Path) -> Iterator[tuple[str, str]]:
    """Yield query and legend of every target."""
    for panel in panels(file):
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def test_the_files_are_what_the_description_makes() -> None:
    assert drift(folders()) == ""
    assert [file.stem for file in FILES] == [
        "operator", "queue", "runs", "takeovers", "workers", "writer",
    ]  # fmt: skip


@each_file
def test_every_metric_and_label_exists(file: Path) -> None:
    known = labels_by_name()
    for query, legend in targets(file):
        selectors = re.findall(r"(\w+)\{([^}]*)\}", query)
        assert selectors, query
        has = OF_THE_SCRAPE.copy()
        for name, matchers in selectors:
            assert name in known, f"{name} in {query}"
            used = set(re.findall(r"(\w+)=", matchers))
            assert used <= known[name] | OF_THE_SCRAPE, query
            has |= known[name]
        grouped = {
            label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")
        }
        assert grouped <= has, query
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped, legend
        # Nothing hides from the patterns above: outside of braces stand but words of PromQL.
        rest = re.sub(r"\w+\{[^}]*\}|\[\$__\w+\]|by \([^)]*\)", " ", query)
        assert set(re.findall(r"[a-zA-Z_]\w*", rest)) <= WORDS, query


@each_file
def test_no_panel_lies_over_another(file: Path) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in panels(file):
        at = panel["gridPos"]
        own = {
            (at["x"] + across, at["y"] + down)
            for across in range(at["w"])
            for down in range(at["h"])
        }
        assert not own & cells, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in panels(file)}) == len(panels(file))


@each_file
def test_every_panel_explains_itself(file: Path) -> None:
    titles = [panel["title"] for panel in panels(file)]
    for panel in panels(file):
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
    assert len(set(titles)) == len(titles)


@each_file
def test_variables_are_there_for_what_queries_use(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    variables = {it["name"]: it for it in dashboard["templating"]["list"]}
    assert set(variables) == {"datasource", "release", "namespace", "pool"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    assert {name for name in used if not name.startswith("__")} <= set(variables)
    for name in ("release", "namespace", "pool"):
        [values] = re.findall(r"label_values\((\w+)", variables[name]["definition"])
        assert values in o.TABLE


def every_metric() -> list[Metric | w.Metric]:
    """Return all metrics of worker and operator."""
    return [*w.TABLE.values(), *o.TABLE.values()]


def test_every_metric_is_on_some_dashboard() -> None:
    shown = "".join(query for file in FILES for query, _ in targets(file))
    missing = {it.name for it in every_metric() if not re.search(rf"{it.name}(_bucket)?\{{", shown)}
    assert missing == set()


def test_a_query_cannot_select_a_label_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="rowlock_slots has no label state"):
        of_pool(w.SLOTS, state="free")


def test_a_panel_needs_a_unit_that_the_page_can_say() -> None:
    with pytest.raises(ValueError, match="unknown unit 'parsec'"):
        Panel("Far", "Far away.", "parsec", ())
