"""What a worker starts: its slots shared out over its loop processes, and what each is told."""

from __future__ import annotations

import dataclasses
import os
from importlib.metadata import version

import msgspec

from rowlock.engine.messages import Boot
from rowlock.settings import WorkerSettings
from rowlock.store.types import NewWorker, PoolId
from rowlock.supervisor.crew import Plan


def share(slots: int, processes: int) -> list[int]:
    """Return `slots` shared out evenly; a process without a slot is not started."""
    processes = min(slots, processes)
    return [slots // processes + (index < slots % processes) for index in range(processes)]


def make_plans(settings: WorkerSettings, pool: PoolId) -> list[Plan]:
    """Return one plan for each loop process."""
    shares = share(settings.slots, settings.processes)
    return [_plan(settings, pool, index, slots) for index, slots in enumerate(shares)]


def quarantine_plans(settings: WorkerSettings, pool: PoolId) -> list[Plan]:
    """Return one plan for each extra process of quarantine, at least one: for a lent place."""
    return [
        _alone(_plan(settings, pool, index, 1), settings)
        for index in range(max(1, settings.quarantine_processes))
    ]


def _alone(plan: Plan, settings: WorkerSettings) -> Plan:
    boot = msgspec.structs.replace(plan.boot, quarantine=True)
    label = boot.label
    return Plan(
        dataclasses.replace(
            plan.worker,
            instance=f"{settings.instance_name}/{label}",
            name=f"{settings.name}/{label}",
            quarantine=True,
        ),
        msgspec.structs.replace(boot, name=f"{settings.name}/{label}"),
    )


def _plan(settings: WorkerSettings, pool: PoolId, index: int, slots: int) -> Plan:
    name = f"{settings.name}/{index}"
    build = settings.build or version("rowlock")
    worker = NewWorker(
        pool_id=pool,
        instance=f"{settings.instance_name}/{index}",
        name=name,
        pid=os.getpid(),
        build=build,
        lease_seconds=settings.lease_seconds,
        pod_uid=settings.pod_uid or None,
        node=settings.node or None,
        cluster=settings.cluster or None,
        reserved=settings.reserved,
    )
    boot = Boot(
        database_url=settings.database_url.get_secret_value(),
        worker_id=0,
        pool_id=pool,
        index=index,
        name=name,
        slots=slots,
        lease_seconds=settings.lease_seconds,
        max_result_bytes=settings.max_result_bytes,
        log_format=settings.log_format,
        log_level=settings.log_level,
        executors=settings.executors,
        executor_max_calls=settings.executor_max_calls,
        park_seconds=settings.park_seconds,
        trace_ratio=settings.trace_ratio if settings.traces else None,
        build=build,
    )
    return Plan(worker, boot)
