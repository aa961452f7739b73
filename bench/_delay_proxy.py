"""A TCP proxy that holds back what clients say for a moment, as a network does.

    python -m bench._delay_proxy --to PORT --ms 1

It prints its port. Answers pass at once, so a round trip takes so many milliseconds longer.
While the server is away, connections are refused as it would refuse them: they end at once.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One side of a connection: passes on what it hears.

    Parameters
    ----------
    seconds
        For how long that is held back.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass it on when its time has come."""
        if self._seconds:
            self._loop.call_later(self._seconds, self._pass_on, data)
        else:
            self._pass_on(data)

    def connection_lost(self, _error: Exception | None) -> None:
        """End the other side, too."""
        self._transport = None
        if self.other is not None:
            self.other.end()

    def join(self, other: Side) -> None:
        """Pass on to `other` from now on."""
        self.other = other
        for data in self._early:
            other.say(data)
        self._early.clear()

    def say(self, data: bytes) -> None:
        """Say it to whoever is connected here."""
        if self._transport is not None:
            self._transport.write(data)

    def end(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _pass_on(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.say(data)


class Client(Side):
    """The side that a client has connected to."""

    def __init__(self, seconds: float, port: int) -> None:
        super().__init__(seconds)
        self._port = port
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server."""
        super().connection_made(transport)
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            _, server = await self._loop.create_connection(
                lambda: Side(0.0), "127.0.0.1", self._port
            )
        except OSError:
            self.end()
            return
        server.other = self
        self.join(server)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Client(arguments.ms / 1000, arguments.to), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=int, required=True, help="port of the server")
    parser.add_argument("--ms", type=float, default=1.0)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
