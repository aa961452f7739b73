"""What bounds a run, settable on the run and as an Agent's default.

None of these has a default in the schema: a value left out on the run is taken from its Agent,
then from the installation, when the run is accepted; a schema default would hide both.
"""

from __future__ import annotations

from pydantic import Field

from .fields import INT32_MAX, Int32, Int64
from .model import Part
from .references import LocalReference


class Budget(Part):
    """What a run may use up, over all its attempts."""

    max_total_tokens: Int64 | None = Field(default=None, ge=1)
    """Tokens in and out together, as the model provider counts them."""

    max_cost_micro_usd: Int64 | None = Field(default=None, ge=1)
    """Cost in millionths of a US dollar: 2500000 is 2.50 dollars."""


class RunLimits(Part):
    """The part of a run's spec that its Agent can give defaults for."""

    worker_pool_ref: LocalReference | None = None
    """WorkerPool whose workers may claim the run; it may be created later, the run waits."""

    queue_deadline_seconds: Int32 | None = Field(default=None, ge=1, le=2_592_000)
    """Seconds that the run may wait for its first worker, then it fails: QueueDeadlineExceeded."""

    active_deadline_seconds: Int32 | None = Field(default=None, ge=1, le=604_800)
    """Seconds of work, summed over takeovers, then the run fails: ActiveDeadlineExceeded.

    The clock stands still while the run is queued, suspended or waits for an approval.
    """

    max_attempts: Int32 | None = Field(default=None, ge=1, le=20)
    """How often the agent's code may be started; 1 means that its own error ends the run.

    The loss of a worker is no attempt: see maxTakeovers.
    """

    max_takeovers: Int32 | None = Field(default=None, ge=0, le=100)
    """How many losses of a worker may be put down to the run, then TakeoverLimitReached.

    A loss that another run caused does not count, nor does a hand-over from a draining worker.
    """

    retry_backoff_seconds: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """Seconds before the second attempt; doubled for each further one."""

    max_retry_backoff_seconds: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """Upper bound of the doubled wait between attempts, in seconds."""

    budget: Budget | None = None
    """What the run may use up; beyond it, it fails at its next step: BudgetExceeded."""

    ttl_seconds_after_finished: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """Seconds after the end until the object is deleted; its history in the database stays."""
