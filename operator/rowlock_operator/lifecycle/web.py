"""The HTTP server for probes and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from rowlock.errors import ConfigurationError
from rowlock_operator.lifecycle.probes import Answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Of the Prometheus text format.
_METRICS = "text/plain; version=0.0.4"


@asynccontextmanager
async def serving(
    host: str,
    port: int,
    *,
    alive: Callable[[], Answer],
    ready: Callable[[], Answer],
    metrics: Callable[[], bytes],
) -> AsyncIterator[None]:
    """Serve `/livez`, `/readyz` and `/metrics` inside the block; port 0 serves nothing.

    Raises
    ------
    ConfigurationError
        The port is taken or not allowed.
    """
    if port == 0:
        yield
        return
    app = web.Application()
    app.router.add_get("/livez", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    app.router.add_get("/metrics", _text(metrics))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await _listen(runner, host, port)
        yield
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host or None, port).start()
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error}"
        ) from None


def _probe(ask: Callable[[], Answer]) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        said = ask()
        return web.Response(text=f"{said.why}\n", status=200 if said.ok else 503)

    return answer


def _text(metrics: Callable[[], bytes]) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": _METRICS})

    return answer
