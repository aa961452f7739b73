"""A step is the same one in another process, whatever the order of sets and objects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from rowlock.agents.identity import MAX_KEY_LENGTH, canonical, digest, keyed, numbered
from rowlock.errors import AgentError

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
HASHABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.frozensets(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=8,
)


def shuffled(value: Any) -> Any:
    """Return an equal value whose sets and objects were filled in the opposite order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    if isinstance(value, set | frozenset):
        return type(value)(shuffled(item) for item in reversed(list(value)))
    if isinstance(value, list | tuple):
        return type(value)(shuffled(item) for item in value)
    return value


class Page(BaseModel):
    """A model with a set in it."""

    model_config = ConfigDict(frozen=True)

    url: str
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Point:
    """A dataclass with a set of sets in it."""

    x: int
    groups: frozenset[frozenset[int]] = frozenset()


@given(JSON)
def test_the_order_of_an_objects_keys_does_not_count(value: Any) -> None:
    """Two equal JSON values have one digest."""
    assert digest((value,)) == digest((shuffled(value),))


@given(st.frozensets(HASHABLE, max_size=6))
def test_the_order_of_a_set_does_not_count(value: frozenset[Any]) -> None:
    """Also for sets of sets, which `<` cannot sort, and for sets of mixed types."""
    assert canonical((value,)) == canonical((shuffled(value),))


@given(JSON, JSON)
def test_different_data_has_different_digests(one: Any, other: Any) -> None:
    """Whatever JSON tells apart, the digest tells apart."""
    same = msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")

    assert (digest((one,)) == digest((other,))) is same or not finite(one, other)


def finite(*values: Any) -> bool:
    """Tell whether no value holds an infinity, which JSON has no word for."""
    return all(b"null" not in msgspec.json.encode(value) for value in values)


@given(st.lists(SCALARS, max_size=3), st.lists(SCALARS, max_size=3))
def test_arguments_do_not_run_into_each_other(one: list[Any], other: list[Any]) -> None:
    """`f("a", "b")` and `f(["a", "b"])` are different calls."""
    assert digest((one, other)) != digest((one + other,))


def test_a_digest_is_the_same_in_every_process() -> None:
    """Hash randomization changes the order of sets of strings, not the digest."""
    code = (
        "from rowlock.agents.identity import digest\n"
        "print(digest(({'a', 'b', frozenset('xyz')}, {frozenset('pq'), frozenset('rs')})))"
    )
    root = Path(__file__).parents[2] / "worker-image"

    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(seen) == 1


def test_a_model_counts_as_its_data() -> None:
    """What a model holds decides, not where it lies in memory."""
    assert digest((Page(url="a", tags=frozenset("xyz")),)) == digest(
        (Page(url="a", tags=frozenset("zyx")),)
    )
    assert digest((Page(url="a"),)) != digest((Page(url="b"),))
    assert digest(({Page(url="a"), Page(url="b")},)) == digest(({Page(url="b"), Page(url="a")},))


def test_a_dataclass_counts_as_its_data() -> None:
    """Also when it holds what has to be sorted."""
    one = Point(1, frozenset({frozenset({1, 2}), frozenset({3})}))
    other = Point(1, frozenset({frozenset({3}), frozenset({2, 1})}))

    assert digest((one,)) == digest((other,)) != digest((Point(2),))


def test_objects_with_keys_of_other_types_are_told_apart() -> None:
    """`{1: …}` is not `{"1": …}`, and order does not count there either."""
    assert digest(({1: "a", (2, 3): "b"},)) == digest(({(2, 3): "b", 1: "a"},))
    assert digest(({1: "a"},)) != digest(({"1": "a"},))


def test_paths_and_large_numbers_are_data() -> None:
    """Whatever pydantic can write as JSON can be hashed."""
    assert digest((Path("a/b"), 2**90)) == digest((Path("a/b"), 2**90))


@pytest.mark.parametrize("value", [object(), print, iter([1]), {object()}])
def test_what_is_no_data_is_refused(value: Any) -> None:
    """A client or an iterator has no digest that would hold after a crash."""
    with pytest.raises(TypeError):
        digest((value,))


@pytest.mark.parametrize("name", ["", "a:b", "a#b", "a\nb", "a\0"])
def test_a_name_that_would_make_keys_ambiguous_is_refused(name: str) -> None:
    """The message says what to do instead."""
    with pytest.raises(AgentError, match="key="):
        keyed(name, "x")
    with pytest.raises(AgentError, match="key="):
        numbered(name, "0" * 24, 0)


def test_a_key_that_cannot_be_stored_is_refused() -> None:
    """PostgreSQL stores no NUL; the author hears of it before anything has happened."""
    with pytest.raises(AgentError, match="printed"):
        keyed("read", "a\0b")


def test_a_long_key_is_shortened_and_stays_unique() -> None:
    """A URL makes a fine key; what two of them share may be longer than the cap."""
    one, other = (keyed("read", "https://example.org/" + "x" * 400 + end) for end in "ab")

    assert len(one) == len(other) == MAX_KEY_LENGTH
    assert one != other


def test_the_two_forms_of_keys_never_meet() -> None:
    """A key given by the author cannot be one that was made from arguments."""
    assert keyed("read", "ab.0") == "read:ab.0"
    assert numbered("read", "ab", 0) == "read#ab.0"
