"""What happens in the demo, in order, and the verdict at its end.

The worker is killed by SIGKILL at the worst moment there is: the payment provider has made the
refund, and the worker has not recorded that yet.
The two other runs have finished by then, so that the one that is taken over is easy to follow.
Whoever takes the run over must make the call again, with the same call id, and the provider must
answer with the refund that it has made already.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.stage import MANIFESTS, DemoError, Stage

_VICTIM_ORDER = "1002"


@dataclass(frozen=True)
class Verdict:
    """What the demo must have reached."""

    succeeded: int
    takeovers: int
    refunds: int
    orders: int
    seconds: float

    @property
    def good(self) -> bool:
        """Three runs succeeded, one takeover, one refund for each order."""
        return (self.succeeded, self.takeovers, self.refunds, self.orders) == (3, 1, 3, 3)

    def __str__(self) -> str:
        takeovers = f"{self.takeovers} takeover" + ("" if self.takeovers == 1 else "s")
        return (
            f"demo: {self.succeeded} succeeded, {takeovers}, "
            f"{self.refunds} refunds for {self.orders} orders, {self.seconds:.1f} s"
        )


def play(here: Stage, say: Callable[[str], None], began: float) -> Verdict:
    """Apply, kill, wait and show.

    Parameters
    ----------
    began
        Monotonic time in seconds at which the demo was started.

    Raises
    ------
    DemoError
        Something did not happen in its time.
    """
    here.hold.write_text(_VICTIM_ORDER)
    say("$ kubectl apply -f examples/support/")
    print(here.cluster.kubectl("apply", "-f", str(MANIFESTS)).stdout.rstrip())
    _kill_the_holder(here, say)
    say("$ kubectl wait --for=condition=Finished agentruns --all")
    here.cluster.kubectl("wait", "--for=condition=Finished", "agentruns", "--all", "--timeout=60s")
    here.wait_for("the takeover's event", lambda: "RunTakenOver" in _events(here), seconds=5)
    _show(here, say)
    return _verdict(here, time.monotonic() - began)


def _kill_the_holder(here: Stage, say: Callable[[str], None]) -> None:
    held = Path(f"{here.hold}.held")
    here.wait_for(f"the refund of order {_VICTIM_ORDER}", held.exists)
    others = [f"agentrun/{run}" for run in _names(here) if run != f"refund-{_VICTIM_ORDER}"]
    here.cluster.kubectl("wait", "--for=condition=Finished", *others, "--timeout=30s")
    holder = json.loads(held.read_text())
    say(f"order {_VICTIM_ORDER} is refunded, and that is not recorded: kill -9 {holder['pid']}")
    os.kill(holder["pid"], signal.SIGKILL)
    here.hold.unlink()


def _show(here: Stage, say: Callable[[str], None]) -> None:
    say("$ kubectl get agentruns -o wide")
    print(here.cluster.kubectl("get", "agentruns", "-o", "wide").stdout.rstrip())
    for run in _runs(here):
        resumed = _condition(run, "Resumed")
        if resumed["status"] == "True":
            say(f"condition Resumed of {run['metadata']['name']}")
            print(f"{resumed['reason']}: {resumed['message']}")
    say("$ kubectl get events")
    print(_events(here).rstrip())
    say("refunds at the payment provider")
    print(here.ledger.read_text().rstrip())


def _events(here: Stage) -> str:
    columns = "TYPE:.type,REASON:.reason,RUN:.regarding.name,NOTE:.note"
    return here.cluster.kubectl(
        "get", "events.events.k8s.io", "--sort-by=.eventTime", "-o", f"custom-columns={columns}"
    ).stdout


def _names(here: Stage) -> list[str]:
    return [run["metadata"]["name"] for run in _runs(here)]


def _runs(here: Stage) -> list[dict[str, Any]]:
    answer = here.cluster.kubectl("get", "agentruns", "-o", "json").stdout
    items: list[dict[str, Any]] = json.loads(answer)["items"]
    return items


def _condition(run: dict[str, Any], kind: str) -> dict[str, Any]:
    for condition in run["status"]["conditions"]:
        if condition["type"] == kind:
            found: dict[str, Any] = condition
            return found
    raise DemoError(f"{run['metadata']['name']} has no condition {kind}")


def _verdict(here: Stage, seconds: float) -> Verdict:
    runs = _runs(here)
    refunds = [json.loads(line) for line in here.ledger.read_text().splitlines()]
    return Verdict(
        succeeded=sum(_condition(run, "Succeeded")["status"] == "True" for run in runs),
        takeovers=sum(run["status"]["takeovers"] for run in runs),
        refunds=len(refunds),
        orders=len({refund["order_id"] for refund in refunds}),
        seconds=seconds,
    )


def how_to_look_around(here: Stage) -> str:
    """Return what to type while the demo is left running."""
    kubectl = f"{here.cluster.access.kubectl} --kubeconfig {here.cluster.kubeconfig}"
    return f"""\
Everything is left running. In another terminal:

  alias k='{kubectl}'
  k get agentruns -w
  k describe agentrun refund-{_VICTIM_ORDER}
  k apply -f examples/support/runs.yaml        # after: k delete agentruns --all
  psql '{here.database}' -c 'TABLE rowlock.pool_demand'
  tail -f {here.folder}/*.log

Ctrl-C ends it and removes everything."""
