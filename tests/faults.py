"""A reverse proxy between operator and API server that a test can make misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from rowlock_operator.kube.credentials import Access

Fault = Callable[[web.Request], Exception | web.Response | None]


class FaultyApi:
    """Forwards every request, unless the present fault has another answer.

    Parameters
    ----------
    access
        The real API server.

    Attributes
    ----------
    fault
        Answers instead of the server, or breaks the connection, where it returns something.
    delay
        Seconds that each answer takes longer.
    hushed
        Open watches say nothing any more, not even that they ended.
    token
        The only bearer token that is let through; None for whatever the server accepts.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._streams: dict[int, tuple[web.Request, web.StreamResponse]] = {}
        self._hushed: set[int] = set()
        self.delay = 0.0
        self.token: str | None = None
        self.fault: Fault = lambda _request: None
        self.served = 0
        self.faults = 0
        self.url = ""

    @property
    def streams(self) -> int:
        """Number of open watches."""
        return len(self._open())

    def drop_streams(self) -> None:
        """Cut every open watch, as a restarting load balancer does."""
        for request, _ in list(self._streams.values()):
            if request.transport:
                request.transport.abort()
        self._streams.clear()

    def _open(self) -> list[web.StreamResponse]:
        return [
            stream
            for request, stream in list(self._streams.values())
            if request.transport and not request.transport.is_closing()
        ]

    def hush(self) -> None:
        """Let the watches that are open say nothing any more, not even that they ended."""
        self._hushed |= self._streams.keys()

    async def say(self, event: Mapping[str, Any]) -> None:
        """Put an event into each open watch."""
        for stream in self._open():
            with contextlib.suppress(ConnectionError):
                await stream.write(json.dumps(event).encode() + b"\n")

    def kubeconfig(self, real: Path, folder: Path, *, token_file: Path | None = None) -> Path:
        """Write a kubeconfig that goes through here."""
        config = yaml.safe_load(real.read_text())
        for entry in config["clusters"]:
            entry["cluster"] = {"server": self.url}
        if token_file:
            for entry in config["users"]:
                entry["user"] = {"tokenFile": str(token_file)}
        path = folder / "faulty.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FaultyApi]:
        """Serve inside the block."""
        connector = aiohttp.TCPConnector(ssl=self._access.tls or True, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            self._session = session
            app = web.Application(client_max_size=8 << 20)
            app.router.add_route("*", "/{tail:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield self
            finally:
                self.drop_streams()
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        answer = self.fault(request) or self._refusal(request)
        if isinstance(answer, web.Response):
            self.faults += 1
            return answer
        if answer is not None:
            self.faults += 1
            if request.transport:
                request.transport.abort()
            return web.Response()
        self.served += 1
        await asyncio.sleep(self.delay)
        return await self._forward(request)

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self.token in (None, request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return None
        return web.json_response({"kind": "Status", "code": 401}, status=401)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k not in ("Host", "Content-Length")}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {await self._access.tokens.token()}"
        async with self._session.request(
            request.method,
            self._access.server + request.path_qs,
            headers=headers,
            data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as real:
            kept = {"Content-Type", "Retry-After", "Content-Encoding"}
            stream = web.StreamResponse(
                status=real.status, headers={k: v for k, v in real.headers.items() if k in kept}
            )
            if "watch" in request.query:
                self._streams[id(request)] = request, stream
            try:
                await stream.prepare(request)
                async for chunk in real.content.iter_any():
                    if id(request) not in self._hushed:
                        await stream.write(chunk)
                await stream.write_eof()
            except (ConnectionError, aiohttp.ClientError, asyncio.CancelledError):
                pass
            finally:
                self._streams.pop(id(request), None)
                self._hushed.discard(id(request))
        return stream


def now_and_then(answer: Callable[[], web.Response], share: float, seed: int) -> Fault:
    """Return a fault that answers so for a share of all requests but watches."""
    chance = random.Random(seed)

    def fault(request: web.Request) -> web.Response | None:
        if "watch" in request.query or chance.random() > share:
            return None
        return answer()

    return fault
