"""Log lines of every process of ours, as a person or as a machine reads them.

Our own events go through structlog, those of libraries through `logging`;
both come out alike on stderr.
An exception is always shown with the whole chain of its causes.
Local variables are never shown: they hold database URLs and customers' data.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import Processor

#: Libraries that say more at INFO than anybody reads.
_QUIET = ("asyncio", "asyncpg", "aiohttp.access", "urllib3")


def configure(*, log_format: str = "console", level: str = "INFO", **context: Any) -> None:
    """Set up logging for this process.

    Parameters
    ----------
    log_format
        `console` for people, `json` for one JSON object a line.
    level
        `DEBUG`, `INFO`, `WARNING` or `ERROR`.
    context
        Fields that each line of this process carries, such as `process=0`.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add(context),
    ]
    _configure_structlog(shared, level)
    _configure_logging(shared, log_format, level)


def _configure_structlog(shared: list[Processor], level: str) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _configure_logging(shared: list[Processor], log_format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _renderers(log_format: str) -> list[Processor]:
    if log_format == "json":
        chain = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [
            structlog.processors.ExceptionRenderer(chain),
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ]
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    ]


def _add(context: dict[str, Any]) -> Processor:
    def add(_logger: Any, _method: str, event: Any) -> Any:
        for key, value in context.items():
            event.setdefault(key, value)
        return event

    return add
