"""A dashboard as an SVG, drawn from what Prometheus answered; Grafana is not needed for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from .grafana import places
from .model import Dashboard, Panel
from .ticks import marks, said

WIDTH = 1200
_CELL = WIDTH / 24
_UNIT_HEIGHT = 29
_HEAD = 44
_GAP = 6
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 32, 24
_LEGEND_LINE = 15
_MOST_SERIES = 12
_COLORS = (
    "#2f6fb3", "#d1662a", "#3a8f4d", "#a23b72", "#8a6d1b", "#5b5bb5",
    "#1d8a8a", "#b23b3b", "#6b7f2a", "#8451a0", "#3f7fbf", "#7a5c45",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, and its value at each time of its dashboard, NaN where there is none."""

    name: str
    values: tuple[float, ...]

    @property
    def highest(self) -> float:
        """Highest value, 0 if there is none."""
        return max((value for value in self.values if math.isfinite(value)), default=0.0)

    @property
    def last(self) -> float:
        """Latest value, NaN if there is none."""
        return next((v for v in reversed(self.values) if math.isfinite(v)), math.nan)


@dataclass(frozen=True, slots=True)
class Box:
    """A place on the picture, in pixels."""

    x: float
    y: float
    width: float
    height: float


def draw(
    dashboard: Dashboard, shown: Mapping[str, Sequence[Series]], *, times: Sequence[str]
) -> str:
    """Return the picture.

    Parameters
    ----------
    shown
        Series by the title of their panel.
    times
        Words for the ends of the time axis and for what is between, from left to right.
    """
    rows = list(zip(dashboard.panels, places(dashboard), strict=True))
    height = _HEAD + max(place["y"] + place["h"] for _, place in rows) * _UNIT_HEIGHT + _GAP
    parts = [_start(dashboard, height)]
    for panel, place in rows:
        box = Box(
            place["x"] * _CELL + _GAP / 2,
            _HEAD + place["y"] * _UNIT_HEIGHT + _GAP / 2,
            place["w"] * _CELL - _GAP,
            place["h"] * _UNIT_HEIGHT - _GAP,
        )
        parts.extend(_panel(panel, box, shown[panel.title], times))
    return "\n".join([*parts, "</svg>", ""])


def _start(dashboard: Dashboard, height: float) -> str:
    title = f"Rowlock / {dashboard.title}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"',
            'font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" fill="#24292f">',
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="#eef0f3"/>',
            _text(12, 28, title, size=17, bold=True),
        ]
    )


def _panel(panel: Panel, box: Box, shown: Sequence[Series], times: Sequence[str]) -> Iterator[str]:
    yield (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
        f'height="{box.height:.0f}" rx="3" fill="#fff" stroke="#d5d9de"/>'
    )
    yield _text(box.x + 10, box.y + 19, panel.title, size=12, bold=True)
    if panel.kind == "stat":
        value = shown[0].last if shown else math.nan
        value = float(round(value)) if panel.whole and math.isfinite(value) else value
        across, down = box.x + box.width / 2, box.y + box.height * 0.75
        yield _text(across, down, said(value, panel.unit), size=30, anchor="middle")
        return
    visible = sorted(shown, key=lambda series: series.highest, reverse=True)[:_MOST_SERIES]
    yield from _graph(panel, box, visible, len(shown) - len(visible), times)


