"""Bodies: JSON as bytes, compressed above 2 KB.

No header is needed: a zstd frame begins with a magic number that no JSON text begins with.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec
import zstandard

_MAGIC: Final = zstandard.FRAME_HEADER
_COMPRESS_ABOVE: Final = 2048
#: Larger than any cap on bodies; stops a forged frame from filling the memory.
_LARGEST: Final = 256 * 2**20


class _Codecs(threading.local):
    """One pair a thread: the objects are not safe to share."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()


def encode(value: Any) -> bytes:
    """Return `value` as a stored body."""
    return pack(msgspec.json.encode(value))


def decode(body: bytes) -> Any:
    """Return the value of a stored body."""
    return msgspec.json.decode(unpack(body))


def pack(json: bytes) -> bytes:
    """Return JSON text as a stored body."""
    if len(json) <= _COMPRESS_ABOVE:
        return json
    packed = _codecs.compressor.compress(json)
    return packed if len(packed) < len(json) else json


def unpack(body: bytes) -> bytes:
    """Return the JSON text of a stored body.

    Raises
    ------
    ValueError
        The frame is broken, or says that it holds more than 256 MiB.
    """
    if not body.startswith(_MAGIC):
        return body
    try:
        if zstandard.frame_content_size(body) > _LARGEST:
            raise ValueError("a stored body is larger than 256 MiB")
        return _codecs.decompressor.decompress(body, max_output_size=_LARGEST)
    except zstandard.ZstdError as error:
        raise ValueError(f"a stored body is broken: {error}") from error
