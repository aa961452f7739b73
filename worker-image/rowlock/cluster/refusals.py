"""What kubectl's errors mean: one readable line each; pure."""

from __future__ import annotations

import re
from typing import Final

from rowlock.errors import (
    AlreadyInCluster,
    ClusterError,
    ClusterForbids,
    ClusterRefuses,
    ClusterUnavailable,
    ConfigurationError,
    NotInCluster,
    RowlockError,
)

#: Lines of kubectl's own log that stand before what it says to a person.
_LOGGED: Final = re.compile(r"^[EWIF]\d{4} \d\d:\d\d:\d\d")
_NOT_FOUND: Final = re.compile(r'\(NotFound\): (?:.*?: )?([\w./-]+) "([^"]*)" not found')
_FORBIDDEN: Final = re.compile(
    r'User "(?P<who>[^"]*)" cannot (?P<verb>\w+) resource "(?P<what>[^"]*)"'
    r'(?: in API group "[^"]*")?(?: in the namespace "(?P<where>[^"]*)")?'
)
_INVALID: Final = re.compile(r'^The \w+ "[^"]*" is invalid:\s*(?P<why>.*)$', re.DOTALL)
#: What the API server says before a rule's own words.
_RULE: Final = re.compile(r'(?:\* )?<nil>: Invalid value: (?:"object"|null): ')
_UNCHECKED: Final = re.compile(r"some validation rules were not checked[^*]*")
_AWAY: Final = re.compile(
    r"^Unable to connect to the server|^The connection to the server .* was refused"
    r"|\((?:ServiceUnavailable|Timeout|TooManyRequests|InternalError)\)"
    r"|i/o timeout|deadline exceeded|connection re(?:fused|set)|unexpected EOF"
)
_UNKNOWN_KIND: Final = re.compile(
    r'server doesn\'t have a resource type "([^"]*)"|no matches for kind "([^"]*)"'
    r"|could not find the requested resource"
)
_STRANGER: Final = re.compile(r"\(Unauthorized\)|must be logged in|provide credentials")
_CONFIGURED: Final = re.compile(
    r"(?:context|cluster) .* does not exist|context was not found|error in configuration"
    r"|^error: stat |error loading config|no configuration has been|invalid configuration"
    r"|unable to read client",
    re.IGNORECASE,
)
_PREFIX: Final = re.compile(r"^(?:error|Error from server(?: \(\w+\))?): ")


def refusal(said: str) -> RowlockError:
    """Return the error that kubectl's standard error stands for."""
    lines = [line for line in said.splitlines() if line.strip() and not _LOGGED.match(line)]
    text = " ".join(" ".join(lines).split()) or " ".join(said.split()) or "kubectl said nothing"
    for reads in (_stranger, _missing, _forbidden, _invalid, _unknown_kind, _configured, _taken):
        error = reads(text)
        if error is not None:
            return error
    if _AWAY.search(text):
        return ClusterUnavailable(f"the cluster is out of reach: {_plain(text)}")
    return ClusterError(f"kubectl: {_plain(text)}")


def _stranger(text: str) -> RowlockError | None:
    if _STRANGER.search(text) is None:
        return None
    return ClusterForbids(f"the cluster does not take your credentials: {_plain(text)}")


def _missing(text: str) -> RowlockError | None:
    found = _NOT_FOUND.search(text)
    if found is None:
        return None
    resource, name = found.groups()
    kind = resource.partition(".")[0]
    return NotInCluster(f"there is no {name!r} in {kind}", resource=resource, name=name)


def _forbidden(text: str) -> RowlockError | None:
    if "(Forbidden)" not in text:
        return None
    found = _FORBIDDEN.search(text)
    if found is None:
        return ClusterForbids(f"the cluster forbids it: {_plain(text)}")
    where = f" in namespace {found['where']}" if found["where"] else ""
    return ClusterForbids(f"you ({found['who']}) may not {found['verb']} {found['what']}{where}")


def _invalid(text: str) -> RowlockError | None:
    found = _INVALID.match(text)
    if found is None:
        refused = "(BadRequest)" in text or "(Invalid)" in text or "(Conflict)" in text
        return ClusterRefuses(_plain(text)) if refused else None
    why = _RULE.sub("", _UNCHECKED.sub("", found["why"]))
    return ClusterRefuses("; ".join(part.strip() for part in why.split("* ") if part.strip()))


def _unknown_kind(text: str) -> RowlockError | None:
    found = _UNKNOWN_KIND.search(text)
    if found is None:
        return None
    what = (found[1] or found[2] or "this kind").partition(".")[0]
    return ConfigurationError(
        f"this cluster knows no {what}: install Rowlock's CRDs, or choose another --context"
    )


def _configured(text: str) -> RowlockError | None:
    return ConfigurationError(f"kubectl: {_plain(text)}") if _CONFIGURED.search(text) else None


def _taken(text: str) -> RowlockError | None:
    return AlreadyInCluster(_plain(text)) if "(AlreadyExists)" in text else None


def _plain(text: str) -> str:
    return _PREFIX.sub("", text)