def _graph(
    panel: Panel, box: Box, shown: Sequence[Series], hidden: int, times: Sequence[str]
) -> Iterator[str]:
    legend = list(_legend(shown, hidden, box, panel.unit))
    lines = 1 + max((line for line, _, _ in legend), default=0)
    plot = Box(
        box.x + _LEFT,
        box.y + _TOP,
        box.width - _LEFT - _RIGHT,
        box.height - _TOP - _BOTTOM - lines * _LEGEND_LINE,
    )
    curves = _piled(shown) if panel.stacked else [series.values for series in shown]
    every = [value for curve in curves for value in curve if math.isfinite(value)]
    steps = marks(max(every, default=0.0))
    yield from _axes(plot, steps, panel.unit, times)
    # The smallest last, on top of the others; of a pile the highest first.
    order = reversed(range(len(curves))) if panel.stacked else range(len(curves))
    for number in order:
        yield _curve(plot, curves[number], steps[-1], _COLORS[number], filled=panel.stacked)
    for line, x, (color, words) in legend:
        y = plot.y + plot.height + _BOTTOM + 9 + line * _LEGEND_LINE
        if color is not None:
            mark = f'x="{x:.0f}" y="{y - 6:.0f}" width="10" height="3"'
            yield f'<rect {mark} fill="{_COLORS[color]}"/>'
        yield _text(x + 14, y, words, size=10)


def _legend(
    shown: Sequence[Series], hidden: int, box: Box, unit: str
) -> Iterator[tuple[int, float, tuple[int | None, str]]]:
    """Yield line, place and content of each entry, with the highest value of its series."""
    entries: list[tuple[int | None, str]] = [
        (number, f"{series.name} ({said(series.highest, unit)})")
        for number, series in enumerate(shown)
    ]
    if hidden:
        entries.append((None, f"and {hidden} more"))
    line, x = 0, box.x + 10
    for entry in entries:
        width = 26 + 6.3 * len(entry[1])
        if x + width > box.x + box.width and x > box.x + 10:
            line, x = line + 1, box.x + 10
        yield line, x, entry
        x += width


def _axes(plot: Box, steps: Sequence[float], unit: str, times: Sequence[str]) -> Iterator[str]:
    for step in steps:
        y = plot.y + plot.height * (1 - step / steps[-1])
        yield (
            f'<path d="M{plot.x:.0f} {y:.1f}h{plot.width:.0f}" stroke="#e3e6ea" fill="none"/>'
            + _text(plot.x - 6, y + 4, said(step, unit), size=10, anchor="end")
        )
    for number, words in enumerate(times):
        share = number / (len(times) - 1)
        anchor = "start" if number == 0 else "end" if share == 1 else "middle"
        yield _text(
            plot.x + share * plot.width, plot.y + plot.height + 15, words, size=10, anchor=anchor
        )


def _piled(shown: Sequence[Series]) -> list[tuple[float, ...]]:
    piled: list[tuple[float, ...]] = []
    below = [0.0] * max((len(series.values) for series in shown), default=0)
    for series in shown:
        values = [value if math.isfinite(value) else 0.0 for value in series.values]
        below = [under + value for under, value in zip(below, values, strict=True)]
        piled.append(tuple(below))
    return piled


def _curve(plot: Box, values: Sequence[float], highest: float, color: str, *, filled: bool) -> str:
    across = plot.width / max(len(values) - 1, 1)
    path, pen = [], "M"
    for number, value in enumerate(values):
        if not math.isfinite(value):
            pen = "M"
        elif pen == "M" or not _flat(values, number):
            y = plot.y + plot.height * (1 - min(value / highest, 1.0))
            path.append(f"{pen}{plot.x + number * across:.0f} {y:.1f}")
            pen = "L"
    if not path:
        return ""
    if filled:
        foot = plot.y + plot.height
        closed = f"{''.join(path)}L{plot.x + plot.width:.1f} {foot:.1f}L{plot.x:.1f} {foot:.1f}Z"
        return f'<path d="{closed}" fill="{color}" stroke="none"/>'
    return f'<path d="{"".join(path)}" fill="none" stroke="{color}" stroke-width="1.6"/>'


def _flat(values: Sequence[float], number: int) -> bool:
    """Tell whether a point lies between two of its own height, which say it all."""
    around = values[number - 1 : number + 2]
    return len(around) == 3 and len(set(around)) == 1


def _text(
    x: float, y: float, words: str, *, size: int, bold: bool = False, anchor: str = "start"
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}"{weight}{side}>{escape(words)}</text>'
