"""A source of objects, one of whose tasks is killed when the first AgentRun is seen.

    python -m tests.lame_source KUBECONFIG NAMESPACE TASK

It prints its health as JSON lines, and ends when the source does.
In a process of its own: what a killed task of kopf leaves open must not trouble other tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rowlock_operator.intake.kopf_source import KopfSource
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.kubeconfig import load


async def main(kubeconfig: str, namespace: str, victim: str) -> None:
    """Watch, kill, and tell."""
    source = KopfSource(load([Path(kubeconfig)]), namespaces=[namespace])

    def kill(_: Seen) -> None:
        next(it for it in asyncio.all_tasks() if it.get_name().startswith(victim)).cancel()

    source.start(kill)
    ended = asyncio.create_task(source.ended())
    while not ended.done():
        health = source.health()
        print(json.dumps({**asdict(health), "alive": health.alive}), flush=True)  # noqa: T201
        await asyncio.wait({ended}, timeout=0.2)
    health = source.health()
    print(json.dumps({**asdict(health), "alive": health.alive}), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
