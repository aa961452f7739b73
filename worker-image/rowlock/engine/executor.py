"""An executor process: it makes blocking calls, one at a time, and may be killed in any of them.

`python -m rowlock.engine.executor CHANNEL_FD PARENT_PID`

It is a new program and never a fork of the loop; it knows nothing of the database.
It leads a process group of its own, so that what a tool starts can be ended with it.
What a tool prints becomes log lines; what its children print goes to the same place as it is.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import structlog

from rowlock import logs
from rowlock.agents.crossing import BlockingAnswer, Kind, Trouble, trouble_of
from rowlock.agents.performing import perform
from rowlock.engine.frames import Begun, Channel, Ended, Execute, Setup
from rowlock.engine.parent import die_with_parent

log = structlog.get_logger(__name__)

#: Told to end, or nobody is there to work for.
EXIT_TOLD = 0
#: Less CPU than the loops when both want it, and the first to go when memory runs out.
_NICENESS = 5
_OOM_SCORE = "500"

_MAX_LINE = 8192


class ToldToEnd(SystemExit):
    """SIGTERM: the call's time is over, or its run is cancelled; clean up within two seconds."""


class Executor:
    """Makes calls until it is told to end.

    Parameters
    ----------
    max_result_bytes
        Cap of a result; a longer one is an error of its call.
    """

    def __init__(self, channel: Channel, *, max_result_bytes: int) -> None:
        self._channel = channel
        self._max = max_result_bytes
        self._pid = os.getpid()
        self._told = False

    def serve(self) -> None:
        """Make one call after the other; returns when the loop process wants no more."""
        signal.signal(signal.SIGTERM, self._end)
        with contextlib.suppress(EOFError, ConnectionError):
            while isinstance(message := self._channel.receive(), Execute):
                self._make(message)

    def _make(self, message: Execute) -> None:
        call = message.call
        with structlog.contextvars.bound_contextvars(run=str(call.run_id), call=call.call_id):
            answer = self._answer(message)
            sys.stdout.flush()
            sys.stderr.flush()
        if os.getpid() != self._pid:
            os._exit(EXIT_TOLD)  # the tool forked, and this is the copy: it has no part in this
        if not self._told:
            self._channel.send(Ended(answer))

    def _answer(self, message: Execute) -> BlockingAnswer:
        try:
            importlib.import_module(message.entrypoint)
        except BaseException as error:  # an import may raise anything, sys.exit included
            return BlockingAnswer(trouble=trouble_of(error, Kind.NOT_STARTED))
        answer = perform(message.call, lambda: self._channel.send(Begun()))
        if len(answer.body) <= self._max:
            return answer
        text = f"the result has {len(answer.body)} bytes, at most {self._max} are stored"
        return BlockingAnswer(trouble=Trouble(Kind.TOO_LARGE, [("TooLarge", text)]))

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._told = True
        raise ToldToEnd(EXIT_TOLD)


class LogStream(io.TextIOBase):
    """What is printed, line by line into the log.

    Parameters
    ----------
    name
        `stdout` or `stderr`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pending = ""
        self._inside = False

    def writable(self) -> bool:
        """Take text."""
        return True

    def write(self, text: str) -> int:
        """Log each line that is complete."""
        *lines, self._pending = (self._pending + text).split("\n")
        if len(self._pending) > _MAX_LINE:
            lines.append(self._pending)
            self._pending = ""
        for line in lines:
            self._say(line)
        return len(text)

    def flush(self) -> None:
        """Log what has no end yet."""
        line, self._pending = self._pending, ""
        if line:
            self._say(line)

    def _say(self, line: str) -> None:
        if self._inside:
            return  # logging itself failed and complains: that must not come back here
        self._inside = True
        try:
            log.info("A tool printed", line=line[:_MAX_LINE], stream=self._name)
        finally:
            self._inside = False


def _become_expendable() -> None:
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _redirect_output(setup: Setup) -> None:
    """Make log lines of what is printed; a child's stdout joins stderr, where the log is."""
    faulthandler.enable(sys.stderr)
    logs.configure(
        log_format=setup.log_format,
        level=setup.log_level,
        process=setup.process,
        executor=os.getpid(),
    )
    os.dup2(2, 1)
    sys.stdout = LogStream("stdout")
    sys.stderr = LogStream("stderr")


def main() -> None:
    """Run an executor to its end."""
    channel_fd, parent = (int(argument) for argument in sys.argv[1:3])
    os.set_inheritable(channel_fd, False)  # what tools start has no part in this
    die_with_parent(parent, code=EXIT_TOLD)
    channel = Channel(socket.socket(fileno=channel_fd))
    os.register_at_fork(after_in_child=channel.close)
    setup = channel.receive()
    if not isinstance(setup, Setup):
        raise TypeError(f"expected Setup, got {type(setup).__name__}")
    _become_expendable()
    _redirect_output(setup)
    Executor(channel, max_result_bytes=setup.max_result_bytes).serve()


if __name__ == "__main__":
    main()
