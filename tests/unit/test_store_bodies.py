"""A body comes back as it went in, whatever it is."""

from __future__ import annotations

import json
import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rowlock.store import bodies

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)  # fmt: skip


@given(values)
def test_value_comes_back(value: object) -> None:
    assert bodies.decode(bodies.encode(value)) == value


@given(st.integers(0, 5000))
def test_large_text_is_compressed_and_small_text_is_left_as_it_is(size: int) -> None:
    text = json.dumps("x" * size).encode()
    packed = bodies.pack(text)
    assert bodies.unpack(packed) == text
    assert (packed == text) == (len(text) <= 2048)


@given(st.binary(min_size=2100, max_size=3000))
def test_what_does_not_shrink_is_kept(noise: bytes) -> None:
    text = json.dumps(noise.hex()).encode()
    assert len(bodies.pack(text)) <= len(text)
    assert bodies.unpack(bodies.pack(text)) == text


def test_no_json_text_is_taken_for_a_compressed_one() -> None:
    for text in (b"{}", b"[]", b"0", b"-1", b'"("', b"null", b"true", b" 1", b""):
        assert bodies.unpack(text) == text


@pytest.mark.parametrize("damage", [slice(0, 10), slice(0, -1)])
def test_broken_body_is_a_clear_error(damage: slice) -> None:
    packed = bodies.pack(b'"' + b"xy" * 5000 + b'"')
    with pytest.raises(ValueError, match="broken"):
        bodies.unpack(packed[damage])


def test_body_that_claims_to_be_huge_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(write_content_size=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=2**40)
    with pytest.raises(ValueError, match="256 MiB"):
        bodies.unpack(writer.compress(b"x") + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))


def test_threads_do_not_disturb_each_other() -> None:
    wrong: list[bytes] = []

    def work(letter: bytes) -> None:
        text = b'"' + letter * 20_000 + b'"'
        for _ in range(200):
            if bodies.unpack(bodies.pack(text)) != text:
                wrong.append(letter)

    threads = [threading.Thread(target=work, args=(bytes([97 + n]),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
