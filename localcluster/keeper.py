"""Own the processes of one cluster, and end them when their owner is gone.

Every cluster has one keeper, a process of its own with a single thread:

- It starts the components, so that their death signal (see `_child`) hangs on a thread that
  lives as long as the keeper, not on whatever thread of a test called `start`.
- It watches its owner through a pidfd.
  A pipe alone would not do: a process that the owner forked may hold the other end open.
- It lives in a session of its own, so Ctrl-C reaches the owner and not the components.

If the owner ends in whatever way, the keeper kills the components and removes the folder.
If the keeper itself is killed, the kernel kills the components.
After `detach` it has no owner, and ends at SIGTERM only.

Requests and replies are one JSON object a line, on standard input and output::

    {"do": "start", "name": "etcd", "argv": [...], "log": "/…/etcd.log"} → {"pid": 17}
    {"do": "stop", "name": "etcd"}                                       → {}
    {"do": "poll"}                    → {"components": {"etcd": {"pid": 17, "exit": null}}}
    {"do": "at end", "argv": [...]}                                      → {}
    {"do": "detach"}                                                     → {}
    {"do": "end"}                                                        → {}, and it ends

A request that fails is answered with ``{"error": "…"}``.
It runs as a plain script without site packages, so it must import nothing of this package.
Components are killed, not asked: their data is thrown away, and etcd or an API server asked
politely takes seconds over it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_CHILD = Path(__file__).with_name("_child.py")


class Keeper:
    """The components of one cluster and the loop that serves requests about them.

    Args:
        folder: The cluster's state folder; removed at the end.
        owner: Process whose end is the end of this cluster.
    """

    def __init__(self, folder: Path, owner: int) -> None:
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._at_end: list[list[str]] = []
        self._selector = selectors.DefaultSelector()
        self._pending = b""
        self._serving = True
        self._owner = os.pidfd_open(owner)
        self._watch(self._owner, self._finish)
        self._watch(sys.stdin.fileno(), self._read)

    def run(self) -> None:
        """Serve until the end, then kill the components and remove the folder."""
        try:
            while self._serving:
                for key, _ in self._selector.select():
                    key.data()
        finally:
            self._end()

    def _watch(self, descriptor: int, react: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, react)

    def _finish(self) -> None:
        self._serving = False

    def _read(self) -> None:
        chunk = os.read(sys.stdin.fileno(), 65536)
        if not chunk:
            self._selector.unregister(sys.stdin.fileno())
            return
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            self._reply(json.loads(line))

    def _reply(self, request: dict[str, Any]) -> None:
        try:
            answer = self._handle(request)
        except (KeyError, OSError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The owner's end shows on its pidfd too, and that is where it is handled.
            return

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "start":
                return {"pid": self._start(request["name"], request["argv"], request["log"])}
            case "stop":
                self._stop(request["name"])
            case "poll":
                return {"components": {name: _state(c) for name, c in self._children.items()}}
            case "at end":
                self._at_end.append(request["argv"])
            case "detach":
                self._selector.unregister(self._owner)
            case "end":
                self._finish()
            case other:
                raise ValueError(f"unknown request {other!r}")
        return {}

    def _start(self, name: str, argv: list[str], log: str) -> int:
        if name in self._children and self._children[name].poll() is None:
            raise ValueError(f"{name} is already running")
        shim = [sys.executable, "-I", "-S", str(_CHILD), str(os.getpid())]
        with Path(log).open("ab") as output:
            child = subprocess.Popen(
                [*shim, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
            )
        self._children[name] = child
        exited = os.pidfd_open(child.pid)
        self._watch(exited, lambda: self._reap(child, exited))
        return child.pid

    def _reap(self, child: subprocess.Popen[bytes], exited: int) -> None:
        child.wait()
        self._selector.unregister(exited)
        os.close(exited)

    def _stop(self, name: str) -> None:
        _kill([self._children[name]])

    def _end(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill(list(self._children.values()))
        for argv in self._at_end:
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill(children: list[subprocess.Popen[bytes]]) -> None:
    """Kill components, and return once they and their own children are gone."""
    living = [child for child in children if child.poll() is None]
    # A node's first process is such a grandchild: it is gone when all in its namespace are.
    below = [pid for child in living for pid in _children_of(child.pid)]
    for child in living:
        child.kill()
    for child in living:
        child.wait()
    for pid in below:
        # One that its parent has waited for never becomes ours.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def _adopt_orphans() -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl failed: cannot adopt orphans")


def _state(child: subprocess.Popen[bytes]) -> dict[str, int | None]:
    return {"pid": child.pid, "exit": child.poll()}


def _terminate(_signal: int, _frame: object) -> None:
    sys.exit(0)


def main() -> None:
    """Keep the cluster in the folder and for the owner that the command line names."""
    folder, owner = Path(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _adopt_orphans()
    try:
        keeper = Keeper(folder, owner)
        # Checked after the pidfd is open: before it, the number might be another process's.
        alive = os.getppid() == owner
    except ProcessLookupError:
        alive = False
    if not alive:
        shutil.rmtree(folder, ignore_errors=True)
        return
    keeper.run()


if __name__ == "__main__":
    main()
