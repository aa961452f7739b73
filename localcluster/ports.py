"""Ports that belong to a cluster for as long as it lives.

Looking for a free port and using it later is a race that a busy machine loses.
A reservation is a socket that is bound and never listens.
Nothing else can bind its port, nor can an outgoing connection be given it, even while a fault
test has the API server down.
The component itself can: like every Go server it sets ``SO_REUSEADDR``, and Linux lets two
such sockets share a port if only one of them listens.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved(count: int) -> Iterator[dict[int, int]]:
    """Reserve ports of 127.0.0.1 for the length of a `with` block.

    Returns:
        The file descriptor of the reservation by port.
        A process that inherits the descriptor upholds the reservation.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(_reserve()) for _ in range(count)]
        yield {reserved.getsockname()[1]: reserved.fileno() for reserved in sockets}


def _reserve() -> socket.socket:
    reservation = socket.socket()
    # First bound without the option, so that a port which another cluster reserved is refused.
    reservation.bind(("127.0.0.1", 0))
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return reservation
