"""Every query of every dashboard, asked of a real Prometheus with data."""

from __future__ import annotations

import os
import time

import pytest

from charts.dashboards.__main__ import DASHBOARDS
from charts.dashboards.model import Panel
from tests.dashboards.pictures import filled, write
from tests.dashboards.scene import Scene, load, on_stage, play
from tests.operators import Stage, access, stage_fixture  # noqa: F401
from tests.prometheus import MISSING, NEEDED, Refused

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(420),
    pytest.mark.skipif(MISSING, reason=NEEDED),
]

#: Draw the pictures of the reference page too, of runs that go on for so long.
SECONDS_OF_PICTURES = 150 if os.environ.get("WRITE_PICTURES") else 0

#: Series that nothing here brings about, with the reason.
MAY_BE_EMPTY: dict[str, str] = {}


async def empty(scene: Scene, panel: Panel, *, pool: str = ".*") -> list[str]:
    """Return the queries of a panel that have no series."""
    queries = [filled(query.expr, pool=pool) for query in panel.queries]
    return [query for query in queries if not await scene.prometheus.now(query)]


async def test_every_query_finds_something(stage: Stage) -> None:
    began = time.time()
    async with on_stage(stage) as scene:
        await load(scene, SECONDS_OF_PICTURES / 3)
        await play(scene)
        without = {
            f"{dashboard.name}: {panel.title}": found
            for dashboard in DASHBOARDS
            for panel in dashboard.panels
            if (found := await empty(scene, panel))
        }
        assert set(without) == set(MAY_BE_EMPTY), without
        await the_variables_choose(scene)
        if SECONDS_OF_PICTURES:
            await load(scene, SECONDS_OF_PICTURES * 2 / 3)
            for dashboard in DASHBOARDS:
                await write(scene.prometheus, dashboard, start=began, end=time.time())


async def the_variables_choose(scene: Scene) -> None:
    """Another pool shows nothing of this one; what is of the release stays."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            of_pool = [query for query in panel.queries if "$pool" in query.expr]
            found = await empty(scene, panel, pool="another")
            assert len(found) == len(of_pool), (dashboard.name, panel.title)
    with pytest.raises(Refused, match="parse error"):
        await scene.prometheus.now("sum(")
