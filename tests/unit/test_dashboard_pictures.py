"""How dashboards are drawn: marks, numbers and lines."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from charts.dashboards.__main__ import DASHBOARDS
from charts.dashboards.model import Dashboard, Query, lines, stat
from charts.dashboards.picture import Series, draw
from charts.dashboards.ticks import marks, said

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 150_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("highest", "wanted"),
    [
        (0, [0, 1]),
        (math.nan, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1]),
        (7.5, [0, 2, 4, 6, 8]),
        (120, [0, 50, 100, 150]),
        (0.0003, [0, 0.0001, 0.0002, 0.0003]),
    ],
)
def test_marks_are_round_and_reach_the_highest(highest: float, wanted: list[float]) -> None:
    assert marks(highest) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.997, "percentunit", "99.7 %"),
        (0.25, "s", "250 ms"),
        (3, "s", "3 s"),
        (300, "s", "5 min"),
        (0, "bool_yes_no", "no"),
        (1, "bool_yes_no", "yes"),
        (2048, "bytes", "2 KiB"),
        (300, "bytes", "300 B"),
        (12_300, "short", "12.3 k"),
        (1.5, "cps", "1.5/s"),
        (2, "cpm", "2/min"),
        (math.nan, "short", "-"),
    ],
)
def test_values_are_said_with_their_unit(value: float, unit: str, words: str) -> None:
    assert said(value, unit) == words


def drawn(*shown: Series, stacked: bool = False) -> ElementTree.Element:
    """Return the picture of a dashboard with one number and one panel of lines."""
    dashboard = Dashboard(
        "some",
        "Some",
        "",
        stats=(stat("Number", "", "short", "", whole=True),),
        lines=(lines("Lines", "", "short", Query("", ""), stacked=stacked),),
    )
    series = {"Number": [Series("Number", (4.03,))], "Lines": shown}
    picture = draw(dashboard, series, times=["then", "now"])
    return ElementTree.fromstring(picture)  # noqa: S314  it is our own


def curves(picture: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Return the points of each curve, lines of the grid left out."""
    paths = [it.attrib["d"] for it in picture.iter(f"{SVG}path") if "h" not in it.attrib["d"]]
    pairs = [re.findall(r"[ML]([\d.]+) ([\d.]+)", path) for path in paths]
    return [[(float(x), float(y)) for x, y in found] for found in pairs]


def test_a_curve_goes_up_where_values_do_and_stops_where_there_are_none() -> None:
    picture = drawn(Series("<one>", (0, 1, 2, math.nan, 2)))
    [curve] = curves(picture)
    assert len(curve) == 4
    assert curve[0][1] > curve[1][1] > curve[2][1] == curve[3][1]
    words = [it.text for it in picture.iter(f"{SVG}text")]
    assert {"4", "<one> (2)", "then", "now", "Number", "Lines"} <= set(words)


def test_a_flat_stretch_needs_its_ends_alone() -> None:
    [curve] = curves(drawn(Series("flat", (1, 1, 1, 1, 2))))
    assert len(curve) == 3


def test_piled_series_stand_on_each_other() -> None:
    high, low = curves(drawn(Series("a", (2, 2)), Series("b", (1, 1)), stacked=True))
    assert high[0][1] < low[0][1]


def test_too_many_series_are_told_and_not_drawn() -> None:
    picture = drawn(*(Series(f"s{n}", (n, n)) for n in range(15)))
    assert len(curves(picture)) == 12
    assert "and 3 more" in {it.text for it in picture.iter(f"{SVG}text")}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_the_picture_of_the_page_has_every_panel_of_today(dashboard: Dashboard) -> None:
    file = IMAGES / f"dashboard-{dashboard.name}.svg"
    assert file.stat().st_size < MOST_BYTES
    picture = ElementTree.fromstring(file.read_text())  # noqa: S314  it is our own
    titles = {it.text for it in picture.iter(f"{SVG}text") if it.get("font-weight") == "bold"}
    assert titles == {panel.title for panel in dashboard.panels} | {f"Rowlock / {dashboard.title}"}
