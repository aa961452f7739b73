"""Which addresses items may be read from, and how an address is shown; pure."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from rowlock.errors import RowlockError

SCHEMES = ("https", "http", "file")


class BadAddress(RowlockError):
    """Items can never be read from there."""


def check(uri: str) -> None:
    """Return if items may be read from `uri`.

    Raises
    ------
    BadAddress
        It has another scheme, no place, or holds a password.
    """
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadAddress("itemsFrom.uri is no address") from None
    if parts.scheme not in SCHEMES:
        raise BadAddress(f"itemsFrom.uri must begin with one of {', '.join(map(_prefix, SCHEMES))}")
    if not uri.isascii() or not uri.isprintable() or " " in uri:
        raise BadAddress("itemsFrom.uri must be ASCII without spaces: percent-encode the rest")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("itemsFrom.uri must not hold a user name or a password")
    if parts.scheme == "file":
        _check_path(parts.netloc, unquote(parts.path))
    elif not host:
        raise BadAddress("itemsFrom.uri names no host")


def shown(uri: str) -> str:
    """Return an address without its query: that may be a signature that lets in whoever has it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def file_below(uri: str, folder: str) -> Path:
    """Return the file of a `file://` address.

    Raises
    ------
    BadAddress
        It is not below `folder`, also by way of a link; or there is no folder for items.
    """
    if not folder:
        raise BadAddress("this worker reads no files: ROWLOCK_BATCH_FOLDER is not set")
    root, path = Path(folder).resolve(), Path(unquote(urlsplit(uri).path)).resolve()
    if not path.is_relative_to(root):
        raise BadAddress(f"{shown(uri)} is not below ROWLOCK_BATCH_FOLDER")
    return path


def _check_path(host: str, path: str) -> None:
    if host not in ("", "localhost"):
        raise BadAddress("itemsFrom.uri of a file has three slashes: file:///items/all.jsonl")
    if not PurePosixPath(path).is_absolute() or "\x00" in path:
        raise BadAddress("itemsFrom.uri names no file")


def _prefix(scheme: str) -> str:
    return f"{scheme}://"
