"""What failed rests longer and longer, and nothing else waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock_operator.kube.putoff import PutOff


@dataclass
class _Clock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_rests_double_up_to_the_longest() -> None:
    clock = _Clock()
    put_off = PutOff(first=1, most=300, clock=clock)
    rests = []
    for _ in range(11):
        rests.append(put_off.failed("a"))
        clock.now += rests[-1]
    assert rests == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_what_failed_is_due_when_its_rest_is_over() -> None:
    clock = _Clock()
    put_off = PutOff(clock=clock)
    assert put_off.due("a")
    put_off.failed("a")
    assert not put_off.due("a")
    assert put_off.due("b")
    assert put_off.resting() == ["a"]
    clock.now += 1
    assert put_off.due("a")
    assert put_off.resting() == []


def test_a_success_in_between_starts_anew() -> None:
    put_off = PutOff(clock=_Clock())
    put_off.failed("a")
    put_off.failed("a")
    put_off.forget("a")
    assert put_off.due("a")
    assert put_off.failed("a") == 1


def test_a_rest_is_at_least_what_the_refuser_asks_for() -> None:
    put_off = PutOff(most=60, clock=_Clock())
    assert put_off.failed("a", at_least=20) == 20
    assert put_off.failed("b", at_least=1000) == 60


def test_what_is_gone_is_not_remembered() -> None:
    put_off = PutOff(clock=_Clock())
    for uid in "abc":
        put_off.failed(uid)
    put_off.keep(["b", "z"])
    assert len(put_off) == 1
    assert not put_off.due("b")
