"""The store in PostgreSQL as one object: the functions of `rowlock.store`, bound to a connection.

Who needs one or two statements calls the functions; this is for who takes either store.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from rowlock.store import (
    approvals,
    caps,
    changes,
    intake,
    parking,
    queue,
    work,
    workers,
)
from rowlock.store import redrive as redriving
from rowlock.store.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")

_Call = Callable[Concatenate[Connection, P], Coroutine[Any, Any, R]]
_Method = Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, R]]


def _bound(call: _Call[P, R]) -> _Method[P, R]:
    """Return `call` as a method that passes its store's connection."""

    @wraps(call)
    def method(self: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return call(self.connection, *args, **kwargs)

    return method


class PostgresStore:
    """`rowlock.store.contract.Store` on one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    ensure_pool = _bound(intake.ensure_pool)
    ensure_agent = _bound(intake.ensure_agent)
    enqueue = _bound(intake.enqueue)
    request_cancel = _bound(intake.request_cancel)

    cancel_waiting = _bound(queue.cancel_waiting)
    expire_queued = _bound(queue.expire_queued)
    wake_due = _bound(queue.wake_due)
    alone_waiting = _bound(queue.alone_waiting)
    set_caps = _bound(caps.set_caps)
    promote = _bound(caps.promote)
    promote_waiting = _bound(caps.promote_waiting)

    claim = _bound(work.claim)
    claim_alone = _bound(work.claim_alone)
    adopt = _bound(work.adopt)
    bodies = _bound(work.bodies)
    history = _bound(work.history)
    revision = _bound(work.revision)
    append = _bound(work.append)
    finish = _bound(work.finish)
    release = _bound(work.release)

    park = _bound(parking.park)
    wake_parked = _bound(parking.wake_parked)
    request_suspend = _bound(parking.request_suspend)
    suspend_waiting = _bound(parking.suspend_waiting)
    request_continue = _bound(parking.request_continue)
    decide = _bound(approvals.decide)
    expire_approvals = _bound(approvals.expire_approvals)
    pending_approvals = _bound(approvals.pending_approvals)
    answers = _bound(approvals.answers)
    redrive = _bound(redriving.redrive)
    redrive_once = _bound(redriving.redrive_once)

    register = _bound(workers.register)
    beat = _bound(workers.beat)
    wishes = _bound(workers.wishes)
    fence = _bound(workers.fence)
    fence_instance = _bound(workers.fence_instance)
    fence_pods = _bound(workers.fence_pods)
    leave = _bound(workers.leave)
    reap = _bound(workers.reap)

    unshown = _bound(changes.unshown)
    shown = _bound(changes.shown)
    snapshots = _bound(changes.snapshots)
    pool_demand = _bound(changes.pool_demand)
