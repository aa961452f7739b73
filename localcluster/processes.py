"""The owner's side of a keeper: start, stop and look at a cluster's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import KeeperError, UsageError
from .layout import Layout, last_lines

_KEEPER = Path(__file__).with_name("keeper.py")


class Processes:
    """The processes of one cluster, all children of one keeper.

    May be used from several threads; one request is under way at a time.

    Args:
        layout: The cluster's folder, made already; the keeper removes it at the end.
        held: Descriptors that the keeper shall hold for as long as it lives: the cluster's lock
            and the reservations of its ports.

    Raises:
        UsageError: This is not Linux.
    """

    def __init__(self, layout: Layout, *, held: Sequence[int] = ()) -> None:
        if not hasattr(os, "pidfd_open"):
            raise UsageError("a local cluster needs Linux 5.3 or newer: use KUBECONFIG elsewhere")
        self._layout = layout
        self._asking = threading.Lock()
        with layout.log("keeper").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(layout.root), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                text=True,
                start_new_session=True,
                pass_fds=held,
            )

    @property
    def keeper_pid(self) -> int:
        """Process id of the keeper."""
        return self._keeper.pid

    def start(self, name: str, argv: Sequence[str]) -> int:
        """Start a component, its output going to its log, and return its process id."""
        log = str(self._layout.log(name))
        return int(self._ask(do="start", name=name, argv=list(argv), log=log)["pid"])

    def log(self, name: str) -> Path:
        """Return the log of a component."""
        return self._layout.log(name)

    def stop(self, name: str) -> None:
        """Kill a component and wait until it is gone."""
        self._ask(do="stop", name=name)

    def at_end(self, argv: Sequence[str]) -> None:
        """Have the keeper run a command once all components have ended, whatever ends them."""
        self._ask(do="at end", argv=list(argv))

    def pids(self) -> dict[str, int]:
        """Return the process ids of the components that run."""
        states = self._ask(do="poll")["components"].items()
        return {name: state["pid"] for name, state in states if state["exit"] is None}

    def exit_codes(self) -> dict[str, int]:
        """Return the exit codes of the components that ended; a signal counts negative."""
        states = self._ask(do="poll")["components"].items()
        return {name: state["exit"] for name, state in states if state["exit"] is not None}

    def detach(self) -> None:
        """Let the cluster outlive this process; only SIGTERM to the keeper ends it then."""
        self._ask(do="detach")
        self._close_pipes()
        # The keeper is meant to outlive this object, which Popen would warn about.
        self._keeper.returncode = 0

    def end(self) -> None:
        """Kill everything and wait until it is gone; does nothing the second time."""
        if self._keeper.poll() is None:
            # A keeper that ended on its own a moment ago is no reason to complain.
            self._try_to_ask_for_the_end()
            self._await_keeper()
        self._close_pipes()

    def _try_to_ask_for_the_end(self) -> None:
        try:
            self._ask(do="end")
        except KeeperError:
            self._keeper.kill()

    def _await_keeper(self) -> None:
        try:
            self._keeper.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def _close_pipes(self) -> None:
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, **request: object) -> dict[str, Any]:
        with self._asking:
            line = self._exchange(json.dumps(request))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KeeperError(f"the keeper refused {request}: {answer['error']}")
        return answer

    def _exchange(self, request: str) -> str:
        stdin, stdout = self._keeper.stdin, self._keeper.stdout
        if stdin is None or stdout is None or stdin.closed:
            raise KeeperError("this cluster was stopped")
        try:
            stdin.write(request + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            tail = last_lines(self._layout.log("keeper"))
            raise KeeperError(f"the keeper of this cluster is gone; its last words:\n{tail}")
        return line
