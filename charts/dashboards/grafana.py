"""A dashboard as Grafana reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rowlock_operator import metrics

from .model import Dashboard, Panel

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_STAT_HEIGHT = 4
_LINES_HEIGHT = 8


def as_json(dashboard: Dashboard) -> str:
    """Return the dashboard's file."""
    return json.dumps(_dashboard(dashboard), indent=1) + "\n"


def places(dashboard: Dashboard) -> list[dict[str, int]]:
    """Return the place of each panel on Grafana's grid of 24 columns."""
    return [*_row(len(dashboard.stats), _STAT_HEIGHT), *_pairs(len(dashboard.lines))]


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"rowlock-{dashboard.name}",
        "title": f"Rowlock / {dashboard.title}",
        "description": dashboard.text,
        "tags": ["rowlock"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "links": [_links()],
        "templating": {"list": list(_variables())},
        "panels": list(_panels(dashboard)),
    }


def _links() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": "Rowlock",
        "tags": ["rowlock"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    release = 'rowlock_release=~"$release"'
    runs = metrics.POOL_RUNS.name
    yield _choice("release", "Release", f"{metrics.INFO.name}, rowlock_release")
    yield _choice("namespace", "Namespace", f"{runs}{{{release}}}, namespace")
    yield _choice("pool", "Pool", f'{runs}{{{release}, namespace=~"$namespace"}}, pool')


def _choice(name: str, label: str, values: str) -> dict[str, Any]:
    query = f"label_values({values})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        # Also what has no such label is shown then: of a Prometheus that sets none.
        "allValue": ".*",
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    placed = zip(dashboard.panels, places(dashboard), strict=True)
    for number, (panel, place) in enumerate(placed, 1):
        yield {
            "id": number,
            "type": panel.kind,
            "title": panel.title,
            "description": panel.text,
            "gridPos": place,
            "datasource": _SOURCE,
            "targets": list(_targets(panel)),
            **(_stat() if panel.kind == "stat" else _lines()),
            "fieldConfig": {"defaults": _field(panel), "overrides": []},
        }


def _row(count: int, height: int) -> Iterator[dict[str, int]]:
    for at in range(count):
        width = _COLUMNS // count
        yield {"x": at * width, "y": 0, "w": width, "h": height}


def _pairs(count: int) -> Iterator[dict[str, int]]:
    half = _COLUMNS // 2
    for at in range(count):
        across, down = at % 2, at // 2
        last = at == count - 1 and not across
        y = _STAT_HEIGHT + down * _LINES_HEIGHT
        yield {"x": across * half, "y": y, "w": _COLUMNS if last else half, "h": _LINES_HEIGHT}


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    for number, query in enumerate(panel.queries):
        yield {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "instant": panel.kind == "stat",
            "range": panel.kind != "stat",
        }


def _field(panel: Panel) -> dict[str, Any]:
    common = {"unit": panel.unit, "min": 0, **({"decimals": 0} if panel.whole else {})}
    if panel.kind == "stat":
        return common
    stacking = {"mode": "normal" if panel.stacked else "none"}
    drawn = {"fillOpacity": 40 if panel.stacked else 8, "stacking": stacking}
    return {**common, "custom": {"lineWidth": 1, "showPoints": "never", **drawn}}


def _stat() -> dict[str, Any]:
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"options": {"reduceOptions": reduce, "colorMode": "none", "graphMode": "none"}}


def _lines() -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return {"options": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}}
