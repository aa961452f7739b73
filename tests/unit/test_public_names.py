"""What authors import is listed once, the list is true, and its signatures are agreed."""

from __future__ import annotations

import difflib
import types

import pytest

from tests.public_names import AGREED, MODULES, text


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_list_and_reality_agree(module: types.ModuleType) -> None:
    """Every listed name exists, every name that is there is listed, and the list is sorted."""
    for name in module.__all__:
        getattr(module, name)  # some are loaded when asked for
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert public == set(module.__all__)
    assert module.__all__ == sorted(module.__all__)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_names_are_documented(module: types.ModuleType) -> None:
    """Each says in its first line what it is."""
    for name in module.__all__:
        assert (getattr(module, name).__doc__ or "").strip(), name


def test_signatures_are_as_agreed() -> None:
    """A parameter that is renamed, moved or dropped breaks somebody's code."""
    agreed, now = AGREED.read_text(), text()

    difference = difflib.unified_diff(agreed.splitlines(), now.splitlines(), "agreed", "now", n=1)
    assert agreed == now, "\n".join(["run `python -m tests.public_names`", *difference])
