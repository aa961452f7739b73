"""Database URLs, checked before the driver sees them.

A password with an unescaped `/`, `?`, `#` or `@` makes a parser take a part of it
for the host or the port, which then appears in error messages; such a URL is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rowlock.errors import InvalidDatabaseURL


@dataclass(frozen=True, slots=True)
class Target:
    """A well-formed URL, and the part of it that may be shown."""

    dsn: str = field(repr=False)
    place: str


def parse(dsn: str) -> Target:
    """Check `dsn`.

    Raises
    ------
    InvalidDatabaseURL
        It is no PostgreSQL URL; the message holds nothing of it.
    """
    try:
        parts = urlsplit(dsn)
        _ = parts.port if "," not in parts.netloc else None
    except ValueError:
        raise invalid() from None
    user, _, host = parts.netloc.rpartition("@")
    if parts.scheme not in ("postgresql", "postgres") or "@" in user:
        raise invalid()
    if parts.fragment or "@" in parts.path or "@" in parts.query:
        raise invalid()
    return Target(dsn, host or "its default place")


def invalid() -> InvalidDatabaseURL:
    """Return the error for a URL that cannot be used, with advice and without the URL."""
    return InvalidDatabaseURL(
        "the database URL must look like postgresql://user:password@host:5432/name; "
        "write special characters of a password as %XX (for example / as %2F, # as %23, @ as %40)"
    )
