"""What the model says: a script that follows the conversation, at the pace of `SUPPORT_MODEL_PACE`.

| pace | a run waits |
|---|---|
| `instant` (default) | not at all |
| `demo` | about 1 s |
| `hosted` | 5.15 s, as with a hosted model |

A hosted model takes 600 ms to a turn's first token, then says 60 tokens a second.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from rowlock import AgentDefinitionError, ModelRequest, ModelTurn, Usage
from rowlock.testing import ScriptedModel, tool_call

#: Pace -> seconds to a turn's first token, tokens per second after it.
_PACES = {"instant": (0.0, None), "demo": (0.1, 275.0), "hosted": (0.6, 60.0)}


def scripted_model() -> ScriptedModel:
    """Return the model, at the pace that the environment asks for."""
    pace = os.environ.get("SUPPORT_MODEL_PACE", "instant")
    if pace not in _PACES:
        raise AgentDefinitionError(
            f"SUPPORT_MODEL_PACE={pace!r} is not one of {', '.join(_PACES)}."
        )
    first_token, per_second = _PACES[pace]
    return ScriptedModel(
        (_look_up, _check_policy, _refund, _conclude),
        name=f"support-script-{pace}",
        first_token_seconds=first_token,
        tokens_per_second=per_second,
    )


def _look_up(request: ModelRequest) -> ModelTurn:
    ticket = msgspec.json.decode(request.message(1)["content"])
    return _calling("lookup_order", Usage(590, 30), order_id=ticket["order_id"])


def _check_policy(request: ModelRequest) -> ModelTurn:
    order = _last_result(request)
    if "id" not in order:
        return _answer(request, "I cannot find that order. Could you check its number?")
    return _calling("check_refund_policy", Usage(960, 35), order_id=order["id"], reason="damaged")


def _refund(request: ModelRequest) -> ModelTurn:
    decision = _last_result(request)
    if not decision.get("refundable"):
        return _answer(request, "A colleague will look at your case and write to you today.")
    text = "I am sorry that your order arrived damaged. Our policy covers this, I refund it now."
    return _calling(
        "issue_refund",
        Usage(1040, 45),
        text=text,
        order_id=decision["order_id"],
        cents=decision["cents"],
    )


def _conclude(request: ModelRequest) -> ModelTurn:
    refund = _last_result(request)
    if "id" not in refund:
        return _answer(
            request, "The refund did not go through; a colleague will write to you today."
        )
    text = (
        f"I have refunded {refund['cents'] / 100:.2f} EUR for order {refund['order_id']}. "
        "It reaches your account within five working days; you need not send anything back."
    )
    return _answer(request, text, refund_id=refund["id"], refunded_cents=refund["cents"])


def _calling(tool: str, usage: Usage, *, text: str = "", **arguments: Any) -> ModelTurn:
    return ModelTurn(text, (tool_call(tool, **arguments),), usage)


def _answer(request: ModelRequest, text: str, **refund: Any) -> ModelTurn:
    ticket = msgspec.json.decode(request.message(1)["content"])
    answer = {"order_id": ticket["order_id"], "text": text, **refund}
    return ModelTurn(msgspec.json.encode(answer).decode(), usage=Usage(1130, 55))


def _last_result(request: ModelRequest) -> dict[str, Any]:
    """Return what the last tool answered; a sentence counts as no result."""
    try:
        result = msgspec.json.decode(request.message(-1)["content"])
    except msgspec.DecodeError:
        return {}
    return result if isinstance(result, dict) else {}
