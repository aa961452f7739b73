"""The two source roots keep out of each other's and the standard library's way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_operator_folder_is_never_a_package() -> None:
    """An `__init__.py` in operator/ would shadow the standard library's module of that name."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_standard_operator_module_imports_from_the_root() -> None:
    """`import operator` in the repository's root still gives the standard library's."""
    code = (
        "import sys; sys.modules.pop('operator', None); import operator; print(operator.__file__)"
    )
    environment = {"PYTHONPATH": f"{ROOT}", "PATH": "/usr/bin:/bin"}

    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert Path(found.stdout.strip()).parent == Path(subprocess.__file__).parent


def test_no_committed_file_names_a_registry() -> None:
    """The locks hold versions and hashes, never where somebody fetched them."""
    locks = [*ROOT.glob("requirements*.lock"), *(ROOT / "localcluster").glob("go.*")]
    assert len(locks) >= 6
    for lock in locks:
        text = lock.read_text()

        assert "://" not in text, lock
