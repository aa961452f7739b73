"""A reverse proxy between operator and API server that a test can make misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

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
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._streams: dict[int, web.Request] = {}
        self.fault: Fault = lambda _request: None
        self.served = 0
        self.faults = 0
        self.url = ""

    @property
    def streams(self) -> int:
        """Number of open watches."""
        return len(self._streams)

    def drop_streams(self) -> None:
        """Cut every open watch, as a restarting load balancer does."""
        for request in list(self._streams.values()):
            if request.transport:
                request.transport.abort()
        self._streams.clear()

    def kubeconfig(self, real: Path, folder: Path) -> Path:
        """Write a kubeconfig that goes through here."""
        config = yaml.safe_load(real.read_text())
        for entry in config["clusters"]:
            entry["cluster"] = {"server": self.url}
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
        answer = self.fault(request)
        if isinstance(answer, web.Response):
            self.faults += 1
            return answer
        if answer is not None:
            self.faults += 1
            if request.transport:
                request.transport.abort()
            return web.Response()
        self.served += 1
        return await self._forward(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k not in ("Host", "Content-Length")}
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
                self._streams[id(request)] = request
            try:
                await stream.prepare(request)
                async for chunk in real.content.iter_any():
                    await stream.write(chunk)
                await stream.write_eof()
            except (ConnectionError, aiohttp.ClientError, asyncio.CancelledError):
                pass
            finally:
                self._streams.pop(id(request), None)
        return stream


def now_and_then(answer: Callable[[], web.Response], share: float, seed: int) -> Fault:
    """Return a fault that answers so for a share of all requests but watches."""
    chance = random.Random(seed)

    def fault(request: web.Request) -> web.Response | None:
        if "watch" in request.query or chance.random() > share:
            return None
        return answer()

    return fault
