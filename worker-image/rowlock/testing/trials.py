"""The trials of one test: begun with a call, told when the test fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rowlock.testing.trial import Life, Trial

if TYPE_CHECKING:
    from rowlock.agents.protocol import Agent
    from rowlock.options import RunOptions


@dataclass(slots=True)
class Trials:
    """Begins trials with `await trials(agent, value)`, and keeps them; the fixture `trial`.

    Attributes
    ----------
    begun
        All trials of the test, in their order.
    """

    begun: list[Trial] = field(default_factory=list)

    async def __call__(
        self,
        agent: Agent,
        value: Any = None,
        *,
        options: RunOptions | None = None,
        max_takeovers: int = 5,
        linked: bool = False,
    ) -> Trial:
        """Return a trial whose run waits in the queue; see `Trial.begin`."""
        trial = await Trial.begin(
            agent, value, options=options, max_takeovers=max_takeovers, linked=linked
        )
        self.begun.append(trial)
        return trial

    def story(self) -> str:
        """Return what became of all trials, for a person who looks at a failed test."""
        return "\n".join(line for trial in self.begun for line in _told(trial))


def _told(trial: Trial) -> list[str]:
    number = trial.takeovers
    takeovers = f", {number} takeover{'s' * (number != 1)}" if number else ""
    return [
        f"{trial.agent.name}: {_stand(trial)}{takeovers}",
        *(f"  {_life(life)}" for life in trial.lives),
        f"  finished steps: {', '.join(trial.steps) or 'none'}",
    ]


def _stand(trial: Trial) -> str:
    final = trial.final
    if final is None:
        return "not over"
    why = ": ".join(part for part in (final.reason, final.message) if part)
    return f"{final.status.name.lower()}{f' ({why})' if why else ''}"


def _life(life: Life) -> str:
    began = f"{life.worker} began {', '.join(life.begun) or 'no step'}"
    at = life.crashed_at
    if at is None:
        return began
    return f"{began}, and died at {at.point}{f' of {at.step}' if at.point.of_step else ''}"
