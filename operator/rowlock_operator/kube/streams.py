"""Answers of the API server that have no end: one JSON object a line, until the server ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import aiohttp

from rowlock_operator.kube.errors import Unreachable, decoded_status, from_status

#: How much longer than asked for a stream may last before it counts as silent.
_GRACE_SECONDS = 15.0
_CONNECT_SECONDS = 15.0


async def lines(
    session: aiohttp.ClientSession, url: str, query: Mapping[str, str], *, seconds: float
) -> AsyncIterator[bytes]:
    """Yield the lines of a stream that the server was asked to end after `seconds`.

    Raises
    ------
    KubeError
        The server refused it, or it broke or fell silent.
    """
    limits = aiohttp.ClientTimeout(total=seconds + _GRACE_SECONDS, sock_connect=_CONNECT_SECONDS)
    try:
        async with session.get(url, params=query, timeout=limits) as response:
            if response.status >= 300:
                raise from_status(
                    response.status,
                    decoded_status(await response.read()),
                    retry_after=response.headers.get("Retry-After"),
                )
            async for line in _split(response.content.iter_any()):
                yield line
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Unreachable(f"watch of {url}: {type(error).__name__}: {error}") from error


async def _split(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines; an object may be longer than what a stream reader takes for one."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
