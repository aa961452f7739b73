"""The pictures of the reference page, from the answers of a real Prometheus."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from charts.dashboards.model import Dashboard, Panel
from charts.dashboards.picture import Series, draw
from tests.prometheus import Prometheus

FOLDER = Path(__file__).parents[2] / "docs" / "images"
POINTS = 120


def filled(expr: str, *, pool: str = ".*", interval: str = "1m", shown: str = "10m") -> str:
    """Return a query as Grafana sends it."""
    values = {
        "release": ".*",
        "namespace": ".*",
        "pool": pool,
        "__rate_interval": interval,
        "__range": shown,
    }
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


def named(legend: str, labels: dict[str, str]) -> str:
    """Return the name of a series as Grafana makes it."""
    name = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
    # A namespace of a test has a number for a name.
    return re.sub(r"\bop-[0-9a-f]{10}\b", "agents", name)


async def write(prometheus: Prometheus, dashboard: Dashboard, *, start: float, end: float) -> Path:
    """Draw a dashboard between two times in seconds, and return the file."""
    shown = {
        panel.title: await _series(prometheus, panel, start=start, end=end)
        for panel in dashboard.panels
    }
    times = [f"{(end - start) * (1 - part / 4):.0f} s ago" for part in range(4)]
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"dashboard-{dashboard.name}.svg"
    file.write_text(draw(dashboard, shown, times=[*times, "now"]))
    return file


async def _series(
    prometheus: Prometheus, panel: Panel, *, start: float, end: float
) -> list[Series]:
    step = (end - start) / (POINTS - 1)
    found = []
    for query in panel.queries:
        expr = filled(query.expr, interval="15s", shown=f"{end - start:.0f}s")
        if panel.kind == "stat":
            answers = await prometheus.now(expr)
            found += [Series(query.legend, (float(one["value"][1]),)) for one in answers]
            continue
        for one in await prometheus.over(expr, start=start, end=end, step=step):
            found.append(Series(named(query.legend, one["metric"]), _values(one, start, step)))
    return found


def _values(one: dict[str, Any], start: float, step: float) -> tuple[float, ...]:
    values = [math.nan] * POINTS
    for at, value in one["values"]:
        values[min(round((at - start) / step), POINTS - 1)] = float(value)
    return tuple(values)
