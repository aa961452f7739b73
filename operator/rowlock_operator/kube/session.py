"""The HTTP session to the API server: few connections, and a token that is never stale."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.tokens import TokenSource

USER_AGENT = "rowlock-operator"
_KEEP_ALIVE_SECONDS = 75


def open_session(access: Access, *, connections: int) -> aiohttp.ClientSession:
    """Return a session of the running loop; the caller closes it.

    Parameters
    ----------
    connections
        How many requests may be in flight, watches included.
    """
    asyncio.get_running_loop()
    connector = aiohttp.TCPConnector(
        limit=connections,
        keepalive_timeout=_KEEP_ALIVE_SECONDS,
        ssl=access.tls if access.tls is not None else True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers={"User-Agent": USER_AGENT},
        middlewares=(_Bearer(access.tokens),),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=True,
    )


class _Bearer:
    """Puts the token on each request; once refused, reads it again and repeats the request."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens

    async def __call__(self, request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
        token = await self._tokens.token()
        if token is None:
            return await send(request)
        request.headers["Authorization"] = f"Bearer {token}"
        response = await send(request)
        if response.status != 401:
            return response
        fresh = await self._tokens.token(fresh=True)
        if fresh == token:
            return response
        response.release()
        request.headers["Authorization"] = f"Bearer {fresh}"
        return await send(request)
