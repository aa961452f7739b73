"""The bytes behind an address, from an offset on: files, and HTTP by ranges.

Blocking; call it in a thread. A connection that ends early is an error, never the end of the file:
a file that neither says its length nor comes in chunks is refused.
"""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, cast
from urllib.parse import urlsplit

from rowlock.batches.addresses import BadAddress, file_below, shown
from rowlock.errors import PermanentError, RowlockError

_TIMEOUT_SECONDS: Final = 30.0
_LEADS_AWAY: Final = "{} leads to an address that may not be followed"
_BLOCK: Final = 64 * 1024
_PERMANENT: Final = frozenset({400, 401, 403, 404, 405, 406, 410, 414, 451})


class Unreadable(RowlockError, PermanentError):
    """The items cannot be read, and trying again will not help."""


class Interrupted(RowlockError):
    """Reading did not come to its end; it is tried again."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes from an offset on.

    Parameters
    ----------
    version
        Changes when the file does; empty where nobody tells.
    blocks
        Raises `Interrupted` instead of ending early.
    """

    version: str
    blocks: Iterator[bytes]


@contextlib.contextmanager
def opened(uri: str, offset: int, *, folder: str) -> Iterator[Bytes]:
    """Yield the bytes of `uri` from `offset` on.

    Parameters
    ----------
    folder
        Below which files may be read; empty for none.

    Raises
    ------
    Unreadable
        For good.
    Interrupted
        For now.
    """
    if urlsplit(uri).scheme == "file":
        with _file(uri, offset, folder) as found:
            yield found
        return
    with _response(uri, offset) as response:
        yield _http(uri, offset, response)


@contextlib.contextmanager
def _file(uri: str, offset: int, folder: str) -> Iterator[Bytes]:
    try:
        with file_below(uri, folder).open("rb") as file:
            status = file.seek(0, 2)
            file.seek(offset)
            yield Bytes(f"{status}", _blocks(file))
    except BadAddress as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(f"{shown(uri)}: {error.strerror or 'cannot be read'}") from None


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


@contextlib.contextmanager
def _response(uri: str, offset: int) -> Iterator[http.client.HTTPResponse]:
    headers = {"Accept-Encoding": "identity", "User-Agent": "rowlock"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    # The scheme was checked: http or https.
    request = urllib.request.Request(uri, headers=headers)  # noqa: S310
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as response:
            yield cast("http.client.HTTPResponse", response)
    except urllib.error.HTTPError as error:
        error.close()
        if 300 <= error.code < 400:
            raise Unreadable(_LEADS_AWAY.format(shown(uri))) from None
        kind = Unreadable if error.code in _PERMANENT else Interrupted
        raise kind(f"{shown(uri)} answers {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Neither the error's text nor its cause: either may hold the whole address.
        raise Interrupted(f"{shown(uri)} cannot be reached: {type(error).__name__}") from None


class _SameOrSafer(urllib.request.HTTPRedirectHandler):
    """Follows to http and https only, and never from https back."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in ("http", "https") or (before == "https" and after == "http"):
            fp.close()
            raise Unreadable(_LEADS_AWAY.format(shown(req.full_url)))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER: Final = urllib.request.build_opener(_SameOrSafer())


def _http(uri: str, offset: int, response: http.client.HTTPResponse) -> Bytes:
    ranged = offset > 0 and response.status == http.HTTPStatus.PARTIAL_CONTENT
    if ranged and not (response.headers.get("Content-Range") or "").startswith(f"bytes {offset}-"):
        raise Unreadable(f"{shown(uri)} answers with another range than asked for")
    chunked = (response.headers.get("Transfer-Encoding") or "").lower() == "chunked"
    length = response.headers.get("Content-Length")
    if length is None and not chunked:
        raise Unreadable(f"{shown(uri)} does not say its length: an early end would go unnoticed")
    version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    body = _body(uri, response, None if length is None else int(length))
    return Bytes(version, body if ranged or not offset else _from(body, offset))


def _body(uri: str, response: http.client.HTTPResponse, length: int | None) -> Iterator[bytes]:
    read = 0
    try:
        while block := response.read(_BLOCK):
            read += len(block)
            yield block
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Interrupted(f"{shown(uri)} broke off: {type(error).__name__}") from None
    if length is not None and read < length:
        raise Interrupted(f"{shown(uri)} broke off after {read} of {length} bytes")


def _from(blocks: Iterator[bytes], offset: int) -> Iterator[bytes]:
    """Yield what follows the first `offset` bytes: the server knows no ranges."""
    left = offset
    for block in blocks:
        if left >= len(block):
            left -= len(block)
            continue
        yield block[left:]
        left = 0
