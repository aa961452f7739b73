"""An `async def` that blocks is found while it does, and its author told where."""

from __future__ import annotations

from tests.workers import Bench, bench_fixture  # noqa: F401


async def test_a_step_that_holds_the_loop_is_named(bench: Bench) -> None:
    """With its run and its line; the run is not harmed."""
    worker = bench.worker()
    [run] = await bench.enqueue("hog")

    warning = await worker.says("A step holds the event loop")
    bench.open_gate("hog")

    assert str(run) in warning
    assert "block#" in warning
    assert "agents_for_tests.py:" in warning
    assert "hog.<locals>.block" in warning
    assert (await bench.final(run))["takeovers"] == 0
    await bench.healthy()
