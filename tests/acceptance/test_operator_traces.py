"""A run that has ended is one trace, from its acceptance to its end, whoever worked on it."""

from __future__ import annotations

import pytest

from rowlock import traces
from rowlock.states import FinalStatus
from tests.collectors import attributes, collecting
from tests.operators import Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = pytest.mark.cluster


async def test_a_taken_over_run_is_one_trace_with_both_workers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead worker's time is in it, though it had no chance to send anything."""
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        await stage.basics()
        operator = await stage.operator(traces="true")
        await stage.run("traced")
        first, second = await stage.worker("worker-a"), await stage.worker("worker-b")
        run = await first.claim_one()
        await first.step(run, key="look-up")
        await first.die()
        taken = await second.claim_one()
        await second.go_on(taken, steps=1)
        await second.step(taken, key="refund")
        await second.finish(
            taken, status=FinalStatus.FAILED, reason="AgentError", message="no such order"
        )
        await stage.shows("traced", phase="Failed")
        await eventually(lambda: _sent(collector.spans), "a trace")

        names = sorted(span.name.partition(":")[0] for span in collector.spans)
        assert names == [
            "lease 1", "lease 2", "queue", "run support", "step look-up", "step refund",
        ]  # fmt: skip
        assert collector.services == {"rowlock"}
        ids = {int.from_bytes(span.trace_id) for span in collector.spans}
        assert ids == {traces.trace_id(run.run_id)}
        root = collector.named("run support")
        assert root.parent_span_id == b""
        assert root.status.message == "AgentError: no such order"
        assert [event.name for event in root.events] == ["taken over"]
        told = attributes(root)
        assert (told["rowlock.agentrun.name"], told["rowlock.takeovers"]) == ("traced", 1)
        for epoch, worker in ((1, "worker-a"), (2, "worker-b")):
            lease = collector.named(f"lease {epoch}")
            assert lease.parent_span_id == root.span_id
            assert attributes(lease)["rowlock.worker"] == worker
            [step] = [s for s in collector.spans if s.parent_span_id == lease.span_id]
            assert step.name.startswith("step ")
            assert root.start_time_unix_nano <= lease.start_time_unix_nano
            assert lease.end_time_unix_nano <= root.end_time_unix_nano
        assert await operator.metric("traces_total", outcome="sent") == 1


async def test_a_collector_that_refuses_holds_nothing_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting() as collector:
        collector.refuse = 400
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        await stage.basics()
        operator = await stage.operator(traces="true")
        worker = await stage.worker("worker-a")
        for name in ("one", "two"):
            await stage.run(name)
            await worker.finish(await worker.claim_one())
            await stage.shows(name, phase="Succeeded")

        async def counted() -> bool:
            return await operator.metric("traces_total", outcome="failed") == 2

        await eventually(counted, "two traces that failed")
        assert await operator.stop() == 0


async def _sent(spans: list[object]) -> bool:
    return bool(spans)
