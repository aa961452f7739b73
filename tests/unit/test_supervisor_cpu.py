"""How full the CPU of a worker is, as its control group counts it."""

from __future__ import annotations

import os
from pathlib import Path

from rowlock.supervisor.cpu import CpuMeter, read_usage


def group(folder: Path, seconds: float, limit: str | None = "150000 100000") -> Path:
    text = f"usage_usec {int(seconds * 1e6)}\nuser_usec 1\nsystem_usec 1\n"
    (folder / "cpu.stat").write_text(text)
    if limit is not None:
        (folder / "cpu.max").write_text(limit + "\n")
    return folder


def test_the_share_of_the_limit_is_measured(tmp_path: Path) -> None:
    meter = CpuMeter(group(tmp_path, 10.0, "100000 100000"))
    assert meter.percent(100.0) == 0
    group(tmp_path, 12.5, "100000 100000")
    assert meter.percent(105.0) == 50
    assert meter.percent(105.5) == 50, "too short a time says nothing new"
    group(tmp_path, 99.0, "100000 100000")
    assert meter.percent(110.0) == 100


def test_without_a_limit_the_machine_is_the_limit(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    for limit in (None, "max 100000", f"{(cores + 5) * 100000} 100000"):
        found = read_usage(group(tmp_path, 3.0, limit))
        assert found is not None
        assert (found.seconds, found.cores) == (3.0, cores)


def test_where_nobody_counts_there_is_room(tmp_path: Path) -> None:
    assert CpuMeter(tmp_path).percent(1.0) == 0
    (tmp_path / "cpu.stat").write_text("nonsense\n")
    assert read_usage(tmp_path) is None
