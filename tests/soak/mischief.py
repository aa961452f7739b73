"""What goes wrong during a soak, chosen by a seeded chance."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable

import asyncpg

from rowlock.embedded import EmbeddedPostgres
from tests.soak.fleet import Fleet, children, send
from tests.soak.traffic import Traffic

#: How often each is chosen, of all.
WEIGHTS = {
    "kill a loop": 14,
    "kill a supervisor": 7,
    "kill a worker": 7,
    "kill an executor": 12,
    "stop a loop": 10,
    "stop a worker": 8,
    "roll a worker out": 12,
    "tell a worker twice to leave": 3,
    "end sessions": 8,
    "cancel runs": 14,
    "suspend runs": 8,
    "continue runs": 10,
    "restart PostgreSQL": 3,
    "crash PostgreSQL": 3,
}


class Mischief:
    """Does one bad thing after the other.

    Attributes
    ----------
    done
        How often each was done.
    """

    def __init__(
        self, chance: random.Random, server: EmbeddedPostgres, fleet: Fleet, traffic: Traffic
    ) -> None:
        self._chance = chance
        self._server = server
        self._fleet = fleet
        self._traffic = traffic
        self._later: set[asyncio.Task[None]] = set()
        self.done: Counter[str] = Counter()
        self._deeds: dict[str, Callable[[], Awaitable[bool]]] = {
            "kill a loop": self._kill_loop,
            "kill a supervisor": self._behead,
            "kill a worker": self._kill_worker,
            "kill an executor": self._kill_executor,
            "stop a loop": self._stop_loop,
            "stop a worker": self._stop_worker,
            "roll a worker out": self._roll,
            "tell a worker twice to leave": self._tell_twice,
            "end sessions": self._end_sessions,
            "cancel runs": self._cancel,
            "suspend runs": self._suspend,
            "continue runs": self._continue,
            "restart PostgreSQL": self._restart,
            "crash PostgreSQL": self._crash,
        }

    def pause(self) -> float:
        """Return the seconds until the next bad thing; some follow each other at once."""
        return min(5.0, self._chance.expovariate(1 / 0.9))

    async def one(self) -> str:
        """Do one bad thing, and return what was done."""
        [what] = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if await self._deeds[what]():
            self.done[what] += 1
        return what

    async def end(self) -> None:
        """Let everybody who is stopped go on."""
        await asyncio.gather(*self._later)

    def _place(self) -> int:
        return self._chance.randrange(len(self._fleet.workers))

    async def _kill_loop(self) -> bool:
        return self._one_of(self._fleet.loops(), signal.SIGKILL)

    async def _kill_executor(self) -> bool:
        return self._one_of(self._fleet.executors(), signal.SIGKILL)

    def _one_of(self, pids: list[int], number: signal.Signals) -> bool:
        return bool(pids) and send(self._chance.choice(pids), number)

    async def _behead(self) -> bool:
        self._fleet.behead(self._place())
        return True

    async def _kill_worker(self) -> bool:
        self._fleet.kill(self._place())
        return True

    async def _stop_loop(self) -> bool:
        """Below the stall ceiling of 3 s as often as above it."""
        loops = self._fleet.loops()
        if not loops:
            return False
        loop = self._chance.choice(loops)
        send(loop, signal.SIGSTOP)
        self._afterwards(self._chance.uniform(0.2, 6.0), lambda: send(loop, signal.SIGCONT))
        return True

    async def _stop_worker(self) -> bool:
        """Below the lease of 3 s and above it: then it wakes up and finds itself fenced."""
        worker = self._fleet.workers[self._place()]
        pids = [worker.pid, *children(worker.pid)]
        for pid in pids:
            send(pid, signal.SIGSTOP)

        def go_on() -> None:
            for pid in reversed(pids):
                send(pid, signal.SIGCONT)

        self._afterwards(self._chance.uniform(0.5, 7.0), go_on)
        return True

    def _afterwards(self, seconds: float, do: Callable[[], object]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            do()

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _roll(self) -> bool:
        self._fleet.dismiss(self._place())
        return True

    async def _tell_twice(self) -> bool:
        old = self._fleet.dismiss(self._place())
        self._afterwards(self._chance.uniform(0.1, 2.0), lambda: send(old.pid, signal.SIGTERM))
        return True

    async def _end_sessions(self) -> bool:
        """A share of all of them, whatever they are doing."""
        raw = await asyncpg.connect(self._server.url())
        await raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'rowlock%' AND random() < $1",
            self._chance.uniform(0.1, 0.6),
        )
        await raw.close()
        return True

    async def _cancel(self) -> bool:
        return bool(await self._traffic.cancel_some(20))

    async def _suspend(self) -> bool:
        return bool(await self._traffic.suspend_some(20))

    async def _continue(self) -> bool:
        return bool(await self._traffic.continue_some(30))

    async def _restart(self) -> bool:
        self._server.restart(signal.SIGINT)
        return True

    async def _crash(self) -> bool:
        self._server.restart(signal.SIGKILL)
        return True
