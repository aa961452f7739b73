"""The files that come from the models, written or compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from .crd import HEADER, crd_yaml
from .kind_page import kind_page
from .kinds import KINDS
from .markdown import NOTE
from .values_schema import with_specs
from .words_page import words_page


@dataclass(frozen=True, slots=True)
class Folder:
    """The generated files of one folder.

    Parameters
    ----------
    texts
        Text by file name.
    mark
        Beginning of every generated file: one that has it and is not in `texts` is a left-over.
    """

    path: Path
    texts: Mapping[str, str]
    mark: str

    def write(self) -> list[Path]:
        """Write every file, delete left-overs, and return the paths of what is there now."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in self._left_over():
            path.unlink()
        for name, text in self.texts.items():
            (self.path / name).write_text(text, encoding="utf-8")
        return [self.path / name for name in self.texts]

    def drift(self) -> Iterator[str]:
        """Yield one unified diff for each file that is not as it would be written."""
        for name, text in self.texts.items():
            yield from _diff(self.path / name, text)
        for path in self._left_over():
            yield from _diff(path, "")

    def _left_over(self) -> list[Path]:
        strangers = [path for path in self.path.glob("*.*") if path.name not in self.texts]
        return [path for path in strangers if path.read_text("utf-8").startswith(self.mark)]


def crd_files(folder: Path) -> Folder:
    """Return the CustomResourceDefinitions, one file a kind."""
    return Folder(
        folder, {f"{kind.definition.plural}.yaml": crd_yaml(kind) for kind in KINDS}, HEADER
    )


def chart_files(folder: Path) -> Folder:
    """Return the same definitions as templates of a chart that leaves them behind on uninstall."""
    return Folder(
        folder, {name: _kept(text) for name, text in crd_files(folder).texts.items()}, HEADER
    )


def values_files(folder: Path) -> Folder:
    """Return the schema of a chart's values, with the specs of our kinds filled in anew."""
    path = folder / "values.schema.json"
    # The rest of it is written by hand, so there is nothing to write where it is not.
    texts = {path.name: with_specs(path.read_text("utf-8"))} if path.exists() else {}
    return Folder(folder, texts, HEADER)


def _kept(text: str) -> str:
    # Helm would read our words as its own; `{{` has no other meaning in a schema of ours.
    if "{{" in text:
        raise ValueError("a CustomResourceDefinition with {{ in it cannot be a template")
    keep = "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n"
    return text.replace("metadata:\n", keep, 1)


def reference_files(folder: Path) -> Folder:
    """Return the reference pages, one a kind and one of the words they share."""
    pages = {f"{kind.definition.kind.lower()}.md": kind_page(kind) for kind in KINDS}
    return Folder(folder, {**pages, "conditions-and-events.md": words_page()}, NOTE)


def drift(folders: Iterable[Folder]) -> str:
    """Return the diffs of all folders, empty if every file is up to date."""
    return "".join(diff for folder in folders for diff in folder.drift())


def _diff(path: Path, wanted: str) -> Iterator[str]:
    present = path.read_text("utf-8") if path.exists() else ""
    lines = unified_diff(
        present.splitlines(keepends=True),
        wanted.splitlines(keepends=True),
        fromfile=f"{path} (as it is)",
        tofile=f"{path} (from the models)",
    )
    if present != wanted:
        yield "".join(lines)
