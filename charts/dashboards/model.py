"""What a dashboard is made of, and the words its queries are written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rowlock.metrics import Metric as WorkerMetric
from rowlock_operator.metrics import Metric as OperatorMetric

Metric = WorkerMetric | OperatorMetric

#: Grafana's names of units, and how the page says them.
UNITS = {
    "short": "number",
    "cps": "a second",
    "cpm": "a minute",
    "s": "seconds",
    "bytes": "bytes",
    "percentunit": "share",
    "bool_yes_no": "yes or no",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Parameters
    ----------
    expr
        PromQL with Grafana's variables in it.
    legend
        Name of its series; `{{label}}` stands for the value of a label.
    """

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Parameters
    ----------
    text
        What it shows, and what to make of it; the panel's description.
    kind
        `stat` is one number of now, `timeseries` lines over time.
    stacked
        Pile the lines up, where only their sum has a meaning.
    whole
        Round to whole numbers: a rise over the shown time is extrapolated to its ends.
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["stat", "timeseries"] = "timeseries"
    stacked: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"the panel {self.title!r} has the unknown unit {self.unit!r}")


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard: a row of numbers, then lines.

    Parameters
    ----------
    name
        Name of its file, and `rowlock-<name>` its uid.
    """

    name: str
    title: str
    text: str
    stats: tuple[Panel, ...] = field(default=())
    lines: tuple[Panel, ...] = field(default=())

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of its panels, as they stand on it."""
        return (*self.stats, *self.lines)


def stat(title: str, text: str, unit: str, expr: str, *, whole: bool = False) -> Panel:
    """Return a panel of one number."""
    return Panel(title, text, unit, (Query(expr, title),), "stat", whole=whole)


def lines(title: str, text: str, unit: str, *queries: Query, stacked: bool = False) -> Panel:
    """Return a panel of lines over time."""
    return Panel(title, text, unit, queries, stacked=stacked)


def of_pool(metric: Metric, **labels: str) -> str:
    """Select a metric in the chosen namespaces and pools."""
    chosen = ('namespace=~"$namespace"', 'pool=~"$pool"')
    return _select(metric.name, metric, chosen, labels)


def of_release(metric: Metric, **labels: str) -> str:
    """Select a metric of a whole release: of its operator, whatever the chosen pools."""
    return _select(metric.name, metric, (), labels)


def quantile(share: float, metric: Metric) -> str:
    """Return a quantile of a histogram of the operator."""
    buckets = _select(f"{metric.name}_bucket", metric, (), {})
    return f"histogram_quantile({share:g}, sum by (le) (rate({buckets}[$__rate_interval])))"


def total(expr: str, *by: str) -> str:
    """Add up all series, or those of each combination of labels."""
    return f"sum by ({', '.join(by)}) ({expr})" if by else f"sum({expr})"


def highest(expr: str, *by: str) -> str:
    """Return the highest of all series, or of each combination of labels."""
    return f"max by ({', '.join(by)}) ({expr})" if by else f"max({expr})"


def a_second(selected: str, *by: str) -> str:
    """Return how much a counter rises in a second."""
    return total(f"rate({selected}[$__rate_interval])", *by)


def a_minute(selected: str, *by: str) -> str:
    """Return how much a counter rises in a minute, for what is rare."""
    return f"60 * {a_second(selected, *by)}"


def in_range(selected: str) -> str:
    """Return by how much a counter rose in the shown time."""
    return total(f"increase({selected}[$__range])")


def age(selected: str, *by: str) -> str:
    """Return the time since a timestamp; one of 0, which stands for none, has an age of 0."""
    latest = highest(selected, *by)
    return f"(time() - ({latest} > 0)) or {latest}"


def _select(name: str, metric: Metric, chosen: tuple[str, ...], labels: dict[str, str]) -> str:
    if unknown := set(labels) - set(metric.labels):
        raise ValueError(f"{metric.name} has no label {', '.join(sorted(unknown))}")
    given = (f'{label}="{value}"' for label, value in labels.items())
    matchers = ", ".join(('rowlock_release=~"$release"', *chosen, *given))
    return f"{name}{{{matchers}}}"
