"""Where requests go, and what lets them in."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from rowlock.errors import AgentDefinitionError

OPENAI_URL = "https://api.openai.com/v1"
URL_VARIABLE = "OPENAI_BASE_URL"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
#: What a server has masked itself still shows the first and last characters of a key.
_MASK = "***"
_SHORTEST_SECRET = 6
_OURS = {"host", "content-length", "content-type", "transfer-encoding", "connection"}


class Origin(NamedTuple):
    """What one connection can be used for."""

    host: str
    port: int
    tls: ssl.SSLContext | None


class Endpoint:
    """The chat-completions resource of one server, with all that its requests have in common.

    Parameters
    ----------
    base_url
        `http://` or `https://`, up to and without `/chat/completions`; a query is kept.
    api_key
        Empty for none.
    headers
        Sent with each request; they win over our own.
    tls
        How to check the server; None for the system's certificates.

    Raises
    ------
    AgentDefinitionError
        The URL or a header cannot work.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
    ) -> None:
        parts = _split(base_url)
        secure = parts.scheme == "https"
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._tls = tls
        self._secure = secure
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        query = f"?{parts.query}" if parts.query else ""
        target = f"{parts.path.rstrip('/')}/chat/completions{query}"
        self._secrets = [
            secret for secret in (api_key, *headers.values()) if len(secret) >= _SHORTEST_SECRET
        ]
        self._head = _head(target, parts.netloc, _fields(api_key, headers))

    @property
    def origin(self) -> Origin:
        """Where to connect to."""
        return Origin(self._host, self._port, (self._tls or _system()) if self._secure else None)

    def request(self, body: bytes) -> bytes:
        """Return a whole request; it holds the key."""
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)

    def without_secrets(self, text: str) -> str:
        """Return what a server said without the key and the headers that it may have quoted."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        if _MASK not in text:
            return text
        return " ".join("…" if _MASK in word else word for word in text.split())


def checked_key(api_key: str | None, variable: str, *, owner: str) -> str:
    """Return the key that was given, or the environment's.

    Raises
    ------
    AgentDefinitionError
        There is none, or it cannot stand in a header.
    """
    key = os.environ.get(variable, "") if api_key is None else api_key
    key = key.strip()
    if not key and api_key is None:
        raise AgentDefinitionError(
            f"{owner} needs an API key: set the environment variable {variable}, "
            'or pass api_key="" for a server that asks for none.'
        )
    if not _HEADER_VALUE.fullmatch(key) or " " in key:
        raise AgentDefinitionError(
            f"The API key of {owner} holds characters that no key has: look at {variable}."
        )
    return key


def checked_url(base_url: str | None) -> str:
    """Return the URL that was given, or the environment's, or OpenAI's own."""
    return base_url or os.environ.get(URL_VARIABLE) or OPENAI_URL


def _split(base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, good = urlsplit(""), False
    if not good or not (base_url.isascii() and base_url.isprintable()) or " " in base_url:
        raise AgentDefinitionError(
            "base_url must look like https://host/v1, up to and without /chat/completions."
        )
    if "@" in parts.netloc:
        raise AgentDefinitionError("base_url may hold no password: pass api_key or headers.")
    return parts


def _fields(api_key: str, headers: Mapping[str, str]) -> dict[str, str]:
    fields = {
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "User-Agent": f"rowlock/{_version()}",
    }
    if api_key:
        fields["Authorization"] = f"Bearer {api_key}"
    given = {name.lower() for name in headers}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise AgentDefinitionError(f"The header {name!r} cannot be sent.")
        if name.lower() in _OURS:
            raise AgentDefinitionError(f"The header {name!r} is set by the client itself.")
    kept = {name: value for name, value in fields.items() if name.lower() not in given}
    return {**kept, **headers}


def _head(target: str, host: str, fields: Mapping[str, str]) -> bytes:
    """Return the request's head up to the length of its body."""
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "Content-Length: "]).encode("ascii")


@lru_cache(1)
def _system() -> ssl.SSLContext:
    """Return the system's certificates, read once a process: that takes a while."""
    return ssl.create_default_context()


def _version() -> str:
    return version("rowlock")
