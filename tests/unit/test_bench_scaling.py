"""The simulator of scaling loses no run, repeats itself, and lets the operator's policy decide."""

from __future__ import annotations

import pytest

from bench._scalers import Backlog, Ours
from bench._shapes import Job, Shape, shapes
from bench._simulation import Simulation, Verdict
from rowlock_operator.pools.scaling import Policy, Standing

POLICY = Policy(least=0, most=30, slots=10)


def few(count: int, *, work: int = 60, every: int = 2, **world: object) -> Shape:
    jobs = tuple(Job(number * every, (work,)) for number in range(count))
    return Shape("few", "", count * every, jobs, **world)  # type: ignore[arg-type]


def ours(shape: Shape) -> Verdict:
    return Simulation(shape, Ours(POLICY), slots=10).run()


def backlog(shape: Shape) -> Verdict:
    return Simulation(shape, Backlog(POLICY, with_running=False), slots=10).run()


@pytest.mark.parametrize("shape", [few(300), few(200, every=0), few(300, lost=(100, 500))])
def test_every_run_ends_under_every_policy_and_again_so(shape: Shape) -> None:
    for simulate in (ours, backlog):
        found = simulate(shape)
        assert found.finished == len(shape.jobs)
        assert simulate(shape) == found


def test_a_run_takes_its_work_and_its_waits() -> None:
    [job] = few(1, work=100).jobs
    found = ours(Shape("one", "", 1, (Job(job.at, (100, 1000, 50)),)))
    assert found.finished == 1
    # A start of 20 s, 100 s of work, the wait, 50 s of work; the idle worker is still there.
    assert 20 + 100 + 1000 + 50 <= found.seconds <= 20 + 100 + 1000 + 50 + 40


def test_a_constant_load_is_served_without_a_turn() -> None:
    found = ours(few(2000))
    assert (found.turns, found.wait_p95) == (0, 0)
    # 30 runs at once need 4 workers of 7.5.
    assert found.most_workers in (4, 5)


def test_the_backlog_alone_takes_workers_from_running_runs() -> None:
    [long_runs] = [shape for shape in shapes() if shape.name == "approvals"]
    assert backlog(long_runs).handed_over > 10 * ours(long_runs).handed_over > 0


def test_a_lost_signal_changes_nothing_for_us() -> None:
    assert ours(few(2000, lost=(1000, 3000))).wait_p95 == 0
    assert backlog(few(2000, lost=(1000, 3000))).wait_p95 > 100


def test_a_full_model_is_not_met_with_more_workers() -> None:
    shape = few(2000, every=1, ceiling=40)
    assert ours(shape).worker_minutes < backlog(shape).worker_minutes / 2


def test_an_autoscaler_of_kubernetes_leaves_small_differences_alone() -> None:
    scaler = Backlog(POLICY, with_running=True)
    assert scaler.decide(0, Standing(0, 0), None) == 0
    assert scaler.name != Backlog(POLICY, with_running=False).name


def test_every_shape_has_runs_and_a_name_of_its_own() -> None:
    found = shapes()
    assert len({shape.name for shape in found}) == len(found)
    assert all(shape.jobs for shape in found)
    assert all(job.at < shape.seconds for shape in found for job in shape.jobs)


@pytest.mark.parametrize(("name", "runs"), [("code", 8819), ("conversation", 19366)])
def test_a_recorded_load_is_there_as_a_whole_and_in_order(name: str, runs: int) -> None:
    [shape] = [shape for shape in shapes() if shape.name == name]
    assert len(shape.jobs) == runs
    assert [job.at for job in shape.jobs] == sorted(job.at for job in shape.jobs)
