"""A small durable function: work out an invoice and send it, once."""

from __future__ import annotations

from pydantic import BaseModel, Field

from rowlock import Run, agent, tool

from . import outbox


class Invoice(BaseModel):
    """What a run is given."""

    number: int = Field(ge=1)
    customer: str
    hours: int = Field(ge=0)


class Sent(BaseModel):
    """What a run returns."""

    number: int
    cents: int


def price(hours: int) -> int:
    """Return what so many hours cost, in cents; plain computing needs no step."""
    return hours * 9_500 if hours < 40 else hours * 8_900


@tool(side_effects="idempotent")
async def send(run: Run, invoice: Invoice, cents: int) -> None:
    """Send an invoice by mail; the call's id makes sure that it leaves once."""
    if invoice.hours == 0:
        raise outbox.NothingToBill(f"invoice {invoice.number} has no hours")
    await outbox.send(invoice.number, invoice.customer, cents, idempotency_key=run.call_id)


@agent(name="invoice")
async def invoice(run: Run, task: Invoice) -> Sent:
    """Send one invoice."""
    cents = price(task.hours)
    await run.step("send", send, task, cents, key=task.number)
    return Sent(number=task.number, cents=cents)
