"""What the Kubernetes API server can answer instead of an object, in one tree.

::

    RowlockError
    ├── ConfigurationError
    │   ├── CredentialsError     the kubeconfig or service account cannot be used
    │   ├── ClusterTooOld        the server is of an older release than we work with
    │   └── CRDsMissing          the server does not know our kinds
    └── KubeError
        ├── Unreachable          no answer, or a 5xx; retry
        ├── Throttled            429; retry after `retry_after` seconds
        ├── Denied               401 or 403: a person must grant something; retry slowly
        ├── NotFound             404: there is no such object (any more)
        ├── Conflict             409: it exists, or somebody else changed it
        ├── Expired              410: a list or watch must start again
        └── Rejected             any other 4xx: the same request will fail again
            └── Invalid          422: the object breaks the schema, or a JSON Patch test failed

Messages are the server's own words, never a token or a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from rowlock.errors import ConfigurationError, RowlockError


class CredentialsError(ConfigurationError):
    """The credentials for the Kubernetes API server cannot be used."""


class ClusterTooOld(ConfigurationError):
    """The Kubernetes API server is too old: Rowlock needs 1.32 or newer."""


class CRDsMissing(ConfigurationError):
    """The API server does not know our kinds: install the chart `rowlock-crds`."""


class KubeError(RowlockError):
    """A request to the Kubernetes API server failed."""

    def __init__(self, message: str | None = None, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Unreachable(KubeError):
    """The Kubernetes API server gave no usable answer."""

    retryable = True


class Throttled(KubeError):
    """The Kubernetes API server asked for fewer requests."""

    retryable = True

    def __init__(
        self, message: str | None = None, *, code: int = 429, retry_after: float = 1.0
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class Denied(KubeError):
    """The Kubernetes API server refuses our identity or what it asks for."""

    retryable = True


class NotFound(KubeError):
    """There is no such object."""


class Conflict(KubeError):
    """The object exists already, or somebody else changed it."""


class Expired(KubeError):
    """The list or watch is too old and must start again."""

    retryable = True


class Rejected(KubeError):
    """The Kubernetes API server will never accept this request."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that breaks the schema."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Invalid(Rejected):
    """The object breaks its schema, or a test of a JSON Patch failed.

    Parameters
    ----------
    causes
        The fields at fault; empty when a test of a JSON Patch failed.
    """

    def __init__(
        self, message: str | None = None, *, code: int = 422, causes: tuple[Cause, ...] = ()
    ) -> None:
        super().__init__(message, code=code)
        self.causes = causes


_BY_CODE: dict[int, type[KubeError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Expired,
}


def decoded_status(raw: bytes) -> Any:
    """Return the body of an answer that is an error; None if it is no JSON."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def from_status(code: int, status: Any, *, retry_after: str | None = None) -> KubeError:
    """Return the error that a non-2xx answer means.

    Parameters
    ----------
    code
        HTTP status code.
    status
        The decoded body: a `metav1.Status`, or anything else from a proxy in between.
    retry_after
        The header `Retry-After`, in seconds.
    """
    body = status if isinstance(status, dict) else {}
    message = str(body.get("message") or f"the API server answered {code}")
    if code == 429 or (code == 503 and retry_after):
        return Throttled(message, code=code, retry_after=_seconds(retry_after))
    if code == 422:
        return Invalid(message, causes=_causes(body))
    if code in _BY_CODE:
        return _BY_CODE[code](message, code=code)
    return (Unreachable if code >= 500 else Rejected)(message, code=code)


def _seconds(retry_after: str | None) -> float:
    try:
        return min(max(float(retry_after or 1), 0.1), 60)
    except ValueError:
        return 1.0


def _causes(body: dict[str, Any]) -> tuple[Cause, ...]:
    details = body.get("details") or {}
    return tuple(
        Cause(str(cause.get("field", "")), str(cause.get("message", "")))
        for cause in details.get("causes") or ()
    )
