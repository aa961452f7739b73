"""A real OTLP endpoint for tests: takes spans in over HTTP, and keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class SpanStore:
    """What a collector was sent.

    Parameters
    ----------
    refuse
        Answer with this status instead of taking anything in.
    """

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    refuse: int = 0

    def named(self, name: str) -> Span:
        """Return the one span of this name."""
        [found] = [span for span in self.spans if span.name == name]
        return found


def attributes(span: Span) -> dict[str, str | int]:
    """Return the attributes of a span that are texts or whole numbers."""
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@asynccontextmanager
async def collecting() -> AsyncIterator[SpanStore]:
    """Run a collector on a free port of this machine."""
    store = SpanStore()

    async def take(request: web.Request) -> web.Response:
        if store.refuse:
            return web.Response(status=store.refuse)
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for of_resource in sent.resource_spans:
            store.services |= {
                one.value.string_value
                for one in of_resource.resource.attributes
                if one.key == "service.name"
            }
            for of_scope in of_resource.scope_spans:
                store.spans += of_scope.spans
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        store.url = f"http://127.0.0.1:{port}"
        yield store
    finally:
        await runner.cleanup()
