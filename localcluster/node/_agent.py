"""The first process of a node: owns its programs, and reaps what they leave behind.

Started as ``unshare --fork --pid --mount-proc --mount --net --kill-child python -I -S _agent.py
FOLDER``; it imports nothing of this package.
It makes the node's own view of the file system, then serves requests on ``FOLDER/agent.sock``,
one JSON object a connection::

    {"do": "start", "name": "kubelet", "argv": [...], "log": "…"} → {}
    {"do": "kill", "name": "kubelet"}                             → {}
    {"do": "poll"}                                                → {"ended": {"kubelet": 1}}

A request that fails is answered with ``{"error": "…"}``.
Its end is the end of all: the kernel kills every process of its PID namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


class Agent:
    """The programs of one node, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pids: dict[int, str] = {}
        self._ended: dict[str, int] = {}

    def serve(self) -> None:
        """Answer requests until this process is killed."""
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._folder / "agent.sock"))
            listener.listen()
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rw") as file:
                    self._answer(file)

    def _answer(self, file: Any) -> None:
        try:
            answer = self._handle(json.loads(file.readline()))
        except (KeyError, OSError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):
            file.write(json.dumps(answer) + "\n")
            file.flush()

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "start":
                self._start(request["name"], request["argv"], request["log"])
            case "kill":
                self._kill(request["name"])
            case "poll":
                return {"ended": self._ended}
            case other:
                raise ValueError(f"unknown request {other!r}")
        return {}

    def _start(self, name: str, argv: list[str], log: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            argv[0],
            argv,
            {**os.environ, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
        )
        self._ended.pop(name, None)
        self._pids[pid] = name

    def _kill(self, name: str) -> None:
        for pid, known in self._pids.items():
            if known == name:
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        # Containers outlive their shims' parents: whatever nobody waits for becomes ours.
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if name := self._pids.pop(ended[0], None):
                    self._ended[name] = os.waitstatus_to_exitcode(ended[1])


def own_file_system(folder: Path) -> None:
    """Let what programs write to fixed places of the host go to the node's folder."""
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "tmpfs", "/run")
    upper, work = folder / "var", folder / "var-work"
    for made in (upper, work):
        made.mkdir(exist_ok=True)
    mount("-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "var", "/var")


def mount(*arguments: str) -> None:
    """Call mount, and end with its words if it fails."""
    subprocess.run(["mount", *arguments], check=True)


def main() -> None:
    """Become the first process of the node whose folder is given."""
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    own_file_system(folder)
    Agent(folder).serve()


if __name__ == "__main__":
    main()
