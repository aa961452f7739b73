"""Sends spans to a collector; the only module that knows OpenTelemetry.

Where to and how stands in OpenTelemetry's own variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

from rowlock import traces
from rowlock.errors import ConfigurationError
from rowlock_operator.traces.story import Span

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError:  # pragma: no cover  the extra is part of the tests' lock
    raise ConfigurationError(
        "ROWLOCK_TRACES needs OpenTelemetry: pip install 'rowlock[traces]'"
    ) from None


class Collector:
    """An OTLP endpoint.

    Parameters
    ----------
    ratio
        Share of the traces that are sent, from 0 to 1; all workers and operators agree on which.
    exporter
        By default one that speaks OTLP over HTTP to where OpenTelemetry's variables say.
    """

    def __init__(self, *, ratio: float = 1.0, exporter: SpanExporter | None = None) -> None:
        self._exporter = exporter or OTLPSpanExporter()
        self._ratio = ratio
        self._resource = Resource({"service.name": "rowlock"}).merge(
            OTELResourceDetector().detect()
        )
        self._scope = InstrumentationScope("rowlock", version("rowlock"))

    def wants(self, trace_id: int) -> bool:
        """Tell whether this trace is one of the share that is kept."""
        return traces.is_kept(trace_id, self._ratio)

    async def send(self, spans: Sequence[Span]) -> bool:
        """Send spans in a thread, for the exporter blocks and repeats by itself."""
        done = await asyncio.to_thread(self._exporter.export, [self._span(one) for one in spans])
        return done is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Let go of the connection."""
        self._exporter.shutdown()

    def _span(self, span: Span) -> ReadableSpan:
        status = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK)
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.id),
            parent=None if span.parent is None else _context(span.trace_id, span.parent),
            resource=self._resource,
            instrumentation_scope=self._scope,
            attributes=span.attributes,
            events=[Event(m.name, m.attributes, _nanoseconds(m.at)) for m in span.moments],
            kind=SpanKind.INTERNAL,
            status=status,
            start_time=_nanoseconds(span.start),
            end_time=max(_nanoseconds(span.start), _nanoseconds(span.end)),
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
