"""How much room caps leave, and which waiting runs take it: decided without a database."""

from __future__ import annotations

import pytest

from rowlock.store.caps import Caps, KeyRoom, Room, Use, Waiting, choose, room_under
from rowlock.store.types import RunId

MOST = 1000
FREE = KeyRoom(MOST, MOST)


@pytest.mark.parametrize(
    ("caps", "uses", "total", "of_a", "of_b"),
    [
        (Caps(), {}, MOST, FREE, FREE),
        (Caps(3), {"a": Use(1), "": Use(1)}, 1, FREE, FREE),
        (Caps(3), {"a": Use(5)}, 0, FREE, FREE),
        (Caps(None, 2), {"a": Use(1)}, MOST, KeyRoom(1, MOST), KeyRoom(2, MOST)),
        (Caps(None, 2), {"a": Use(3)}, MOST, KeyRoom(0, MOST), KeyRoom(2, MOST)),
        (Caps(None, None, 4), {"a": Use(9, 3)}, MOST, KeyRoom(MOST, 1), KeyRoom(MOST, 4)),
        (Caps(None, None, 4), {"a": Use(0, 4)}, MOST, KeyRoom(MOST, 0), KeyRoom(MOST, 4)),
        (Caps(3, 2, 4), {"a": Use(2, 2)}, 1, KeyRoom(0, 2), KeyRoom(2, 4)),
    ],
)
def test_room_is_what_each_cap_leaves(
    caps: Caps, uses: dict[str, Use], total: int, of_a: KeyRoom, of_b: KeyRoom
) -> None:
    room = room_under(caps, uses)
    assert (room.total, room.of("a"), room.of("b")) == (total, of_a, of_b)


def test_runs_without_a_key_are_under_no_cap_of_keys() -> None:
    assert room_under(Caps(None, 1, 1), {"": Use(7)}).of("") == FREE


def waiting(*runs: str) -> list[Waiting]:
    """Return runs numbered from 0; a key with ! was started before."""
    return [
        Waiting(RunId(number), key.rstrip("!"), fresh=not key.endswith("!"))
        for number, key in enumerate(runs)
    ]


@pytest.mark.parametrize(
    ("runs", "room", "chosen"),
    [
        (("a", "a", "b"), Room(2), [0, 1]),
        (("a", "a", "b"), Room(0), []),
        (("a", "a", "b"), Room(9, {"a": KeyRoom(1, 9)}), [0, 2]),
        (("a", "a", "b"), Room(9, {"a": KeyRoom(0, 9)}), [2]),
        (("a", "a", "b", "b"), Room(9, {}, KeyRoom(1, 9)), [0, 2]),
        (("a", "a!", "a", "a!"), Room(9, {"a": KeyRoom(3, 1)}), [0, 1, 3]),
        (("a", "a!", "a!"), Room(9, {"a": KeyRoom(1, 0)}), [1]),
    ],
)
def test_runs_are_chosen_in_their_order_as_far_as_the_room_goes(
    runs: tuple[str, ...], room: Room, chosen: list[int]
) -> None:
    assert choose(waiting(*runs), room) == chosen


@pytest.mark.parametrize(
    ("now", "before", "tighter"),
    [
        (Caps(), Caps(), False),
        (Caps(5), Caps(), True),
        (Caps(5), Caps(6), True),
        (Caps(6), Caps(5), False),
        (Caps(), Caps(5), False),
        (Caps(9, 2), Caps(5), True),
        (Caps(None, None, 3), Caps(5, 5, 5), True),
    ],
)
def test_a_new_or_lower_limit_is_tighter(now: Caps, before: Caps, tighter: bool) -> None:
    assert now.tighter_than(before) is tighter
