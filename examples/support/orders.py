"""The shop's orders and its refund policy: made up from the order's number, the same everywhere."""

from __future__ import annotations

from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from rowlock import PermanentError

_GOODS = (
    ("MUG-370-BLU", "Stoneware mug, 370 ml, harbour blue", 1490),
    ("PLT-270-WHT", "Dinner plate, 27 cm, matte white, set of two", 2790),
    ("BWL-160-GRN", "Breakfast bowl, 16 cm, reactive glaze, sea green", 1690),
    ("JUG-100-GRY", "Water jug with cork lid, one litre, slate grey", 3450),
)


class _Held(BaseModel):
    """What the shop's system holds: read and never changed, so one object serves all who ask."""

    model_config = ConfigDict(frozen=True)


class Item(_Held):
    """One line of an order."""

    sku: str
    title: str
    quantity: int
    unit_cents: int


class Customer(_Held):
    """Who ordered."""

    id: str
    name: str
    email: str
    since: str


class Shipping(_Held):
    """How the order travelled."""

    carrier: str
    tracking: str
    street: str
    city: str
    postcode: str
    country: str
    shipped_at: str
    delivered_at: str


class Totals(_Held):
    """What was paid."""

    goods_cents: int
    shipping_cents: int
    tax_cents: int
    paid_cents: int
    currency: str


class Order(_Held):
    """An order as the shop's system holds it, about 1 KB of JSON."""

    id: str
    status: str
    placed_at: str
    customer: Customer
    items: list[Item]
    shipping: Shipping
    totals: Totals
    notes: str


class RefundDecision(BaseModel):
    """What the policy allows."""

    order_id: str
    refundable: bool
    cents: int
    clause: str


def find(order_id: str) -> Order:
    """Return an order; every number of up to nine digits is one.

    Raises
    ------
    PermanentError
        There is no such order.
    """
    if not (order_id.isascii() and order_id.isdigit() and len(order_id) <= 9):
        raise PermanentError(f"There is no order {order_id!r}.")
    return _order(order_id, int(order_id))


def refund_decision(order: Order, reason: str) -> RefundDecision:
    """Return what the policy says: damaged goods are refunded with their shipping."""
    if "damage" in reason.lower():
        return RefundDecision(
            order_id=order.id,
            refundable=True,
            cents=order.totals.paid_cents,
            clause="4.2: goods that arrive damaged are refunded in full within 30 days",
        )
    return RefundDecision(
        order_id=order.id,
        refundable=False,
        cents=0,
        clause="4.1: other returns are decided by a person",
    )


@lru_cache(maxsize=4096)
def _order(order_id: str, number: int) -> Order:
    items = [
        Item(sku=sku, title=title, quantity=1 + (number + place) % 3, unit_cents=cents)
        for place, (sku, title, cents) in enumerate(_GOODS)
    ]
    return Order(
        id=order_id,
        status="delivered",
        placed_at="2026-05-04T09:12:33Z",
        customer=Customer(
            id=f"cus_{number % 9973:06d}",
            name="Marit Solberg",
            email=f"marit.{number}@example.org",
            since="2021-11-19",
        ),
        items=items,
        shipping=Shipping(
            carrier="Nordpost",
            tracking=f"NP{number:010d}NO",
            street="Strandgata 12",
            city="Bergen",
            postcode="5013",
            country="NO",
            shipped_at="2026-05-05T14:40:02Z",
            delivered_at="2026-05-07T11:05:47Z",
        ),
        totals=_totals(items),
        notes="Left with the neighbour at number 14; the outer box was dented on one side.",
    )


def _totals(items: list[Item]) -> Totals:
    goods = sum(item.quantity * item.unit_cents for item in items)
    shipping = 890
    return Totals(
        goods_cents=goods,
        shipping_cents=shipping,
        tax_cents=goods // 5,
        paid_cents=goods + shipping,
        currency="EUR",
    )
