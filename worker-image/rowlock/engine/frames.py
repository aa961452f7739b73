"""What a loop process and an executor say to each other: msgpack, each message after its length.

Nothing that leads into the database is ever in one of these messages.
"""

from __future__ import annotations

import asyncio
import socket
import struct

import msgspec

from rowlock.agents.crossing import BlockingAnswer, BlockingCall

#: Room around a body of the greatest size: names, traceback, counters.
OVERHEAD = 1024 * 1024

_LENGTH = struct.Struct(">I")
_CHUNK = 256 * 1024


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First message to an executor: who it is.

    Parameters
    ----------
    process
        Number of the loop process inside its worker.
    max_result_bytes
        Cap of a result.
    """

    process: int
    max_result_bytes: int
    log_format: str
    log_level: str


class Execute(msgspec.Struct, frozen=True, tag=True):
    """Make this call.

    Parameters
    ----------
    entrypoint
        Module that names the agent: imported first, so that modules load in the loop's order.
    """

    entrypoint: str
    call: BlockingCall


class Begun(msgspec.Struct, frozen=True, tag=True):
    """Everything is imported and read; the function is called next."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The call is over."""

    answer: BlockingAnswer


ToExecutor = Setup | Execute
FromExecutor = Begun | Ended

_encoder = msgspec.msgpack.Encoder()
_to_executor: msgspec.msgpack.Decoder[ToExecutor] = msgspec.msgpack.Decoder(ToExecutor)
_from_executor: msgspec.msgpack.Decoder[FromExecutor] = msgspec.msgpack.Decoder(FromExecutor)


class BadFrame(Exception):
    """What came is no message of ours: too long, cut off or malformed."""


def frame(message: ToExecutor | FromExecutor) -> bytes:
    """Return `message` as it travels."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader, *, limit: int) -> FromExecutor:
    """Return the next message of an executor.

    Raises
    ------
    EOFError
        It ended before a whole message.
    BadFrame
        It is longer than `limit` bytes, or none of ours.
    """
    try:
        [length] = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        _check(length, limit)
        return _from_executor.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError("the executor has ended") from error
    except msgspec.MsgspecError as error:
        raise BadFrame(str(error)) from error


class Channel:
    """The executor's end: it does one thing at a time and may block."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, message: FromExecutor) -> None:
        """Send `message` whole."""
        self._socket.sendall(frame(message))

    def receive(self) -> ToExecutor:
        """Wait for the next message.

        Raises
        ------
        EOFError
            The loop process is gone, or wants no more of us.
        """
        [length] = _LENGTH.unpack(self._read(_LENGTH.size))
        return _to_executor.decode(self._read(length))

    def close(self) -> None:
        """Have no part in it any more."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        body = bytearray()
        while len(body) < size:
            piece = self._socket.recv(min(size - len(body), _CHUNK))
            if not piece:
                raise EOFError("the loop process is gone")
            body += piece
        return bytes(body)


def _check(length: int, limit: int) -> None:
    if length > limit:
        raise BadFrame(f"a message of {length} bytes; at most {limit} are taken")
