"""What was resolved for one run at intake, and is stored with it: run, agent, installation.

Editing an Agent or the installation never changes a run that was accepted.
"""

from __future__ import annotations

import msgspec


class ToolRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much stricter than its code says a tool is: the word of an Agent object.

    Parameters
    ----------
    side_effects
        `none`, `idempotent` or `non_idempotent`; None for what the code says.
    always_ask
        A person must agree to each call, whatever the code says.
    """

    name: str
    side_effects: str | None = None
    always_ask: bool = False


class RunOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of one run.

    Parameters
    ----------
    active_deadline_seconds
        Seconds of running, added up over takeovers; waiting does not count.
    max_attempts
        How often the agent's own code may be started; 1 means no automatic retry.
    retry_backoff_seconds, max_retry_backoff_seconds
        Wait before the second attempt, doubled for each further one, and its upper bound.
    max_total_tokens, max_cost_micro
        Budget over all attempts; None for no limit. Cost is in millionths of a US dollar.
    approval_timeout_seconds
        How long a question to a person stays open; None for no limit.
    silence_approves
        A question that nobody answered in time counts as a yes.
    tools
        Tools that are stricter than the agent's code says; the worker refuses what is not.
    """

    active_deadline_seconds: float = 1800
    max_attempts: int = 1
    retry_backoff_seconds: float = 10
    max_retry_backoff_seconds: float = 300
    max_total_tokens: int | None = None
    max_cost_micro: int | None = None
    approval_timeout_seconds: float | None = None
    silence_approves: bool = False
    tools: tuple[ToolRule, ...] = ()

    def expires_in(self, own: float | None) -> float | None:
        """Return the seconds that a question stays open.

        The tool knows best; but where silence is a yes, nothing may make it come sooner.

        Parameters
        ----------
        own
            What the tool says; None for nothing.
        """
        given = [one for one in (own, self.approval_timeout_seconds) if one is not None]
        if not given:
            return None
        return max(given) if self.silence_approves else given[0]


def encode(options: RunOptions) -> bytes:
    """Return `options` as stored in `run.options`."""
    return msgspec.json.encode(options)


def decode(stored: bytes) -> RunOptions:
    """Return what `encode` was given."""
    return msgspec.json.decode(stored, type=RunOptions)
