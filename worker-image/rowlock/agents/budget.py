"""What a run may use up, and what it has used: by all its workers and in all its attempts.

What was used stands in the record of each step, so nothing is counted twice and little is lost:
a worker that takes a run over reads from history what was paid before,
whether or not the code asks for those steps again.
Not known is what a call used in which its worker died.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rowlock.agents import checks
from rowlock.agents.context import NO_TOKENS, Tokens
from rowlock.agents.protocol import Journal
from rowlock.errors import BudgetExceeded
from rowlock.states import EventKind

_STEPS = (EventKind.STEP_INTENT, EventKind.STEP_DONE, EventKind.STEP_FAILED)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one run may use up, over all its attempts; its resource can only make that less.

    A step that is under way is never cut short: the run fails at the next one.

    Parameters
    ----------
    max_total_tokens
        Tokens in and out together; None for no limit.
    max_cost_micro
        Millionths of a US dollar, as far as the model tells its cost; None for no limit.

    Raises
    ------
    AgentDefinitionError
        A limit is no whole number from 1 on.
    """

    max_total_tokens: int | None = None
    max_cost_micro: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits that make no sense."""
        for name, limit in (
            ("max_total_tokens", self.max_total_tokens),
            ("max_cost_micro", self.max_cost_micro),
        ):
            if limit is not None:
                checks.whole_number(limit, name, least=1, owner="Budget")


NO_BUDGET = Budget()


def checked_budget(given: Budget | None, *, owner: str) -> Budget:
    """Return the budget that a declaration names.

    Raises
    ------
    AgentDefinitionError
        It is something else.
    """
    return NO_BUDGET if given is None else checks.instance(given, Budget, "budget", owner=owner)


class _Paid(msgspec.Struct):
    """The part of a step's record that says what it used."""

    usage: Tokens = NO_TOKENS


_decode = msgspec.json.Decoder(_Paid).decode


class Spending:
    """What one run has used, held against its budget.

    Parameters
    ----------
    budget
        Of its agent; the run's own options are in the journal. The smaller one holds.

    Attributes
    ----------
    used
        By all workers and attempts.
    limited
        There is a budget.
    over
        The error that was raised.
    """

    __slots__ = ("_cost", "_journal", "_tokens", "limited", "over", "used")

    def __init__(self, journal: Journal, budget: Budget) -> None:
        self._journal, options = journal, journal.options
        self._tokens, self._cost = options.max_total_tokens, options.max_cost_micro
        if budget is not NO_BUDGET:
            self._tokens = _smaller(self._tokens, budget.max_total_tokens)
            self._cost = _smaller(self._cost, budget.max_cost_micro)
        self.limited = self._tokens is not None or self._cost is not None
        self.over: BudgetExceeded | None = None
        self.used = NO_TOKENS
        for entry in journal.recorded():
            if entry.kind in _STEPS:
                self.add(_decode(entry.body).usage)

    def add(self, used: Tokens) -> None:
        """Add what was used now."""
        if any(used):
            self.used = _sum(self.used, used)
            self._journal.count_usage(*used)

    def check(self, under_way: Tokens = NO_TOKENS) -> None:
        """Return if more may be used.

        Parameters
        ----------
        under_way
            What the step that asks has used already.

        Raises
        ------
        BudgetExceeded
            More was used than there is; whatever becomes of this error, the run fails.
        """
        tokens_in, tokens_out, cost = _sum(self.used, under_way)
        if self._tokens is not None and tokens_in + tokens_out > self._tokens:
            raise self._exceeded(
                f"used {tokens_in + tokens_out} tokens, more than its maxTotalTokens of "
                f"{self._tokens}"
            )
        if self._cost is not None and cost > self._cost:
            raise self._exceeded(
                f"cost {_dollars(cost)} US dollars, more than its maxCostMicroUSD of "
                f"{self._cost} ({_dollars(self._cost)})"
            )

    def _exceeded(self, what: str) -> BudgetExceeded:
        self.over = BudgetExceeded(f"The run {what}, before this step.")
        return self.over


def difference(used: Tokens, before: Tokens) -> Tokens:
    """Return what was used since `before`."""
    return (used[0] - before[0], used[1] - before[1], used[2] - before[2])


def _sum(one: Tokens, two: Tokens) -> Tokens:
    return (one[0] + two[0], one[1] + two[1], one[2] + two[2])


def _smaller(one: int | None, two: int | None) -> int | None:
    return min((limit for limit in (one, two) if limit is not None), default=None)


def _dollars(micro: int) -> str:
    return f"{micro / 1e6:.6f}".rstrip("0").rstrip(".")
