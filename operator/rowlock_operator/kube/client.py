"""A small client of the API server: few connections, a rate per kind of request, typed errors.

Why not the `kubernetes` package: it costs four times the CPU a request and 126 MB on disk, and
the operator makes five kinds of requests.

No request is repeated here, but for one 401 (the token may just have been replaced): the caller
knows whether the answer still matters. A request that failed may have been carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from rowlock_operator.kube import streams
from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.errors import (
    KubeError,
    Throttled,
    Unreachable,
    decoded_status,
    from_status,
)
from rowlock_operator.kube.limiter import Limiter
from rowlock_operator.kube.session import open_session

#: Ask for metadata alone: the answer to a status write is not needed in full.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
#: The same for a list.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: Ask for the columns of `kubectl get` and the metadata of each row.
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"

_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"


@unique
class Lane(StrEnum):
    """Kinds of requests that must not slow each other: each has a rate of its own."""

    READ = "read"
    STATUS = "status"
    EVENT = "event"
    APPLY = "apply"
    DELETE = "delete"
    #: Renewals of the leader's Lease: one in two seconds, never held back.
    LEASE = "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Requests a second and lane."""

    read: float = 100
    status: float = 200
    event: float = 50
    apply: float = 20
    delete: float = 50
    lease: float = 20

    def limiters(self) -> dict[Lane, Limiter]:
        """Return one limiter per lane."""
        return {
            Lane.READ: Limiter(self.read),
            Lane.STATUS: Limiter(self.status),
            Lane.EVENT: Limiter(self.event),
            Lane.APPLY: Limiter(self.apply),
            Lane.DELETE: Limiter(self.delete),
            Lane.LEASE: Limiter(self.lease),
        }


class KubeClient:
    """Makes requests to one API server; an async context manager.

    Parameters
    ----------
    connections
        Requests in flight at once.
    timeout
        Seconds for one request, waiting for a connection included.
    observe
        Called with (lane, code) after each request; code 0 means no answer.
    """

    def __init__(
        self,
        access: Access,
        *,
        rates: Rates | None = None,
        connections: int = 32,
        timeout: float = 15,
        observe: Callable[[Lane, int], None] | None = None,
    ) -> None:
        self._access = access
        self._limiters = (rates or Rates()).limiters()
        self._connections = connections
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._observe = observe or (lambda _lane, _code: None)
        self._session: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._away = False
        #: Set when the API server answers again after it gave no answer; the reader clears it.
        self.recovered = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._session = open_session(self._access, connections=self._connections)
        # Streams stay open for minutes: they must not take the connections of requests.
        self._streams = open_session(self._access, connections=0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in (self._session, self._streams):
            if session:
                await session.close()

    def rate(self, lane: Lane) -> float:
        """Return the requests a second that a lane may make now."""
        return self._limiters[lane].rate

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        lane: Lane = Lane.READ,
    ) -> Any:
        """Return the object or list at `path`."""
        return await self._request("GET", path, lane=lane, params=params, accept=accept)

    async def pages(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        limit: int = 500,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the pages of a list, all of one state of the collection.

        Raises
        ------
        Expired
            It took so long that the server forgot that state; start again.
        """
        query = {**(params or {}), "limit": str(limit)}
        while True:
            page = await self.get(path, params=query, accept=accept)
            yield page
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            query["continue"] = token

    async def watch(
        self, path: str, *, params: Mapping[str, str], seconds: float
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield what happens to a collection from `params["resourceVersion"]` on, bookmarks too.

        Parameters
        ----------
        seconds
            The server ends the stream after so long; one that went silent is given up soon after.

        Raises
        ------
        Expired
            The server forgot that version: list again.
        """
        query = {
            **params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }
        await self._limiters[Lane.READ].acquire()
        if self._streams is None:
            raise RuntimeError("use the client as an async context manager")
        url = self._access.server + path
        async for line in streams.lines(self._streams, url, query, seconds=seconds):
            event = _decoded(line, path)
            if event["type"] == "ERROR":
                status = event["object"]
                raise from_status(int(status.get("code") or 500), status)
            yield event

    async def create(self, path: str, body: Mapping[str, Any], *, lane: Lane = Lane.APPLY) -> Any:
        """Create an object; `Conflict` if it exists."""
        return await self._request("POST", path, lane=lane, body=body, accept=METADATA_ONLY)

    async def replace(self, path: str, body: Mapping[str, Any], *, lane: Lane = Lane.APPLY) -> Any:
        """Replace an object as a whole; `Conflict` if it is not of the version in `body` now."""
        return await self._request("PUT", path, lane=lane, body=body)

    async def apply(
        self, path: str, body: Mapping[str, Any], *, manager: str, dry_run: bool = False
    ) -> Any:
        """Create or change an object by server-side apply, taking over the fields in `body`.

        Parameters
        ----------
        dry_run
            Have the server check it, and change nothing.
        """
        params = {"fieldManager": manager, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        return await self._request(
            "PATCH", path, lane=Lane.APPLY, params=params, body=body, content=_APPLY
        )

    async def delete(self, path: str, *, uid: str, version: str | None = None) -> Any:
        """Delete exactly the object that was read: this uid and, if given, this resourceVersion.

        Raises
        ------
        NotFound, Conflict
            It is gone, is another object, or was changed meanwhile.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid} | ({"resourceVersion": version} if version else {}),
        }
        return await self._request(
            "DELETE", path, lane=Lane.DELETE, body=body, accept=METADATA_ONLY
        )

    async def json_patch(
        self, path: str, operations: Sequence[Mapping[str, Any]], *, manager: str
    ) -> Any:
        """Change an object by JSON Patch and return its metadata.

        Raises
        ------
        Invalid
            With causes: the outcome breaks the schema. Without: a `test` did not hold.
        """
        return await self._request(
            "PATCH",
            path,
            lane=Lane.STATUS,
            params={"fieldManager": manager},
            body=operations,
            content=_JSON_PATCH,
            accept=METADATA_ONLY,
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        lane: Lane,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        accept: str = _JSON,
    ) -> Any:
        limiter = self._limiters[lane]
        await limiter.acquire()
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content
        try:
            answer = await self._exchange(
                method,
                path,
                params=params,
                headers=headers,
                data=None if body is None else msgspec.json.encode(body),
            )
        except KubeError as error:
            self._observe(lane, error.code)
            self._note_answer(error.code)
            if isinstance(error, (Unreachable, Throttled)) and lane is not Lane.LEASE:
                limiter.overloaded(retry_after=getattr(error, "retry_after", 0.0))
            raise
        self._observe(lane, 200)
        self._note_answer(200)
        limiter.succeeded()
        return answer

    def _note_answer(self, code: int) -> None:
        if code and self._away:
            self.recovered.set()
        self._away = code == 0

    async def _exchange(self, method: str, path: str, **options: Any) -> Any:
        if self._session is None:
            raise RuntimeError("use the client as an async context manager")
        try:
            async with self._session.request(
                method, self._access.server + path, timeout=self._timeout, **options
            ) as response:
                raw = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        if response.status < 300:
            return _decoded(raw, path)
        raise from_status(
            response.status, decoded_status(raw), retry_after=response.headers.get("Retry-After")
        )


def _decoded(raw: bytes, path: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise Unreachable(f"{path}: the answer is not JSON: {error}") from error
