"""The support agent of `examples/support` with a payment provider that costs next to nothing.

The example's ledger flushes the disk for every refund, which would measure the disk.
Here each refund is one line appended by one system call: lines of many processes never mix,
and a second refund of the same call would still show as a second line.
"""

from __future__ import annotations

import hashlib
import os
from typing import Annotated

from pydantic import Field
from support.agent import INSTRUCTIONS, Answer, Ticket, check_refund_policy, lookup_order
from support.payments import Refund
from support.script import scripted_model

from rowlock import ChatAgent, Run, tool

_ledger = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@tool(side_effects="idempotent")
async def issue_refund(run: Run, order_id: str, cents: Annotated[int, Field(gt=0)]) -> Refund:
    """Give money back to the customer."""
    os.write(_ledger, f"{run.call_id}\n".encode())
    refund_id = hashlib.blake2b(run.call_id.encode(), digest_size=8).hexdigest()
    return Refund(id=f"re_{refund_id}", order_id=order_id, cents=cents)


agent = ChatAgent(
    name="support",
    model=scripted_model(),
    instructions=INSTRUCTIONS,
    tools=[lookup_order, check_refund_policy, issue_refund],
    input=Ticket,
    output=Answer,
)
