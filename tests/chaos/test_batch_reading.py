"""Items are read from a server to the last one, once each, whatever breaks off meanwhile."""

from __future__ import annotations

import signal

import pytest

from rowlock_operator.kube.resources import AGENT_RUNS
from tests.batches import WITHIN, BatchStage, batches_fixture, line  # noqa: F401
from tests.file_server import File, serving
from tests.operators import access, eventually, stage_fixture, states  # noqa: F401

pytestmark = pytest.mark.cluster

#: So long that a few dozen of them make a chunk, and each other than the others.
TEXT = "x" * 60_000


async def test_each_line_of_a_uri_is_run_once(batches: BatchStage) -> None:
    stage = batches.stage
    lines = [line(n, f"ok-{n} {TEXT}") for n in range(1, 201)]
    # The first request begins, the second breaks off, the third waits until its reader is dead.
    file = File("\n".join(lines).encode(), cuts={2}, holds={3})
    await batches.basics()
    operator = await batches.operator()
    first = batches.worker()
    with serving(file) as uri:
        await batches.batch("far", itemsFrom={"uri": f"{uri}?signature=hidden"})

        async def third() -> bool:
            return len(file.asked) >= 3

        await eventually(third, f"the third request{stage._said()}", WITHIN)
        status = await batches.shows("far", phase="Pending")
        assert states(status)["Accepted"] == "Unknown/ReadingItems"
        assert 0 < status["total"] < 200
        assert batches.starts() == {}
        reader = await stage.sql.fetchrow("SELECT * FROM rowlock.run_lease")
        assert reader is not None, "no worker holds the reader"
        first.signal_group(signal.SIGKILL)
        operator.kill()
        file.go_on.set()
        batches.worker()
        await batches.operator()
        status = await batches.ends("far", phase="Succeeded", total=200, succeeded=200)
    assert batches.starts() == {f"ok-{n}": 1 for n in range(1, 201)}
    # It went on where it had been, and began again only what was not recorded.
    assert file.asked[0] == 0
    assert 0 not in file.asked[1:]
    assert file.asked == sorted(file.asked)
    assert await stage.count("rowlock.run") == 201
    assert await stage.objects(AGENT_RUNS) == []
    said = operator.log + "".join(worker.log for worker in batches.workers)
    assert "hidden" not in said + str(status)
    await stage.healthy()
